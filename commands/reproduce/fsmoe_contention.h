#pragma once
// The one knob of reproduce: how much either network slows down while the other is busy, fitted to Table 5's fsmoe.
#include <vector>

#include "commands/reproduce/study.h"

namespace moe::reproduce {

inline constexpr double kMostContention = 2;  // where sharing two networks is no better than taking turns

/// Returns the readings with the contention in [1, kMostContention] at which fsmoe's mean speedup is the printed one,
/// to 1e-3 of it: 1 where fsmoe is no better than printed even without contention, and the most where it is still
/// better with that.
std::vector<Reading> with_fitted_contention(SweepStore& sweeps, const std::vector<Reading>& readings);

/// Adds what the fitted knob leaves of Table 5 and of the count of layers with r_f != r_b.
void add_fitted_contention(Report& report, Study& study, const std::vector<Reading>& on_a,
                           const std::vector<Reading>& on_b);

}  // namespace moe::reproduce
