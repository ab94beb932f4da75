#pragma once
// What the search of one layer finds.
#include <string_view>

#include "moe/cost/bounds.h"
#include "moe/plan/memory.h"
#include "moe/schedule/schedule.h"

namespace moe {

/// Holds what was decided for one layer under one schedule, and what that takes.
struct LayerResult {
  std::string_view schedule;
  Decision decision;
  double forward_s = 0, backward_s = 0;
  int forwards = 1;  // more: those that the backward begins with (Recompute::full) are yet to be added to it
  double moe_forward_s = 0, moe_backward_s = 0;  // first dispatch to last combine and expert_dw
  Bound bound;                                   // whatever the degrees
  Bound degree_bound;                            // of the degrees chosen
  bool exact_order = true;  // of G and S, where it is searched: false if not every one is ruled out
  double gap = 0;           // the share by which another order may be faster, at most
  MemoryEstimate memory;    // that training the layer as decided takes on a rank
  double total_s() const { return forwards * forward_s + backward_s; }
};

}  // namespace moe
