#pragma once
// Layers tuned only on printed numbers and, if requested, on assumptions.
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "commands/reproduce/assume.h"
#include "commands/shared/sweep.h"
#include "moe/search/model_search.h"

namespace moe::reproduce {

/// Printed numbers and, if requested, assumptions. The names of missing rows are added to `missing`.
struct PrintedPrices {
  const Profile& profile;
  const Assumptions* assumed = nullptr;
  std::set<std::string>& missing;
};

/// Returns one layer under one schedule; none if the profile lacks a row that it needs, or if a row was derived that
/// the assumptions do not allow to derive.
std::optional<LayerResult> tuned_from_print(LayerSearch& search, std::string_view schedule, const PrintedPrices& print,
                                            const LayerCase& shape);

/// Returns the seconds of a whole model's training step by its plan's replay, with the gradients spread exactly; none
/// if tuned_from_print would return none.
std::optional<double> step_from_print(ModelSearch& search, std::string_view schedule, const PrintedPrices& print,
                                      const ModelShape& model);

/// Returns the decided layer's seconds, forward and backward, as if tasks for which `counted` is false took no time,
/// for papers that leave out tasks or look only at some.
double seconds_counting(const std::function<bool(const Task&)>& counted, const Schedule& schedule,
                        const LayerPricer& pricer, Decision decision);
double seconds_without(const std::vector<TaskKind>& kinds, std::string_view schedule, const Profile& profile,
                       const LayerCase& shape, const LayerResult& tuned);

}  // namespace moe::reproduce
