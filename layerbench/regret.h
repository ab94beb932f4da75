#pragma once
// The time lost by following predictions: that of the schedule predicted fastest against that of the schedule measured
// fastest.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"

namespace moe::layerbench {

/// The regret over the layers on which at least two schedules have a prediction and a sound run of two passes or more.
struct Regret {
  int layers = 0;
  double mean = 0, worst = 0;  // time of the schedule predicted fastest over that of the one measured fastest, less 1
  std::string worst_layer;
};

/// Returns the regret; none if no layer qualifies. The schedule measured fastest is picked by the even passes, and both
/// schedules are compared by the odd passes; then the halves change roles, and the layer's regret is the mean of both.
/// So a schedule that noise made fastest in one half gains nothing by it.
std::optional<Regret> regret_of(const std::vector<commands::LayerOutcome>& outcomes);

}  // namespace moe::layerbench
