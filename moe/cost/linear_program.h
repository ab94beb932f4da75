#pragma once
// Solves small linear programs, by Dantzig's simplex method with Bland's rule.
#include <span>
#include <vector>

namespace moe::cost {

struct LinearProgram {
  std::vector<std::vector<double>> rows;  // each no more than its limit
  std::vector<double> limits;             // >= 0, so that the origin is feasible
};

/// Returns the most of the sum of gains[i] x[i] over x >= 0 within the limits; infinity where nothing limits it.
double most(const LinearProgram& program, std::span<const double> gains);

}  // namespace moe::cost
