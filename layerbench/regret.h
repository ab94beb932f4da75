#pragma once
// The cost of following the predictions: the schedule that is predicted fastest against the one that runs fastest.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"

namespace moe::layerbench {

/// The regret over the layers on which at least two schedules were predicted and ran well, in two passes or more.
struct Regret {
  int layers = 0;
  double mean = 0, worst = 0;  // time of the predicted best over that of the measured best, minus 1
  std::string worst_layer;
};

/// Picks the measured best on every second pass and scores both on the others, then the other way round, so that noise
/// that makes a schedule look best in one half does not count in its favour. A layer's regret is the mean of the two.
std::optional<Regret> regret_of(const std::vector<commands::LayerOutcome>& outcomes);

}  // namespace moe::layerbench
