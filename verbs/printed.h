#pragma once
// What FSMoE prints of whole grids: configs/papers/fsmoe-table5.csv, which names its source in its first lines.
#include <string>
#include <string_view>

#include "moe/cost/profile.h"
#include "moe/plan/grid.h"
#include "moe/search/degrees.h"

namespace moe::verbs {

/// Returns FSMoE Table 5's mean speedup over tutel of a schedule, for the preset of a grid on the preset of a cluster:
/// the testbed's, or one that reads it otherwise ("testbed-a-printed"). 0 where none is printed.
double printed_speedup(const std::string& grid, const std::string& cluster, std::string_view schedule);
/// Returns the same of a grid, or of the one that it is a sample of; also 0 for other files that bear those names, and
/// where degrees are given: the papers choose them.
double printed_speedup(const Grid& grid, const Profile& cluster, const DegreeChoice& degrees,
                       std::string_view schedule);

/// Is how many of FSMoE's layers its grids have on each testbed (Table 4).
inline constexpr double kPrintedLayers = 1458;
/// Is the number of these with r_f != r_b on testbed B, as FSMoE measured them (section 2.3).
inline constexpr double kPrintedApart = 912;
/// Says whether that number is of the layers of this grid under fsmoe: not of a sample, nor where degrees are given.
bool printed_apart(const Grid& grid, const Profile& cluster, const DegreeChoice& degrees);

}  // namespace moe::verbs
