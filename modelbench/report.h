#pragma once
// What `modelbench` found, as text and as JSON.
#include <optional>
#include <string>

#include "modelbench/utilisation.h"
#include "moe/train/optimizer.h"
#include "moe/train/token_source.h"
#include "verbs/run/layer_run.h"

namespace moe::modelbench {

struct ModelbenchResults {
  std::string cluster, place, model, records_path;  // place: Target's
  bool emulated = true, tasks = false, check_only = false;
  bool cut = false;               // only as many layers ran as a rank has memory for
  int layers = 1, of_layers = 1;  // that ran, of the model's
  DenseLayers dense = {};         // of those that ran
  int64_t tokens = 0;             // of a step, nominal
  std::string text = {}, optimizer = {};
  std::string kind = {};                                          // of its layers, where they are no usual decoder's
  std::optional<double> entropy_rate = {}, order_1_entropy = {};  // nats a token, of the text where it is known
  Utilisation use = {};
  verbs::LayerOutcome outcome = {};

  void describe_text(const TokenSource& source, const std::string& name, const OptimizerSettings& settings);
  /// Sets `kind`, and where tokens are masked forgets the entropies, which are not known then. Comes after
  /// describe_text.
  void describe_layer(const LayerShape& layer, bool tied);
};

/// Shows a table of step times, one of what steps use, one of losses, and why others have no row there.
std::string text_of(const ModelbenchResults& results);
std::string json_of(const ModelbenchResults& results);

}  // namespace moe::modelbench
