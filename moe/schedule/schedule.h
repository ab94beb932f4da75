#pragma once
// A schedule is one file: a row of this table and a function that lays out the MoE part's tasks.
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>

#include "moe/plan/plan.h"

namespace moe {

class LayerBuilder;

/// Which lanes carry communication: one for all of it, or one a network.
enum class LaneLayout : uint8_t { one_comm, by_network };
/// r = 1; one r for both phases; r_f and r_b apart.
enum class DegreePolicy : uint8_t { one, shared, apart };
/// Where the waiting gradients go in a backward.
///   after         all of them once everything else is done
///   beside_dense  some beside the dense part, the others after everything else
///   adaptive      some inside the MoE part, the others beside the dense part
enum class GradientPolicy : uint8_t { after, beside_dense, adaptive };

struct Schedule {
  std::string_view name;
  std::string_view summary;  // one line for `list`
  LaneLayout lanes;
  DegreePolicy degrees;
  GradientPolicy gradients;
  /// Adds D, G, E, S, C of every chunk, and where gradients may go among them, in lane order; for either phase.
  void (*moe_part)(LayerBuilder&);
};

std::span<const Schedule> schedules();
/// Throws BadInput listing the known names.
const Schedule& find_schedule(std::string_view name);

/// What the search decides for one layer.
struct Decision {
  int degree_forward = 1, degree_backward = 1;
  int64_t gar_in_moe_bytes = 0;        // adaptive gradients: put into the MoE part; the others go beside the dense part
  int64_t gar_beside_dense_bytes = 0;  // beside_dense gradients: put there; the others go after everything else
};

/// The decision that puts `bytes` of the gradients into the first of the two places that the schedule has for them.
Decision with_split(const Schedule& schedule, int degree_forward, int degree_backward, int64_t bytes);

/// Throws BadInput for degrees or a gradient split that the schedule does not have: DegreePolicy, GradientPolicy.
void check_decision(const Schedule& schedule, const Decision& decision);

/// Where gradient slices stand in a backward.
struct GradientSlots {
  bool in_moe = false, beside_dense = false, after = false;
  auto operator<=>(const GradientSlots&) const = default;
};

/// One phase alone (what the search replays) or both in sequence (what runs).
enum class Phases : uint8_t { forward, backward, both };

/// All that a layer's structure depends on.
struct StructureKey {
  const Schedule* schedule = nullptr;
  Phases phases = Phases::both;
  int degree_forward = 1, degree_backward = 1;
  GradientSlots slots;
  std::array<Network, kGroupKinds> networks{};
  auto operator<=>(const StructureKey&) const = default;
};

StructureKey structure_key(const Schedule& schedule, const Groups& groups, const Decision& decision,
                           GradientSlots slots, Phases phases);
std::shared_ptr<const Structure> build_structure(const StructureKey& key);

/// The slots that `schedule` uses for `bytes` of gradients, and their slices in slot order.
GradientSlots slots_of(const Schedule& schedule, const Groups& groups, const Decision& decision, int64_t bytes);
std::vector<GradientSlice> slices_of(const Schedule& schedule, const Decision& decision, int64_t bytes);

/// The plan of one layer, forward and backward, checked.
Plan build_plan(const Schedule& schedule, const Case& shape, const Decision& decision);

}  // namespace moe
