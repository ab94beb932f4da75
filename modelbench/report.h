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
  int ranks = 1;                     // number of ranks of the unreduced model
  std::optional<double> peak_flops;  // FLOPs per second of a rank; none: unknown
  std::string peak_by;               // source of the peak

  /// Returns the share of the peak that a step of `seconds` uses; none if the peak is unknown.
  std::optional<double> utilisation_of_step(double seconds) const;
};

/// Returns the FLOPs of a step and the peak of the ranks. `asked`: the FLOP/s of a rank by a flag; none: takes the rate
/// of the profile's GEMMs of the model's element type, without their start-up times.
Utilisation utilisation_of(const Profile& profile, const LayerCase& shape, const ModelDepth& depth,
                           std::optional<double> asked);

/// Sets model_flops_utilisation in each record, in the summary and in the prediction, if that has a time.
void add_utilisation(const Utilisation& use, commands::LayerOutcome& outcome);

/// Returns a table of the FLOPs and memory that training steps use, and of the utilisation. `process_bytes`: the peak
/// resident memory of this process.
std::string utilisation_text(const Utilisation& use, const commands::LayerOutcome& outcome, double process_bytes);

/// Returns the peak resident memory of this process in bytes.
double max_process_bytes();

struct ModelbenchResults {
  std::string cluster, place, model, records_path;  // place: that of the Target
  bool emulated = true, tasks = false, check_only = false;
  bool cut = false;               // true: fewer layers ran than the model has, because memory is limited
  int layers = 1, of_layers = 1;  // layers that ran, and layers of the model
  DenseLayers dense = {};         // dense layers among those that ran
  LayerSet whole = {};            // layers without an attention window among those that ran
  int64_t tokens = 0;             // tokens of a step of the unreduced model
  int experts = 1;                // experts a device of the unreduced model, without packing
  std::string text = {}, optimizer = {};
  std::string kind = {};                                          // kind of the layers; empty: those of a usual decoder
  std::optional<double> entropy_rate = {}, order_1_entropy = {};  // nats per token of the text; none: unknown
  Utilisation use = {};
  commands::LayerOutcome outcome = {};

  void describe_text(const TokenSource& source, const std::string& name, const OptimizerSettings& settings);
  /// Sets `kind`. If tokens are masked, it clears the entropies, which are unknown then. Call it after
  /// describe_text.
  void describe_layer(const LayerShape& layer, bool tied);
};

/// Returns tables of step times, of utilisation and memory, and of losses, and the reasons why other schedules did not
/// run.
std::string text_of(const ModelbenchResults& results);
std::string json_of(const ModelbenchResults& results);

}  // namespace moe::modelbench
