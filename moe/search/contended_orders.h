#pragma once
// Searches the order of AllGathers and ReduceScatters under contention, where no order dominates another before both
// have ended: each is replayed.
#include <optional>

#include "moe/search/degrees.h"

namespace moe::search {

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

}  // namespace moe::search
