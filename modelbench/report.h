#pragma once
// The results of `modelbench`, as text and as JSON.
#include <optional>
#include <string>

#include "commands/shared/run/layer_run.h"
#include "moe/prices/profile.h"
#include "moe/shape/volumes.h"
#include "moe/train/optimizer.h"
#include "moe/train/token_source.h"

namespace moe::modelbench {

/// The share of the ranks' computing power that a training step uses.
struct Utilisation {
  double step_flops = 0;             // FLOPs of a step (volumes.h)
  int ranks = 1;                     // ranks of the model as named
  std::optional<double> peak_flops;  // FLOPs per second of a rank; none: unknown
  std::string peak_by;               // source of the peak

  /// Returns the share of the peak that a step of `seconds` uses; none if the peak is unknown.
  std::optional<double> of_step(double seconds) const;
};

/// Returns the FLOPs of a step and the peak of the ranks. `asked`: the peak by a flag; none: the rate of the profile's
/// GEMMs of the model's element type, without their start-up times.
Utilisation utilisation_of(const Profile& profile, const LayerCase& shape, const ModelDepth& depth,
                           std::optional<double> asked);

/// Sets model_flops_utilisation in the summary and in the prediction of each record that has times there.
void add_utilisation(const Utilisation& use, commands::LayerOutcome& outcome);

/// Returns a table of the FLOPs and memory that steps use, and of their shares of the peak. `process_bytes`: the peak
/// memory of this process.
std::string utilisation_text(const Utilisation& use, const commands::LayerOutcome& outcome, double process_bytes);

/// Returns the peak resident memory of this process.
double max_process_bytes();

struct ModelbenchResults {
  std::string cluster, place, model, records_path;  // place of the Target
  bool emulated = true, tasks = false, check_only = false;
  bool cut = false;               // only as many layers ran as a rank has memory for
  int layers = 1, of_layers = 1;  // layers that ran, and layers of the model
  DenseLayers dense = {};         // of those that ran
  LayerSet whole = {};            // of those that ran
  int64_t tokens = 0;             // of a step, nominal
  int experts = 1;                // a device, nominal, where none are packed
  std::string text = {}, optimizer = {};
  std::string kind = {};  // kind of the layers, unless they are those of a usual decoder
  std::optional<double> entropy_rate = {}, order_1_entropy = {};  // nats per token of the text, if it is known
  Utilisation use = {};
  commands::LayerOutcome outcome = {};

  void describe_text(const TokenSource& source, const std::string& name, const OptimizerSettings& settings);
  /// Sets `kind`. If tokens are masked, it clears the entropies, which are unknown then. Call it after
  /// describe_text.
  void describe_layer(const LayerShape& layer, bool tied);
};

/// Shows tables of step times, of what steps use and of losses, and why other schedules have no row there.
std::string text_of(const ModelbenchResults& results);
std::string json_of(const ModelbenchResults& results);

}  // namespace moe::modelbench
