#pragma once
// A schedule is one file: a row of this table and a function that lays out the MoE part's tasks.
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/plan/plan.h"

namespace moe {

class LayerBuilder;
class LayerPricer;

/// Which lanes carry communication.
///   one_comm           one for all of it
///   by_network         one a network
///   by_network_copy    one a network, one for re-layout copies
///   by_network_gradient  one a network, one for gradients that shares theirs
enum class LaneLayout : uint8_t { one_comm, by_network, by_network_copy, by_network_gradient };
/// Which degrees a schedule has: r = 1; one r for both phases; r_f and r_b apart; one r, so that an AlltoAll's
/// chunk has at most micro_op_bytes.
enum class DegreePolicy : uint8_t { one, shared, apart, by_size };
/// Where the waiting gradients go in a backward.
///   after         all of them once everything else is done
///   beside_dense  some beside the dense part, the others after everything else
///   adaptive      some inside the MoE part, the others beside the dense part
///   micro_ops     pieces of fixed size, each started when its lane is idle and nothing else waits for it
///   fixed         fused pieces between the last AlltoAll of this layer and what follows it on the lane
///   own_lane      fused pieces from the start, on a lane of their own
enum class GradientPolicy : uint8_t { after, beside_dense, adaptive, micro_ops, fixed, own_lane };
/// How gradients become pieces: each tensor cut alone into micro_op_bytes, or tensors fused until they reach
/// kBucketBytes (PyTorch DDP's buckets).
enum class Pieces : uint8_t { cut, fused };

/// What a schedule searches among the orders of a whole iteration (moe/search/wave.h). The tasks of a turn are ordered
/// freely; those of the next one wait for all of them. Weight gradients stay in their backward's turn.
///   none          nothing: passes follow each other, and each is ordered alone
///   any           everything: there are no turns
///   pairs         a turn: a layer's forward, and one of the micro-batch before, from its last layer on, backward
///   two_forwards  a turn: the forwards, or the backwards, of two micro-batches
///   late_weights  a turn: the forward, or the backward, of a micro-batch
///   in_turn       a turn: the forward, or the backward, of a layer
enum class IterationOrder : uint8_t { none, any, pairs, two_forwards, late_weights, in_turn };

struct Schedule {
  std::string_view name;
  std::string_view summary;  // one line for `list`
  LaneLayout lanes;
  DegreePolicy degrees;
  GradientPolicy gradients;
  /// Adds the MoE part of every chunk, and where gradients may go among it, in lane order; for either phase.
  void (*moe_part)(LayerBuilder&);
  Flow flow = Flow::sharded;
  Pieces pieces = Pieces::cut;
  bool searched_order = false;   // the order of G and S on the intra lane is part of the decision
  bool holds_micro_ops = false;  // none starts between a combine's backward and its AlltoAll (Lina section 6.1)
  bool in_sequence = false;      // nothing of the MoE part runs beside anything: the shared expert goes before it
  bool halves_backward = false;  // experts and attention: gradients of their inputs first, which others wait for
  bool packs_experts = false;    // the experts a device holds are part of the decision (Lina section 4.2)
  IterationOrder iteration = IterationOrder::none;
  /// The schedules among which this one chooses; then it has no tasks of its own.
  std::span<const Schedule* const> variants = {};

  /// Returns whether it orders the tasks of all passes of a model at once.
  bool orders_iterations() const { return iteration != IterationOrder::none; }
};

/// Throws Unsupported, naming the schedule, with a formatted line unless `ok`.
template <class... Args>
void require_usable(bool ok, const Schedule& schedule, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok)
    throw Unsupported({.reason = fmt::format(text, std::forward<Args>(args)...),
                       .subject = fmt::format("schedule {}", schedule.name)});
}

/// Schedules, in the order of `list`: those objects to which `variants` point.
class ScheduleTable {
 public:
  class Iterator {
   public:
    using value_type = Schedule;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(const Schedule* const* at) : at_(at) {}
    const Schedule& operator*() const { return **at_; }
    const Schedule* operator->() const { return *at_; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator&) const = default;

   private:
    const Schedule* const* at_ = nullptr;
  };

  explicit ScheduleTable(std::span<const Schedule* const> rows) : rows_(rows) {}
  Iterator begin() const { return Iterator(rows_.data()); }
  Iterator end() const { return Iterator(rows_.data() + rows_.size()); }
  size_t size() const { return rows_.size(); }
  const Schedule& operator[](size_t i) const { return *rows_[i]; }

 private:
  std::span<const Schedule* const> rows_;
};
/// Those of a layer, which order one pass after the other in models too; those of models alone; all of them.
ScheduleTable schedules();
ScheduleTable iteration_schedules();
ScheduleTable all_schedules();
/// Returns the schedule of that name among all. Throws BadInput listing the known names.
const Schedule& find_schedule(std::string_view name);

/// The order of G and S on the intra lane, "GGSGSS"; empty: every G before any S.
using LaneOrder = std::string;

/// Lina's and DDP's sizes of a gradient piece.
inline constexpr int64_t kMicroOpBytes = 30'000'000;  // Lina section 7.1
inline constexpr int64_t kBucketBytes = 25 << 20;     // PyTorch DDP's default
/// The most tasks of a plan and the most pieces of a layer's gradients; more are refused. A task takes about 800 bytes.
inline constexpr int64_t kMostTasks = 2'000'000, kMostPieces = 100'000;
/// Values of Decision::gaps: after the last task of a backward's MoE part; after the last task of the piece's lane.
inline constexpr int kAfterMoe = 1 << 20, kAtEnd = 1 << 21;

/// What the search decides for one layer.
struct Decision {
  int degree_forward = 1, degree_backward = 1;
  int64_t gar_in_moe_bytes = 0;        // adaptive gradients: put into the MoE part; the others go beside the dense part
  int64_t gar_beside_dense_bytes = 0;  // beside_dense gradients: put there; the others go after everything else
  int64_t gar_after_bytes = 0;         // adaptive gradients: of the others, those that go after everything else
  int64_t micro_op_bytes = kMicroOpBytes;
  std::vector<int> gaps =
      {};  // micro_ops: by piece, how many tasks of this backward go before it on its lane; no entry: all
  LaneOrder order_forward = {}, order_backward = {};
  int packing = 1;                    // experts a device holds, in multiples of the case's own
  const Schedule* variant = nullptr;  // of a schedule that chooses
};

/// Returns the decision that puts `bytes` of the gradients into the first of the two places that the schedule has for
/// them.
Decision with_split(const Schedule& schedule, int degree_forward, int degree_backward, int64_t bytes);

/// Names two places for gradients. Behind everything else they pay only where they would slow what they run beside.
enum class SplitPlaces { moe_dense, moe_after, dense_after };
/// Returns the pairs of places between which one layer's gradients may be split.
std::span<const SplitPlaces> split_places(const Schedule& schedule, bool contended);
/// Puts `first` of `all` bytes into the first of two places, and the others into the second.
void split_gradients(const Schedule& schedule, SplitPlaces places, int64_t first, int64_t all, Decision& decision);

/// Throws BadInput for degrees or a gradient split that the schedule does not have: DegreePolicy, GradientPolicy.
void check_decision(const Schedule& schedule, const Decision& decision);

/// Throws Unsupported for a schedule that orders whole iterations.
void check_one_layer(const Schedule& schedule);

/// Throws Unsupported where the schedule's flow has no meaning on this parallel shape.
void check_shape(const Schedule& schedule, const LayerCase& shape);

/// Returns whether the schedule's gradients are split between two places: adaptive, beside_dense.
bool splits_gradients(const Schedule& schedule);
/// Returns whether the schedule's gradients are sent in pieces: micro_ops, fixed, own_lane.
bool in_pieces(const Schedule& schedule);

/// Where gradient slices stand in a backward.
struct GradientSlots {
  bool in_moe = false, beside_dense = false, after = false;
  auto operator<=>(const GradientSlots&) const = default;
};
struct GradientPlacement {
  GradientSlots slots;
  std::vector<int> gaps;      // ascending: Decision's
  std::vector<bool> experts;  // by piece: of the experts, which goes no earlier than they made it; empty: none
  auto operator<=>(const GradientPlacement&) const = default;
};

/// Names one phase alone (what the search replays) or both in sequence (what runs).
enum class Phases : uint8_t { forward, backward, both };

/// All that a layer's structure depends on.
struct StructureKey {
  const Schedule* schedule = nullptr;
  Phases phases = Phases::both;
  int degree_forward = 1, degree_backward = 1;
  GradientPlacement gradients;
  LaneOrder order_forward, order_backward;
  GroupNetworks networks{};
  int peers = 1;  // ranks of the EP group, where the structure depends on it
  bool shared_expert = false;
  bool dense = false;       // the layer has no experts: degrees say nothing
  bool recomputes = false;  // of both phases: the backward begins with the forward
  auto operator<=>(const StructureKey&) const = default;
};

StructureKey structure_key(const Schedule& schedule, const LayerOutline& layer, const Decision& decision,
                           const GradientPlacement& gradients, Phases phases);
std::shared_ptr<const Structure> build_structure(const StructureKey& key);

/// Returns the gradients' tensors, bytes each: what a rank sums over DP for one layer (attention's
/// projections that MP ranks share out; the shared expert's).
std::vector<int64_t> gradient_tensors(const LayerCase& shape);
/// Cuts tensors into pieces as the schedule does, and returns the bytes of each. Throws BadInput for more than
/// kMostPieces.
std::vector<int64_t> pieces_of(const Schedule& schedule, const std::vector<int64_t>& tensors, int64_t micro_op_bytes,
                               DType dtype);
/// Cuts a layer's gradient_tensors() by pieces_of().
std::vector<int64_t> gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes);

/// Cuts the gradients of a rank's experts by pieces_of(), each of their matrices a tensor (Lina section 4.2); none
/// where the schedule leaves the sum over EDP to the end, or EDP has one rank.
std::vector<int64_t> expert_gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes);

/// Returns the task after which the gradients of a layer's experts exist.
int last_expert(const Structure& structure);

/// These return the places that `schedule` uses for the gradients, and their slices in the order of sending.
GradientPlacement placement_of(const Schedule& schedule, const Groups& groups, const LayerCase& shape,
                               const Decision& decision);
std::vector<GradientSlice> slices_of(const Schedule& schedule, const LayerCase& shape, const Decision& decision);

/// Returns the case that a decision trains: with `packing` times as many experts a device, and EP groups that much
/// smaller; with Rounding::lcm, T_rank a multiple of both degrees, unless the case says of what already. Throws
/// Unsupported where packing does not divide, BadInput where so many rows are too many bytes.
LayerCase decided_case(const LayerCase& shape, const Decision& decision);

/// Returns the plan of one layer, forward and backward, checked.
Plan build_plan(const Schedule& schedule, const LayerCase& shape, const Decision& decision);

}  // namespace moe
