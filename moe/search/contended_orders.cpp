#include "moe/search/contended_orders.h"

#include <algorithm>
#include <utility>

#include "moe/search/lane_order.h"

namespace moe::search {

Decision ContendedOrders::with(const LaneOrder& order) const {
  Decision decision = best_.decision;
  const bool forward = phase_ == Phase::forward;
  (forward ? decision.degree_forward : decision.degree_backward) = degree_;
  (forward ? decision.order_forward : decision.order_backward) = order;
  return decision;
}

double ContendedOrders::replay(const Decision& decision) {
  const bool forward = phase_ == Phase::forward;
  const GradientPlacement placement =
      forward ? GradientPlacement{} : placement_of(schedule_, pricer_.groups(), pricer_.shape(), decision);
  const CompiledStructure c(
      structure_key(schedule_, pricer_.outline(), decision, placement, forward ? Phases::forward : Phases::backward));
  pricer_.price(*c.structure, slices_of(schedule_, pricer_.shape(), decision), seconds_);
  const double seconds = c.makespan(seconds_, pricer_.profile().contention, ends_);
  if (better(seconds, best_.seconds)) best_ = {decision, seconds, best_.least};
  return seconds;
}

void ContendedOrders::visit(const LaneOrder& order) {
  const int64_t all = pricer_.has(GroupKind::dp) ? pricer_.gradient_bytes() : 0;
  const int64_t element = bytes_of(pricer_.shape().layer.dtype);
  Decision split = with(order);
  if (phase_ == Phase::forward || all == 0) {
    replay(split);
    return;
  }
  for (const SplitPlaces places : split_places(schedule_, true)) {
    split_gradients(schedule_, places, element, all, split);
    const auto best_between = all < 2 * element ? std::optional(int64_t{0}) : best_bytes(split);
    if (!best_between) continue;
    for (const int64_t first : {int64_t{0}, all, *best_between}) {
      split_gradients(schedule_, places, first, all, split);
      replay(split);
    }
  }
}

std::optional<int64_t> ContendedOrders::best_bytes(const Decision& split) {
  const CompiledStructure both(structure_key(schedule_, pricer_.outline(), split,
                                             placement_of(schedule_, pricer_.groups(), pricer_.shape(), split),
                                             Phases::backward));
  pricer_.price(*both.structure, slices_of(schedule_, pricer_.shape(), split), seconds_);
  if (!better(least_free_split(both.replay, *both.structure, pricer_, seconds_), best_.seconds)) return std::nullopt;
  return best_contended_split(both.under(pricer_.profile().contention), *both.structure, pricer_, seconds_);
}

void ContendedOrders::swap_neighbours() {
  const auto order_of = [&](const Decision& d) {
    return phase_ == Phase::forward ? d.order_forward : d.order_backward;
  };
  for (double before = best_.seconds + 1; better(best_.seconds, before);) {
    before = best_.seconds;
    const LaneOrder from = order_of(best_.decision);
    if (from.size() != 2 * static_cast<size_t>(degree_)) return;  // no order of this degree is the best
    int ahead = 0;                                                // AllGathers whose ReduceScatter is to come
    for (size_t i = 0; i + 1 < from.size(); ++i) {
      ahead += from[i] == 'G' ? 1 : -1;
      if (from[i] == from[i + 1] || (from[i] == 'G' && ahead == 1)) continue;  // an S before its G
      LaneOrder swapped = from;
      std::swap(swapped[i], swapped[i + 1]);
      replay(with(swapped));
    }
    if (better(best_.seconds, before)) visit(order_of(best_.decision));
  }
}

ContendedOrder ContendedOrders::best(Phase phase, int degree, double least, ContendedOrder from) {
  phase_ = phase;
  degree_ = degree;
  const double before = from.seconds;
  best_ = std::move(from);
  best_.least = least;
  for (const LaneOrder& order : lane_orders(static_cast<size_t>(degree))) visit(order);
  if (static_cast<size_t>(degree) <= kAllOrders)
    best_.least = best_.seconds;
  else
    swap_neighbours();
  best_.least = std::min(best_.least, before);
  return best_;
}

}  // namespace moe::search
