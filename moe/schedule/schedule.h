#pragma once
// Schedules. Each is defined in one file by a row of properties (Schedule) and a function that orders the MoE part's
// tasks on lanes.
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

/// The communication lanes of a schedule.
///   one_comm           one lane for all of it
///   by_network         one lane per network
///   by_network_copy    one lane per network, and one for re-layout copies
///   by_network_gradient  one lane per network, and one for gradients on the same network
enum class LaneLayout : uint8_t { one_comm, by_network, by_network_copy, by_network_gradient };
/// The rule for a schedule's degrees. one: r = 1; shared: one r for both phases; apart: separate r_f and r_b; by_size:
/// the smallest r with which a chunk of an AlltoAll has at most micro_op_bytes.
enum class DegreePolicy : uint8_t { one, shared, apart, by_size };
/// Where a backward sends the waiting gradients.
///   after         all of them after everything else
///   beside_dense  some in parallel with the dense part, the others after everything else
///   adaptive      some inside the MoE part, the others in parallel with the dense part
///   micro_ops     pieces of fixed size; a piece starts when its lane is idle and no other task waits for the lane
///   fixed         fused pieces after the last AlltoAll of this layer, before the lane's next task
///   own_lane      fused pieces from the start, on a lane of their own
enum class GradientPolicy : uint8_t { after, beside_dense, adaptive, micro_ops, fixed, own_lane };
/// How gradients are divided into pieces: each tensor cut into micro_op_bytes, or tensors fused until they reach
/// kBucketBytes (PyTorch DDP's buckets).
enum class Pieces : uint8_t { cut, fused };

/// The orders of a whole iteration that a schedule's search may choose (moe/search/wave.h). The passes of an iteration
/// are divided into turns, which follow each other; inside a turn, tasks may have any order. Weight gradients belong to
/// the turn of their backward.
///   none          no search over the iteration: passes follow each other, and each is ordered separately
///   any           all orders; no turns
///   pairs         a turn has a layer's forward, and a backward of the previous micro-batch, from the last layer on
///   two_forwards  a turn has the forwards, or the backwards, of two micro-batches
///   late_weights  a turn has the forward, or the backward, of one micro-batch
///   in_turn       a turn has the forward, or the backward, of one layer
enum class IterationOrder : uint8_t { none, any, pairs, two_forwards, late_weights, in_turn };

struct Schedule {
  std::string_view name;
  std::string_view summary;  // one line for the command `list`
  LaneLayout lanes;
  DegreePolicy degrees;
  GradientPolicy gradients;
  /// Adds the tasks of the MoE part of all chunks in lane order, and the points where gradients may be sent. For both
  /// phases.
  void (*moe_part)(LayerBuilder&);
  Flow flow = Flow::sharded;
  Pieces pieces = Pieces::cut;
  bool searched_order = false;  // the search decides the order of G and S on the intra lane
  /// No micro-op starts between the start of a combine's backward and its AlltoAll (Lina section 6.1).
  bool holds_micro_ops = false;
  bool in_sequence = false;      // nothing overlaps with the MoE part; the shared expert runs before it
  bool halves_backward = false;  // experts and attention compute gradients of inputs first, those of weights later
  bool packs_experts = false;    // the search decides the number of experts per device (Lina section 4.2)
  IterationOrder iteration = IterationOrder::none;
  /// The schedules from which this one chooses; it has no tasks itself. Empty for all other schedules.
  std::span<const Schedule* const> variants = {};

  /// Returns whether the schedule orders the tasks of a whole model together, instead of pass by pass.
  bool orders_iterations() const { return iteration != IterationOrder::none; }
};

/// Throws Unsupported with the schedule's name and the formatted reason unless `ok`.
template <class... Args>
void require_usable(bool ok, const Schedule& schedule, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok)
    throw Unsupported({.reason = fmt::format(text, std::forward<Args>(args)...),
                       .subject = fmt::format("schedule {}", schedule.name)});
}

/// A range of schedules, in the order of the command `list`. Elements are the objects that `variants` points to.
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
/// schedules(): those that order a single layer, and a model pass by pass. iteration_schedules(): those that order only
/// whole models. all_schedules(): both.
ScheduleTable schedules();
ScheduleTable iteration_schedules();
ScheduleTable all_schedules();
/// Returns the schedule of that name, among all_schedules(). Throws BadInput listing the known names.
const Schedule& find_schedule(std::string_view name);

/// The order of AllGathers (G) and ReduceScatters (S) on the intra lane, such as "GGSGSS"; empty: every G before any S.
using LaneOrder = std::string;

/// Bytes of a gradient piece in Lina and DDP.
inline constexpr int64_t kMicroOpBytes = 30'000'000;  // Lina section 7.1
inline constexpr int64_t kBucketBytes = 25 << 20;     // PyTorch DDP's default
/// Limits on the tasks of a plan (a task takes about 800 bytes) and on the pieces of a layer's gradients; larger plans
/// are refused.
inline constexpr int64_t kMaxTasks = 2'000'000, kMaxPieces = 100'000;
/// Special values in Decision::gaps. kAfterMoe: after the last task of a backward's MoE part; kAtEnd: after the last
/// task on the lane.
inline constexpr int kAfterMoe = 1 << 20, kAtEnd = 1 << 21;

/// The values that the search chooses for one layer.
struct Decision {
  int degree_forward = 1, degree_backward = 1;
  /// adaptive: bytes sent in the MoE part; the others are sent beside the dense part.
  int64_t gar_in_moe_bytes = 0;
  int64_t gar_beside_dense_bytes = 0;  // beside_dense: bytes sent beside it; the others are sent after everything else
  int64_t gar_after_bytes = 0;         // adaptive: bytes of the others that are sent after everything else
  int64_t micro_op_bytes = kMicroOpBytes;
  std::vector<int> gaps =
      {};  // micro_ops: by piece, number of this backward's tasks before it on its lane; missing: all
  LaneOrder order_forward = {}, order_backward = {};
  int packing = 1;                    // factor on the case's experts per device
  const Schedule* variant = nullptr;  // the schedule chosen among `variants`
};

/// Returns the decision that sends `bytes` bytes in the first of the schedule's two places for gradients.
Decision with_split(const Schedule& schedule, int degree_forward, int degree_backward, int64_t bytes);

/// The two places between which gradients are split. "after" everything else is worthwhile only under contention, if
/// gradients would slow the tasks that they overlap with.
enum class SplitPlaces { moe_dense, moe_after, dense_after };
/// Returns the pairs of places between which the schedule may split a layer's gradients.
std::span<const SplitPlaces> split_places(const Schedule& schedule, bool contended);
/// Sets `decision` so that `first` of `all` bytes are sent in the first of the two places, and the rest in the second.
void split_gradients(const Schedule& schedule, SplitPlaces places, int64_t first, int64_t all, Decision& decision);

/// Throws BadInput for degrees or a gradient split that the schedule's DegreePolicy or GradientPolicy does not allow.
void check_decision(const Schedule& schedule, const Decision& decision);

/// Throws Unsupported for a schedule that orders whole iterations.
void check_one_layer(const Schedule& schedule);

/// Throws Unsupported if the schedule's flow is not defined for this parallel shape.
void check_shape(const Schedule& schedule, const LayerCase& shape);

/// Returns whether the schedule splits gradients between two places: GradientPolicy adaptive or beside_dense.
bool splits_gradients(const Schedule& schedule);
/// Returns whether the schedule sends gradients in pieces: GradientPolicy micro_ops, fixed or own_lane.
bool sends_pieces(const Schedule& schedule);

/// The places where a backward sends slices of gradients.
struct GradientSlots {
  bool in_moe = false, beside_dense = false, after = false;
  auto operator<=>(const GradientSlots&) const = default;
};
struct GradientPlacement {
  GradientSlots slots;
  std::vector<int> gaps;      // as Decision::gaps, ascending
  std::vector<bool> experts;  // for each piece: whether it has gradients of experts, over EDP; empty: no piece has
  auto operator<=>(const GradientPlacement&) const = default;
};

/// The phases that a structure contains: one alone, for the search, or both in sequence, for execution.
enum class Phases : uint8_t { forward, backward, both };

/// All values on which a layer's structure depends.
struct StructureKey {
  const Schedule* schedule = nullptr;
  Phases phases = Phases::both;
  int degree_forward = 1, degree_backward = 1;
  GradientPlacement gradients;
  LaneOrder order_forward, order_backward;
  GroupNetworks networks{};
  int peers = 1;  // ranks of the EP group if the structure depends on it, else 1
  bool shared_expert = false;
  bool dense = false;       // a dense layer, on which degrees have no effect
  bool recomputes = false;  // if both phases: the backward begins by repeating the forward
  int ring_blocks = 0;      // ParallelShape::ring_blocks()
  auto operator<=>(const StructureKey&) const = default;
};

StructureKey structure_key(const Schedule& schedule, const LayerOutline& layer, const Decision& decision,
                           const GradientPlacement& gradients, Phases phases);
std::shared_ptr<const Structure> build_structure(const StructureKey& key);

/// Returns the bytes of each gradient tensor of a layer that a rank sums over DP: its shards of attention's projections
/// and of the shared expert.
std::vector<int64_t> gradient_tensors(const LayerCase& shape);
/// Returns the bytes of each piece into which the schedule cuts these tensors. Throws BadInput for more than
/// kMaxPieces pieces.
std::vector<int64_t> pieces_of(const Schedule& schedule, const std::vector<int64_t>& tensors, int64_t micro_op_bytes,
                               DType dtype);
/// Returns pieces_of() a layer's gradient_tensors().
std::vector<int64_t> gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes);

/// Returns pieces_of() the gradients of a rank's experts; each matrix of an expert is a tensor (Lina section 4.2).
/// Empty if the schedule sums experts' gradients at the end, or if EDP has one rank.
std::vector<int64_t> expert_gradient_pieces(const Schedule& schedule, const LayerCase& shape, int64_t micro_op_bytes);

/// Returns the last task that makes gradients of a layer's experts.
int last_expert(const Structure& structure);

/// These return the places where `schedule` sends gradients, and the slices in the order in which they are sent.
GradientPlacement placement_of(const Schedule& schedule, const Groups& groups, const LayerCase& shape,
                               const Decision& decision);
std::vector<GradientSlice> slices_of(const Schedule& schedule, const LayerCase& shape, const Decision& decision);

/// Returns the case with a decision applied. `packing` multiplies the experts per device and divides the size of EP
/// groups. With Rounding::lcm, T_rank becomes a multiple of both degrees, unless the case already sets a multiple.
/// Throws Unsupported if `packing` does not divide EP, BadInput if the rows have more than kMaxBytes bytes.
LayerCase decided_case(const LayerCase& shape, const Decision& decision);

/// Returns the plan of one layer, forward and backward, checked.
Plan build_plan(const Schedule& schedule, const LayerCase& shape, const Decision& decision);

}  // namespace moe
