#pragma once
// Lower bounds on the time in which lanes that slow each other complete their work.
#include <span>
#include <vector>

#include "moe/prices/profile.h"

namespace moe {

/// The work of a lane on a resource, as its seconds without contention.
struct LaneWork {
  int lane = 0;
  Resource resource = Resource::none;
  double seconds = 0;
};

/// Adds seconds to the work of that lane and resource.
void add_work(std::vector<LaneWork>& works, const LaneWork& work);

/// Returns a lower bound on the seconds of all work. Stretches follow each other; works in a stretch may overlap if
/// their lanes differ, and works of `beside` may overlap with any stretch.
double min_contended_seconds(const Contention& contention, std::span<const std::vector<LaneWork>> stretches,
                             std::span<const LaneWork> beside);

/// A small linear program, solved by Dantzig's simplex method.
struct LinearProgram {
  std::vector<std::vector<double>> rows;  // coefficients >= 0; rows[i] x must not exceed limits[i]
  std::vector<double> limits;             // >= 0, so that the origin is feasible
};

/// Returns the maximum of the sum of gains[i] x[i] with gains >= 0 over all x >= 0 within the limits; infinity if it is
/// unbounded. Rounding errors never make the result too large, because it is the gain of a feasible x.
double maximum(const LinearProgram& program, std::span<const double> gains);

}  // namespace moe
