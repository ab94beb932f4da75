#pragma once
// The search for the order of AllGathers (G) and ReduceScatters (S) on the intra lane. FSMoE queues G1..Gr S1..Sr
// (section 4.2); a ReduceScatter between two AllGathers can shorten the wait of the last chunks.
#include <vector>

#include "moe/plan/plan.h"
#include "moe/schedule/schedule.h"
#include "moe/search/degrees.h"

namespace moe::search {

/// The seconds of each chunk's tasks in the MoE part. The inter lane runs D1..Dr, the gradients, C1..Cr; the compute
/// lane a shared expert, then E1..Er. The shared expert's AllGather is first on the intra lane, its ReduceScatter last.
struct ChunkTimes {
  std::vector<double> dispatch, allgather, expert, reducescatter, combine;
  double gradients = 0;
  double shared_allgather = 0, shared = 0, shared_reducescatter = 0;
  double shared_end() const { return shared_allgather + shared; }
  size_t degree() const { return expert.size(); }
};

/// Returns the orders to replay one by one if the Pareto search does not apply: all orders up to degree kAllOrders;
/// beyond it, those that begin with some AllGathers and then alternate ReduceScatters and AllGathers. FSMoE's order,
/// "GG..SS", is the first.
std::vector<LaneOrder> lane_orders(size_t degree);
inline constexpr size_t kAllOrders = 5;

/// Returns the seconds from the start of D1 to the end of the last task, gradients included. An empty order is FSMoE's.
double order_seconds(const ChunkTimes& times, const LaneOrder& order);

struct OrderChoice {
  LaneOrder order;
  double seconds = 0;
  bool exact = true;  // false: the state limit was reached, and this is the best order found so far
};

/// Returns the fastest order, by a Pareto search over states (number of G done, number of S done): of two partial
/// orders of the same tasks, one is dropped if none of its times that later tasks depend on is earlier.
OrderChoice best_lane_order(const ChunkTimes& times);

// The search for lane orders in schedules with a searched order (fsmoe-interleaved).

/// Improves `best`, which must be the best decision with FSMoE's order, by searching the best order at every degree
/// that the bounds do not exclude. In the forward, an order changes only the MoE part. In the backward, the order is
/// searched twice, with the gradients that FSMoE's order has in the MoE part and with none; order and split are
/// improved in turn until neither changes. Sets decision, times, exact_order and gap.
void improve_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best);

/// Returns orders to try in a backward of this degree in addition to FSMoE's: those that are best without contention if
/// the MoE part contains no gradients, half of a layer's, or all of them.
std::vector<LaneOrder> backward_orders(LayerReplay& layer, int degree);

}  // namespace moe::search
