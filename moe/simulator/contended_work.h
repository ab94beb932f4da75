#pragma once
// Bounds the time in which lanes that slow each other get through their work.
#include <span>
#include <vector>

#include "moe/prices/profile.h"

namespace moe {

/// What a lane has to do: the seconds that it takes where nothing runs beside it.
struct LaneWork {
  int lane = 0;
  Resource resource = Resource::none;
  double seconds = 0;
};

/// Adds seconds to the work of that lane and resource.
void add_work(std::vector<LaneWork>& works, const LaneWork& work);

/// Returns the least seconds in which all work can be done. Stretches follow each other; works of one stretch run side
/// by side where their lanes differ, and those of `beside` beside any of them.
double least_contended_seconds(const Contention& contention, std::span<const std::vector<LaneWork>> stretches,
                               std::span<const LaneWork> beside);

/// Solves small linear programs, by Dantzig's simplex method.
struct LinearProgram {
  std::vector<std::vector<double>> rows;  // >= 0; each no more than its limit
  std::vector<double> limits;             // >= 0, so that the origin is feasible
};

/// Returns the most of the sum of gains[i] x[i], gains >= 0, over x >= 0 within the limits; infinity where nothing
/// limits it. Some x within the limits gains what is returned, whatever rounding does: it is never more than the most.
double maximum(const LinearProgram& program, std::span<const double> gains);

}  // namespace moe
