#pragma once
// The only fitted parameter of reproduce: the slowdown of a network while the other is busy, by Table 5's fsmoe.
#include <vector>

#include "commands/reproduce/study.h"

namespace moe::reproduce {

inline constexpr double kMaxContention =
    2;  // with this factor, using two networks at once is no faster than in sequence

/// Returns the readings with the contention in [1, kMaxContention] at which fsmoe's mean speedup is the printed one,
/// up to a relative 1e-3. It is 1 if fsmoe is no faster than printed even without contention, and kMaxContention if
/// fsmoe is still faster with that.
std::vector<Reading> with_fitted_contention(SweepStore& sweeps, const std::vector<Reading>& readings);

/// Adds the differences to Table 5, and to the count of layers with r_f != r_b, that remain after the fit.
void add_fitted_contention(Report& report, Study& study, const std::vector<Reading>& on_a,
                           const std::vector<Reading>& on_b);

}  // namespace moe::reproduce
