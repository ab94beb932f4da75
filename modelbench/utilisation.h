#pragma once
// How much of its ranks' computing power a step of training uses, and of their memory.
#include <optional>
#include <string>

#include "moe/cost/profile.h"
#include "moe/plan/model_flops.h"
#include "verbs/run/layer_run.h"

namespace moe::modelbench {

struct Utilisation {
  double step_flops = 0;             // model_flops.h
  int ranks = 1;                     // of the model as named
  std::optional<double> peak_flops;  // of a rank, a second; empty: not known
  std::string peak_by;               // who says so

  /// Returns the share of the peak that a step of so many seconds uses; empty: the peak is not known.
  std::optional<double> of_step(double seconds) const;
};

/// Returns what a step of the model uses. `asked`: the peak as a flag gives it; else it is the rate of the profile's
/// GEMMs of the model's element type, without their start-up times.
Utilisation utilisation_of(const Profile& profile, const LayerCase& shape, const ModelDepth& depth,
                           std::optional<double> asked);

/// Sets model_flops_utilisation where a record has times, in its summary and its prediction.
void add_utilisation(const Utilisation& use, verbs::LayerOutcome& outcome);

/// Returns a table of what a step uses, and of what peak and memory. `process_bytes`: the most memory that this process
/// had.
std::string utilisation_text(const Utilisation& use, const verbs::LayerOutcome& outcome, double process_bytes);

/// Returns the most resident memory that this process has had so far.
double most_process_bytes();

}  // namespace moe::modelbench
