#pragma once
// What each framework can be set to, among the schedules that were ranked.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/answer/answer.h"
#include "verbs/frameworks.h"

namespace moe::tuner {

/// What frameworks run of a layer at best.
struct FrameworkSettings {
  const RankedSchedule* row = nullptr;
  std::string names;                      // of the frameworks, each with what it lacks: "A, B (but for ...)"
  std::vector<std::string_view> formats;  // of export, of the same
};

/// Returns the frameworks that the answer is for.
std::span<const verbs::Framework> frameworks_of(const Answer& answer);

/// Returns the fastest row that each framework runs; of equally fast ones `use` comes first. Frameworks that run the
/// same are named together, those that run none of the rows or refuse the shape are left out.
std::vector<FrameworkSettings> settings_of(const Answer& answer, const RankedSchedule& use,
                                           std::span<const verbs::Framework> frameworks);

}  // namespace moe::tuner
