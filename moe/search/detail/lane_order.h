#pragma once
// Finds the order of AllGathers and ReduceScatters on the intra lane. FSMoE queues G1..Gr S1..Sr (section 4.2); a
// ReduceScatter that runs between two AllGathers can take the last chunks' wait off the end.
#include <optional>
#include <span>
#include <vector>

#include "moe/plan/plan.h"
#include "moe/schedule/schedule.h"
#include "moe/search/degrees.h"

namespace moe::search {

/// The seconds of the MoE part's chunks; inter runs D1..Dr, the gradients, C1..Cr, compute E1..Er. A shared
/// expert takes the compute lane before E1, its AllGather and ReduceScatter the intra lane before and behind all
/// others.
struct ChunkTimes {
  std::vector<double> dispatch, allgather, expert, reducescatter, combine;
  double gradients = 0;
  double shared_allgather = 0, shared = 0, shared_reducescatter = 0;
  double shared_end() const { return shared_allgather + shared; }
  size_t degree() const { return expert.size(); }
};

/// Returns the orders to try one by one where no search is exact: all of them up to degree 5, beyond it those that
/// queue some AllGathers first and ReduceScatters and AllGathers in turn from there. FSMoE's, "GG..SS", is the first.
std::vector<LaneOrder> lane_orders(size_t degree);
inline constexpr size_t kAllOrders = 5;

/// Returns the time from D1's start to the end of the last task, gradients included. An empty order is FSMoE's.
double order_seconds(const ChunkTimes& times, const LaneOrder& order);

struct OrderChoice {
  LaneOrder order;
  double seconds = 0;
  bool exact = true;  // false: the state limit was met, and this is the best order found until then
};

/// Returns the order that takes least. It is exact by a Pareto search over (G done, S done): of two partial orders of
/// the same tasks one is dropped where every time that later tasks can feel is no earlier.
OrderChoice best_lane_order(const ChunkTimes& times);

/// Searches the order of AllGathers and ReduceScatters under contention, where no order dominates another before both
/// have ended: each is replayed.
struct ContendedOrder {
  Decision decision;  // degree, order and split of one phase
  double seconds = 0;
  double least = 0;  // no order of this degree takes less; below `seconds` where not all were tried
};

class ContendedOrders {
 public:
  ContendedOrders(const Schedule& schedule, const LayerPricer& pricer) : schedule_(schedule), pricer_(pricer) {}

  /// Returns the best order of `phase` at this degree, with the best gradient split of each that the search for it left
  /// open: of every order up to degree kAllOrders, beyond it from the best of lane_orders by swaps of neighbours.
  /// Returns `from` where none beats its `seconds`. `least`: a bound of this degree.
  ContendedOrder best(Phase phase, int degree, double least, ContendedOrder from);

 private:
  void visit(const LaneOrder& order);
  /// Returns the bytes in the first of a split's two places that take least; none: no split between them beats the
  /// best.
  std::optional<int64_t> best_bytes(const Decision& split);
  void swap_neighbours();
  double replay(const Decision& decision);
  Decision with(const LaneOrder& order) const;

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  Phase phase_ = Phase::forward;
  int degree_ = 1;
  ContendedOrder best_;
  std::vector<double> seconds_, ends_;  // scratch
};

// Searches the lane orders of schedules that have them searched (fsmoe-interleaved).

/// Searches from the best that FSMoE's order gives for the best order of every degree that the bounds leave open. It
/// searches the forward, whose dense part no order changes, and the backward, for the gradients that FSMoE's order puts
/// into the MoE part and for none, each with its best split, until neither changes. Sets `best`'s decision, times of
/// both phases, exact_order and gap.
void improve_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best);

/// Returns orders worth trying in a backward of this degree beside FSMoE's: those that are best without contention with
/// no gradients in the MoE part, with half of a layer's and with all.
std::vector<LaneOrder> backward_orders(LayerReplay& layer, int degree);

/// Freezes where gradient pieces go on their lanes (Lina sections 4.2 and 6.1): a piece is started whenever its lane is
/// idle and nothing else waits for that lane; what arrives meanwhile waits for the piece's end.
struct MicroOp {
  double seconds = 0;
  int lane = 0;
  int made_by = -1;  // the task after which it can be sent; -1: it waits from the start
};

struct MicroOps {
  struct Place {
    int layer = -1;  // in whose backward it goes; -1: after all of them
    int gap = 0;     // how many other tasks of that backward go before it on its lane
  };
  std::vector<Place> places;  // by piece
  double seconds = 0;         // until the last task and the last piece end
};

/// Returns where the pieces go. `structure`: of one backward, or of a model, whose gradient tasks are ignored; its
/// tasks priced by id in `seconds`. Pieces of a lane go in the order given, in backwards of micro-batch `last`
/// alone. With `hold` none is started once a layer's combining computation could begin its backward, until that layer's
/// first AlltoAll on the same lane is (Lina section 6.1: "since this implies all-to-all is imminent").
MicroOps freeze_micro_ops(const Structure& structure, std::span<const double> seconds, std::span<const MicroOp> pieces,
                          bool hold, int last = 0);

}  // namespace moe::search
