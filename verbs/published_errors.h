#pragma once
// How far predictions of published training steps were off: configs/published/training-errors.csv, which
// configs/published/training_errors.py writes.
#include <optional>
#include <string>

#include "moe/cost/profile.h"

namespace moe::verbs {

struct PublishedErrors {
  std::string model, gpu;  // model: empty where runs of several count
  int runs = 0;
  double median = 0, least = 0, most = 0;  // predicted over measured, minus 1
};
/// Returns the errors of steps on the profile's GPU: of that model, or of all models if none was of that one. Empty:
/// no published step was on such a GPU.
std::optional<PublishedErrors> published_errors(const Profile& profile, const std::string& model);

/// Returns "3 published steps of MODEL on H100 took 25 % longer than predicted in the median (4 % shorter to 59 %
/// longer)".
std::string text_of(const PublishedErrors& errors);

}  // namespace moe::verbs
