#pragma once
// Fits a [[task]] row to the times of a layer's computations.
#include <string_view>
#include <vector>

#include "moe/cost/profile.h"

namespace moe::cost {

struct TermSample {
  TermValues terms{};
  double seconds = 0;
};

/// Fits seconds = s_per . terms with no s_per below 0: least squares of relative errors, so that short tasks weigh as
/// long ones do, reweighted so that a few odd samples decide nothing. Fills what the row says of its own fit: held-out
/// errors are of each sample by the others, and `weak` where these are beyond the limits of fit.h or the samples are
/// too few to judge. Throws BadInput for no sample, or times that are not positive; NoLine where numbers overflow.
void fit_terms(const std::vector<TermSample>& samples, std::string_view what, TaskRow& row);

}  // namespace moe::cost
