#pragma once
// What `tune --measure all` ends in: FSMoE's Table 5 and its count of layers with r_f != r_b, measured.
#include <string>

#include "tuner/verify/agreement.h"
#include "tuner/verify/verified_report.h"

namespace moe::tuner {

/// Returns the tables; `figures` are of the results' outcomes.
std::string grid_text(const VerifiedResults& results, const RunFigures& figures);

}  // namespace moe::tuner
