#pragma once
// The first step of a `tune` that runs plans: measures the target and fits its profile.
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "moe/prices/fit.h"

namespace moe::tuner {

struct MeasuredTarget {
  FittedProfile fitted;
  std::string profile_path;  // path of the saved or, for a target that was measured before, the reused profile
};

struct Measuring {
  DType dtype = DType::float32;
  double timeout_s = 0;
  std::string path;  // path where the profile is saved
};

/// Returns the profile that predicts the target's layers. If the target is not emulated and was measured before, its
/// profile is reused. Every process calls it; the leading one reports progress and saves the profile.
MeasuredTarget measured_target(const commands::Target& target, RecordWriter& writer,
                               const std::vector<commands::LayerJob>& layers, const Measuring& measuring);

/// Returns the path of a file beside the records: "results/tune-host" plus the ending.
std::string sibling_path(const std::string& records_path, const std::string& ending);

}  // namespace moe::tuner
