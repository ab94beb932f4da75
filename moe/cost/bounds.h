#pragma once
// Lower bounds on a layer's time under a schedule, whatever its degrees and gradient split.
#include <string>

#include "moe/cost/pricer.h"
#include "moe/schedule/schedule.h"

namespace moe {

struct Bound {
  double forward_s = 0, backward_s = 0;
  std::string forward_term, backward_term;  // which lane binds
  double total_s() const { return forward_s + backward_s; }
};

/// Dense part plus the MoE part's busiest lane: its load at r = 1 (each alpha paid once), before it the alphas on the
/// way to its first task, behind it those after its last. Gradients sent after everything add their time; others must
/// fit on their lane. Assumes t(a) + t(b) >= t(a + b), which alpha-beta rows satisfy.
Bound degree_free_bound(const Schedule& schedule, const LayerPricer& pricer);

}  // namespace moe
