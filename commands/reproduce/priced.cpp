#include "commands/reproduce/priced.h"

#include <algorithm>
#include <array>

#include "moe/base/check.h"
#include "moe/base/registry.h"
#include "moe/search/layer_search.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::reproduce {
namespace {

struct Derivation {
  std::string_view op, subject, name;  // the row's name in an assumption file, in the pricer's note, and in text
};
constexpr std::array<Derivation, 2> kDerivations{
    {{"allreduce", "intra allreduce", "AllReduce inside a node"},
     {"a2a-ep-esp", "alltoall over EP and ESP", "AlltoAll over EP and ESP"}}};

bool all_allowed(const PriceNotes& notes, const PrintedPrices& print) {
  bool allowed = true;
  for (const PriceNote& note : notes)
    for (const Derivation& d : kDerivations) {
      const bool is_derived = note.kind == PriceNote::Kind::derived && note.subject == d.subject;
      if (!is_derived || (print.assumed != nullptr && print.assumed->derives(d.op))) continue;
      print.missing.emplace(d.name);
      allowed = false;
    }
  return allowed;
}

// Finds every missing row by borrowing the nearest row for each.
template <class Tune>
void name_missing(const PrintedPrices& print, const LayerCase& shape, const Tune& tune, const Unpriced& error) {
  std::set<std::string> names;
  try {
    const LayerPricer pricer(print.profile, shape, {.nearest = true});
    tune(pricer);
    for (const PriceNote& note : pricer.notes())
      if (note.kind == PriceNote::Kind::nearest) names.insert(fmt::format("{}, {}", print.profile.name, note.subject));
  } catch (const Unpriced&) {
  }
  if (names.empty()) names.insert(error.what());
  print.missing.merge(names);
}

// Returns the result of `tune` with a pricer of its own, so that only its own missing rows are noted.
template <class Tune>
auto from_print(const PrintedPrices& print, const LayerCase& shape, const Tune& tune)
    -> std::optional<decltype(tune(std::declval<const LayerPricer&>()))> {
  try {
    const LayerPricer pricer(print.profile, shape);
    auto result = tune(pricer);
    if (!all_allowed(pricer.notes(), print)) return std::nullopt;
    return result;
  } catch (const Unpriced& error) {
    name_missing(print, shape, tune, error);
  }
  return std::nullopt;
}

}  // namespace

std::optional<LayerResult> tuned_from_print(LayerSearch& search, std::string_view schedule, const PrintedPrices& print,
                                            const LayerCase& shape) {
  const Schedule& chosen = find_schedule(schedule);
  return from_print(print, shape, [&](const LayerPricer& pricer) { return search.tune(chosen, pricer); });
}

std::optional<double> step_from_print(ModelSearch& search, std::string_view schedule, const PrintedPrices& print,
                                      const ModelShape& model) {
  const Schedule& chosen = find_schedule(schedule);
  return from_print(print, model.shape,
                    [&](const LayerPricer& pricer) { return search.tune(chosen, pricer, model).total_s(); });
}

double seconds_counting(const std::function<bool(const Task&)>& counted, const Schedule& schedule,
                        const LayerPricer& pricer, Decision decision) {
  const Schedule& chosen = decision.variant != nullptr ? *decision.variant : schedule;
  decision.variant = nullptr;
  const Plan plan = build_plan(chosen, pricer.shape(), decision);
  std::vector<double> seconds = price(pricer, plan);
  for (size_t i = 0; i < seconds.size(); ++i)
    if (!counted(plan.structure->tasks[i])) seconds[i] = 0;
  return timeline_of(plan, seconds, pricer.profile().contention).makespan_s;
}

double seconds_without(const std::vector<TaskKind>& kinds, std::string_view schedule, const Profile& profile,
                       const LayerCase& shape, const LayerResult& tuned) {
  const auto counted = [&](const Task& task) { return std::ranges::find(kinds, task.kind) == kinds.end(); };
  return seconds_counting(counted, find_schedule(schedule), LayerPricer(profile, shape), tuned.decision);
}

}  // namespace moe::reproduce
