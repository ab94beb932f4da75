#pragma once
// A schedule is one file: a row of this table and a function that orders the MoE part's tasks on lanes.
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

/// The lanes that carry communication.
///   one_comm           one lane for all of it
///   by_network         one lane per network
///   by_network_copy    one lane per network, and one for re-layout copies
///   by_network_gradient  one lane per network, and one for gradients that shares their network
enum class LaneLayout : uint8_t { one_comm, by_network, by_network_copy, by_network_gradient };
/// The degrees of a schedule: r = 1; one r for both phases; separate r_f and r_b; or one r such that a chunk of an
/// AlltoAll has at most micro_op_bytes.
enum class DegreePolicy : uint8_t { one, shared, apart, by_size };
/// Where a backward sends the waiting gradients.
///   after         all of them after everything else
///   beside_dense  some beside the dense part, the others after everything else
///   adaptive      some inside the MoE part, the others beside the dense part
///   micro_ops     pieces of fixed size, each started when its lane is idle and nothing else waits for it
///   fixed         fused pieces between the last AlltoAll of this layer and what follows it on the lane
///   own_lane      fused pieces from the start, on a lane of their own
enum class GradientPolicy : uint8_t { after, beside_dense, adaptive, micro_ops, fixed, own_lane };
/// How gradients are divided into pieces: each tensor cut into micro_op_bytes, or tensors fused until they reach
/// kBucketBytes (PyTorch DDP's buckets).
enum class Pieces : uint8_t { cut, fused };

/// The orders of a whole iteration that a schedule searches (moe/search/wave.h). Tasks of a turn may be in any order;
/// those of the next turn wait for all of them. Weight gradients stay in the turn of their backward.
///   none          no search: passes follow each other, and each is ordered separately
///   any           all orders: there are no turns
///   pairs         a turn: a layer's forward, and a layer's backward of the micro-batch before, from the last layer on
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
  /// Adds the MoE part of every chunk, and the points where gradients may be sent, in lane order, in either phase.
  void (*moe_part)(LayerBuilder&);
  Flow flow = Flow::sharded;
  Pieces pieces = Pieces::cut;
  bool searched_order = false;   // the decision includes the order of G and S on the intra lane
  bool holds_micro_ops = false;  // no micro-op starts between a combine's backward and its AlltoAll (Lina section 6.1)
  bool in_sequence = false;      // nothing overlaps with the MoE part: the shared expert goes before it
  bool halves_backward = false;  // experts and attention: first gradients of inputs, for which others wait
  bool packs_experts = false;    // the decision includes the experts per device (Lina section 4.2)
  IterationOrder iteration = IterationOrder::none;
  /// The schedules from which this one chooses; such a schedule has no tasks of its own.
  std::span<const Schedule* const> variants = {};

  /// Returns whether the schedule orders the tasks of all passes of a model together.
  bool orders_iterations() const { return iteration != IterationOrder::none; }
};

/// Throws Unsupported, naming the schedule, with a formatted line unless `ok`.
template <class... Args>
void require_usable(bool ok, const Schedule& schedule, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok)
    throw Unsupported({.reason = fmt::format(text, std::forward<Args>(args)...),
                       .subject = fmt::format("schedule {}", schedule.name)});
}

/// Schedules in the order of `list`, as references to the objects to which `variants` point.
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
/// Schedules of a layer, which also order a model pass by pass; schedules only of models; all of both.
ScheduleTable schedules();
ScheduleTable iteration_schedules();
ScheduleTable all_schedules();
/// Returns the schedule of that name, of a layer or of models. Throws BadInput listing the known names.
const Schedule& find_schedule(std::string_view name);

/// The order of G and S on the intra lane, "GGSGSS"; empty: every G before any S.
using LaneOrder = std::string;

/// Sizes of a gradient piece in Lina and DDP.
inline constexpr int64_t kMicroOpBytes = 30'000'000;  // Lina section 7.1
inline constexpr int64_t kBucketBytes = 25 << 20;     // PyTorch DDP's default
/// The most tasks of a plan and the most pieces of a layer's gradients; more are refused. A task takes about 800 bytes.
inline constexpr int64_t kMostTasks = 2'000'000, kMostPieces = 100'000;
/// Special values of Decision::gaps: after the last task of a backward's MoE part; after the last task on the lane.
inline constexpr int kAfterMoe = 1 << 20, kAtEnd = 1 << 21;

/// The decision of the search for one layer.
struct Decision {
  int degree_forward = 1, degree_backward = 1;
  int64_t gar_in_moe_bytes = 0;        // adaptive: sent in the MoE part; the others go beside the dense part
  int64_t gar_beside_dense_bytes = 0;  // beside_dense: sent beside it; the others go after everything else
  int64_t gar_after_bytes = 0;         // adaptive: the part of the others that goes after everything else
  int64_t micro_op_bytes = kMicroOpBytes;
  std::vector<int> gaps =
      {};  // micro_ops: by piece, the tasks of this backward that precede it on its lane; missing entries: all
  LaneOrder order_forward = {}, order_backward = {};
  int packing = 1;                    // experts per device, in multiples of the case's own
  const Schedule* variant = nullptr;  // the schedule chosen among `variants`
};

/// Returns the decision that sends `bytes` of the gradients in the first of the schedule's two places for
/// them.
Decision with_split(const Schedule& schedule, int degree_forward, int degree_backward, int64_t bytes);

/// Two places for gradients. Sending after everything else pays only if overlapping tasks would be slowed.
enum class SplitPlaces { moe_dense, moe_after, dense_after };
/// Returns the pairs of places between which one layer's gradients may be split.
std::span<const SplitPlaces> split_places(const Schedule& schedule, bool contended);
/// Puts `first` of `all` bytes into the first of two places, and the rest into the second.
void split_gradients(const Schedule& schedule, SplitPlaces places, int64_t first, int64_t all, Decision& decision);

/// Throws BadInput for degrees or a gradient split that the schedule does not allow: DegreePolicy, GradientPolicy.
void check_decision(const Schedule& schedule, const Decision& decision);

/// Throws Unsupported for a schedule that orders whole iterations.
void check_one_layer(const Schedule& schedule);

/// Throws Unsupported if the schedule's flow is not defined for this parallel shape.
void check_shape(const Schedule& schedule, const LayerCase& shape);

/// Returns whether the schedule's gradients are split between two places: adaptive, beside_dense.
bool splits_gradients(const Schedule& schedule);
/// Returns whether the schedule's gradients are sent in pieces: micro_ops, fixed, own_lane.
bool in_pieces(const Schedule& schedule);

/// Where a backward sends slices of gradients.
struct GradientSlots {
  bool in_moe = false, beside_dense = false, after = false;
  auto operator<=>(const GradientSlots&) const = default;
};
struct GradientPlacement {
  GradientSlots slots;
  std::vector<int> gaps;      // Decision's, ascending
  std::vector<bool> experts;  // by piece: gradients of experts, sent after the experts made them; empty: none
  auto operator<=>(const GradientPlacement&) const = default;
};

/// One phase alone (replayed by the search) or both in sequence (executed).
enum class Phases : uint8_t { forward, backward, both };

/// Everything that a layer's structure depends on.
struct StructureKey {
  const Schedule* schedule = nullptr;
  Phases phases = Phases::both;
  int degree_forward = 1, degree_backward = 1;
  GradientPlacement gradients;
  LaneOrder order_forward, order_backward;
  GroupNetworks networks{};
  int peers = 1;  // ranks of the EP group, if the structure depends on them
  bool shared_expert = false;
  bool dense = false;       // no experts: degrees do not matter
  bool recomputes = false;  // both phases: the backward begins by repeating the forward
  int ring_blocks = 0;      // of keys and values
  auto operator<=>(const StructureKey&) const = default;
};

StructureKey structure_key(const Schedule& schedule, const LayerOutline& layer, const Decision& decision,
                           const GradientPlacement& gradients, Phases phases);
std::shared_ptr<const Structure> build_structure(const StructureKey& key);

/// Returns the bytes of each gradient tensor that a rank sums over DP for one layer: attention's projections, which MP
/// ranks share, and those of the shared expert.
std::vector<int64_t> gradient_tensors(const LayerCase& shape);
/// Cuts tensors into pieces as the schedule does, and returns the bytes of each piece. Throws BadInput for more than
/// kMostPieces pieces.
std::vector<int64_t> pieces_of(const Schedule& schedule, const std::vector<int64_t>& tensors, int64_t micro_op_bytes,
                               DType dtype);
/// Cuts a layer's gradient_tensors() by pieces_of().
std::vector<int64_t> gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes);

/// Cuts the gradients of a rank's experts by pieces_of(), each of their matrices being a tensor (Lina section 4.2).
/// Returns none if the schedule sums over EDP at the end, or if EDP has one rank.
std::vector<int64_t> expert_gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes);

/// Returns the task after which the gradients of a layer's experts exist.
int last_expert(const Structure& structure);

/// These return the places at which `schedule` sends gradients, and their slices in the order of sending.
GradientPlacement placement_of(const Schedule& schedule, const Groups& groups, const LayerCase& shape,
                               const Decision& decision);
std::vector<GradientSlice> slices_of(const Schedule& schedule, const LayerCase& shape, const Decision& decision);

/// Returns the case after a decision: with `packing` times as many experts per device and EP groups that are smaller by
/// that factor; with Rounding::lcm, T_rank is a multiple of both degrees unless the case already sets a multiple.
/// Throws Unsupported if `packing` does not divide, BadInput if the rows exceed the countable bytes.
LayerCase decided_case(const LayerCase& shape, const Decision& decision);

/// Returns the plan of one layer, forward and backward, checked.
Plan build_plan(const Schedule& schedule, const LayerCase& shape, const Decision& decision);

}  // namespace moe
