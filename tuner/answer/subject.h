#pragma once
// The layer or model that `tune` answers for. Flags, defaults or a search decide its groups, its micro-batches and the
// states that ranks keep.
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
  std::vector<std::string> files;          // the files that describe it
  std::optional<FoundShapes> shapes = {};  // result of the search; the model has the preferred shape
  /// Flags of the states that ranks keep by default: "--zero 1", "--recompute selective". Empty if the user's flags or
  /// a search decide them, or if the ranks' memory is unknown.
  std::vector<std::string> defaults = {};
  std::optional<UserLayout> own = {};  // the user's layout, with the model's number of samples
  TuneOptions options = {};            // the given options, completed by the user's layout
};
/// Returns the number of samples of a step over all replicas.
int64_t samples_of(const ModelShape& model);
/// Returns the subject that the options describe. Throws BadInput, with the flag's name, for values that do not suit
/// it, and Unsupported if a search finds no shape.
Subject subject_of(const TuneOptions& options, const Profile& cluster);

/// For a model on ranks of known memory, sets the states that ranks keep and that no flag decides: Adam's states are
/// sharded (ZeRO 1), attention scores are recomputed, and whole layers are recomputed if the model does not fit
/// otherwise. Returns the flags with the same effect.
std::vector<std::string> set_training_states(const TuneOptions& options, const Profile& cluster,
                                             commands::ChosenModel& chosen);

/// Returns the requested schedules, by default all that the model can have. With a framework, only those that it runs
/// exactly or, if there are none, those that it runs closely. Throws BadInput if the framework runs none of them.
std::vector<const Schedule*> schedules_of(const TuneOptions& options, const commands::ChosenModel& chosen);

/// Returns the requested framework; null if none is.
const commands::Framework* framework_of(const TuneOptions& options);

/// Returns the rules for prices of operations that have no row in the profile.
PricingOptions pricing_of(const TuneOptions& options);

}  // namespace moe::tuner
