#include "tuner/answer/framework_settings.h"

#include <algorithm>
#include <fmt/format.h>

namespace moe::tuner {
namespace {

bool ran_faster(const Answer& answer, const RankedSchedule& row, const RankedSchedule& than) {
  const CaseRecord *own = trial_of(answer, row.schedule->name), *other = trial_of(answer, than.schedule->name);
  return own != nullptr && other != nullptr && ran_well(*own) && ran_well(*other) && run_s(*own) < run_s(*other);
}

}  // namespace

std::span<const verbs::Framework> frameworks_of(const Answer& answer) {
  return answer.framework == nullptr ? verbs::frameworks() : std::span(answer.framework, 1);
}

std::vector<FrameworkSettings> settings_of(const Answer& answer, const RankedSchedule& use,
                                           std::span<const verbs::Framework> frameworks) {
  const auto fastest = [&](std::span<const std::string_view> names) {
    const RankedSchedule* best = nullptr;
    for (const auto* rows : {&answer.ranking, &answer.of_frameworks})
      for (const RankedSchedule& row : *rows) {
        if (!row.refused.empty() || std::ranges::find(names, row.schedule->name) == names.end()) continue;
        const bool tie = best != nullptr && same_time(row.total_s(), best->total_s());
        if (best == nullptr || (tie ? &row == &use || ran_faster(answer, row, *best) : row.total_s() < best->total_s()))
          best = &row;
      }
    return best;
  };
  std::vector<FrameworkSettings> settings;
  for (const verbs::Framework& framework : frameworks) {
    if (framework.runs_all() || !verbs::refusals_of(framework, answer.chosen->model).empty()) continue;
    const RankedSchedule* exact = fastest(framework.exact);
    const RankedSchedule* row = exact != nullptr ? exact : fastest(framework.close);
    if (row == nullptr) continue;
    const std::string name =
        exact != nullptr ? std::string(framework.name) : fmt::format("{} (but for {})", framework.name, framework.but);
    auto known = std::ranges::find(settings, row, &FrameworkSettings::row);
    if (known == settings.end()) {
      known = settings.insert(known, {row, name, {}});
    } else {
      known->names += fmt::format(", {}", name);
    }
    if (framework.is_exported) known->formats.push_back(framework.key);
  }
  return settings;
}

}  // namespace moe::tuner
