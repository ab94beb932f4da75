#pragma once
// What `tune --measure all` ends in: FSMoE's Table 5 and its count of layers with r_f != r_b, measured.
#include <map>
#include <string>

#include "tuner/verify/verified_report.h"

namespace moe::tuner {

/// Returns the name under which a paper prints this grid's figures: its own, or that of the grid it is a sample of.
const std::string& whole_grid_of(const Grid& grid);

/// "STATUS: REASON" -> runs that have no valid time because of it.
std::map<std::string, int> runs_without_time(const std::vector<LayerOutcome>& outcomes);

/// Returns the tables, and which runs are not in them.
std::string grid_text(const VerifiedResults& results);

}  // namespace moe::tuner
