#pragma once
// Solves small linear programs, by Dantzig's simplex method.
#include <span>
#include <vector>

namespace moe::cost {

struct LinearProgram {
  std::vector<std::vector<double>> rows;  // >= 0; each no more than its limit
  std::vector<double> limits;             // >= 0, so that the origin is feasible
};

/// Returns the most of the sum of gains[i] x[i], gains >= 0, over x >= 0 within the limits; infinity where nothing
/// limits it. Some x within the limits gains what is returned, whatever rounding does: it is never more than the most.
double most(const LinearProgram& program, std::span<const double> gains);

}  // namespace moe::cost
