#pragma once
// Finds the order of AllGathers and ReduceScatters on the intra lane. FSMoE queues G1..Gr S1..Sr (section 4.2); a
// ReduceScatter between two AllGathers can shorten the wait of the last chunks.
#include <vector>

#include "moe/plan/plan.h"
#include "moe/schedule/schedule.h"
#include "moe/search/degrees.h"

namespace moe::search {

/// The seconds of the MoE part's chunks; inter runs D1..Dr, the gradients, C1..Cr, compute E1..Er. A shared expert
/// uses the compute lane before E1, and its AllGather and ReduceScatter the intra lane before and after all
/// others.
struct ChunkTimes {
  std::vector<double> dispatch, allgather, expert, reducescatter, combine;
  double gradients = 0;
  double shared_allgather = 0, shared = 0, shared_reducescatter = 0;
  double shared_end() const { return shared_allgather + shared; }
  size_t degree() const { return expert.size(); }
};

/// Returns the orders to try one by one if no search is exact: all of them up to degree 5; beyond it those that first
/// queue some AllGathers and then alternate ReduceScatters and AllGathers. FSMoE's, "GG..SS", is the first.
std::vector<LaneOrder> lane_orders(size_t degree);
inline constexpr size_t kAllOrders = 5;

/// Returns the seconds from D1's start to the end of the last task, gradients included. An empty order is FSMoE's.
double order_seconds(const ChunkTimes& times, const LaneOrder& order);

struct OrderChoice {
  LaneOrder order;
  double seconds = 0;
  bool exact = true;  // false: the state limit was reached, and this is the best order found so far
};

/// Returns the order with the least seconds. It is exact by a Pareto search over (G done, S done): of two partial
/// orders of the same tasks, one is dropped if none of its times that matter to later tasks is earlier.
OrderChoice best_lane_order(const ChunkTimes& times);

// Searches the lane orders of schedules with a searched order (fsmoe-interleaved).

/// Starts from the best decision with FSMoE's order and searches the best order at every degree that the bounds do not
/// exclude: for the forward, whose dense part no order changes; and for the backward, with the gradients that FSMoE's
/// order puts into the MoE part and with none, each with its best split, until neither changes. Sets `best`'s decision,
/// times of both phases, exact_order and gap.
void improve_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best);

/// Returns orders worth trying in a backward of this degree in addition to FSMoE's: those that are best without
/// contention, with no gradients in the MoE part, with half of a layer's and with all.
std::vector<LaneOrder> backward_orders(LayerReplay& layer, int degree);

}  // namespace moe::search
