#pragma once
// The first step of every `tune` that runs something: the target is measured and fitted.
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "moe/prices/fit.h"

namespace moe::tuner {

struct MeasuredTarget {
  FittedProfile fitted;
  std::string profile_path;  // where it was saved; of a target that was measured before, its file
};

struct Measuring {
  DType dtype = DType::float32;
  double timeout_s = 0;
  std::string path;  // where the profile is saved
};

/// Returns what predicts the target's layers. One that is not emulated and was measured before is taken as it is.
/// Every process calls it; the leading one tells how far it is, and saves the profile.
MeasuredTarget measured_target(const commands::Target& target, RecordWriter& writer,
                               const std::vector<commands::LayerJob>& layers, const Measuring& measuring);

/// Returns where a file beside the records lies: "results/tune-host" and the ending.
std::string beside_records(const std::string& records_path, const std::string& ending);

}  // namespace moe::tuner
