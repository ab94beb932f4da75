#pragma once
// Layers tuned on what a paper prints and, where asked for, on what is assumed: never on more.
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "commands/reproduce/assume.h"
#include "commands/shared/sweep.h"
#include "moe/search/model_search.h"

namespace moe::reproduce {

/// What a paper prints and, where asked for, what is assumed; `missing` gains the names of missing rows.
struct Print {
  const Profile& profile;
  const Assumptions* assumed = nullptr;
  std::set<std::string>& missing;
};

/// Returns one layer under one schedule, or nothing where the profile lacks a row that it needs, or has it derived
/// without the assumptions allowing that.
std::optional<LayerResult> tuned_from_print(LayerSearch& search, std::string_view schedule, const Print& print,
                                            const LayerCase& shape);

/// Returns the seconds of a whole model's training step, by its plan's replay, with the gradients spread exactly;
/// nothing where tuned_from_print would return nothing.
std::optional<double> step_from_print(ModelSearch& search, std::string_view schedule, const Print& print,
                                      const ModelShape& model);

/// Returns the decided layer's seconds, forward and backward, as if classes that `counted` refuses took no time: what
/// a paper leaves out of its own, or looks at alone.
double seconds_counting(const std::function<bool(const Task&)>& counted, const Schedule& schedule,
                        const LayerPricer& pricer, Decision decision);
double seconds_without(const std::vector<TaskKind>& kinds, std::string_view schedule, const Profile& profile,
                       const LayerCase& shape, const LayerResult& tuned);

}  // namespace moe::reproduce
