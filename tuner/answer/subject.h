#pragma once
// The layer or model that `tune` answers for: its groups, micro-batches and what ranks keep, by flags, by default, or
// searched.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/frameworks.h"
#include "tuner/answer/answer.h"
#include "tuner/answer/shape_search.h"
#include "tuner/tune.h"

namespace moe::tuner {

struct Subject {
  commands::ChosenModel chosen;
  std::string name;                        // name in records: the model's, or the layer's shape
  std::vector<std::string> files;          // the files that it was read from
  std::optional<FoundShapes> shapes = {};  // result of the search; the model has the preferred shape
  /// Flags for what a model's ranks keep if the user left it open: "--zero 1", "--recompute selective". Empty if flags
  /// or a search decide it, or if the ranks' memory is unknown.
  std::vector<std::string> defaults = {};
  std::optional<UserLayout> own = {};  // the user's layout, with the model's number of samples
  TuneOptions options = {};            // the given options, completed by the user's layout
};
/// Returns the samples of a step over all replicas.
int64_t samples_of(const ModelShape& model);
/// Throws BadInput naming the flag, and Unsupported if a search finds no shape.
Subject subject_of(const TuneOptions& options, const Profile& cluster);

/// Sets what a training keeps where no flag says it, of a model on ranks of known memory: Adam's states shared out, no
/// attention scores, and of a layer its output alone if nothing more fits. Returns the flags that say the same.
std::vector<std::string> set_training_states(const TuneOptions& options, const Profile& cluster,
                                             commands::ChosenModel& chosen);

/// Returns the schedules asked for, of a framework those that it runs: exactly, or else closely. If none is named they
/// are all that the model may have. Throws BadInput where the framework runs none of them.
std::vector<const Schedule*> schedules_of(const TuneOptions& options, const commands::ChosenModel& chosen);

/// Returns the requested framework; null if none is.
const commands::Framework* framework_of(const TuneOptions& options);

/// Returns how the profile prices what it has no row for.
PricingOptions pricing_of(const TuneOptions& options);

}  // namespace moe::tuner
