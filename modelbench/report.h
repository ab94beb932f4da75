#pragma once
// What `modelbench` found, as text and as JSON.
#include <optional>
#include <string>

#include "commands/shared/run/layer_run.h"
#include "moe/prices/profile.h"
#include "moe/shape/volumes.h"
#include "moe/train/optimizer.h"
#include "moe/train/token_source.h"

namespace moe::modelbench {

/// How much of its ranks' computing power a step of training uses, and of their memory.
struct Utilisation {
  double step_flops = 0;             // volumes.h
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
void add_utilisation(const Utilisation& use, commands::LayerOutcome& outcome);

/// Returns a table of what a step uses, and of what peak and memory. `process_bytes`: the most memory that this process
/// had.
std::string utilisation_text(const Utilisation& use, const commands::LayerOutcome& outcome, double process_bytes);

/// Returns the most resident memory that this process has had so far.
double most_process_bytes();

struct ModelbenchResults {
  std::string cluster, place, model, records_path;  // place: Target's
  bool emulated = true, tasks = false, check_only = false;
  bool cut = false;               // only as many layers ran as a rank has memory for
  int layers = 1, of_layers = 1;  // layers that ran, and layers of the model
  DenseLayers dense = {};         // of those that ran
  int64_t tokens = 0;             // of a step, nominal
  int experts = 1;                // a device, nominal, where none are packed
  std::string text = {}, optimizer = {};
  std::string kind = {};                                          // of its layers, where they are no usual decoder's
  std::optional<double> entropy_rate = {}, order_1_entropy = {};  // nats a token, of the text where it is known
  Utilisation use = {};
  commands::LayerOutcome outcome = {};

  void describe_text(const TokenSource& source, const std::string& name, const OptimizerSettings& settings);
  /// Sets `kind`, and where tokens are masked forgets the entropies, which are not known then. Comes after
  /// describe_text.
  void describe_layer(const LayerShape& layer, bool tied);
};

/// Shows a table of step times, one of what steps use, one of losses, and why others have no row there.
std::string text_of(const ModelbenchResults& results);
std::string json_of(const ModelbenchResults& results);

}  // namespace moe::modelbench
