#pragma once
// Random curves: of pieces that a fit must find again, and of samples that follow no curve.
#include "moe/prices/profile.h"

namespace moe {

/// Returns two to five knots from 512 bytes to 512 MiB at powers of 4, whose pieces differ in slope by half at least.
Points random_knots(uint64_t seed);
/// Returns 2 to 16 samples, some of one size, that rise in the mean, with jumps and falls among them.
Points random_samples(uint64_t seed);

}  // namespace moe
