#pragma once
// What `tune --measure all` ends in: FSMoE's Table 5 and its count of layers with r_f != r_b, measured.
#include <map>
#include <string>

#include "tuner/verify/verified_report.h"

namespace moe::tuner {

/// "STATUS: REASON" -> runs that have no valid time because of it.
std::map<std::string, int> runs_without_time(const std::vector<LayerOutcome>& outcomes);

/// Returns the tables, and which runs are not in them.
std::string grid_text(const VerifiedResults& results);

}  // namespace moe::tuner
