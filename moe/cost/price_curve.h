#pragma once
// The time that work takes by its size: alpha + n beta, or a measured curve inside its range.
#include "moe/cost/profile.h"

namespace moe::cost {

/// Holds the least seconds of work that is cut into parts: of all parts together, and of any one.
struct Parts {
  double all = 0, one = 0;
};

struct PriceCurve {
  double alpha = 0, beta = 0;            // of one work unit: a byte or a FLOP
  const Points* points = nullptr;        // used inside its range
  double hook_alpha = 0, hook_beta = 0;  // of what is called around an exchange
  double seconds(double work) const;
  /// Returns the least that parts take which together are `work`, none larger than `largest` <= work, each with this
  /// overhead.
  Parts in_parts(double work, double largest, double overhead) const;
};

}  // namespace moe::cost
