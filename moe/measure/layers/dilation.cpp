#include "moe/measure/layers/dilation.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "moe/base/statistics.h"
#include "moe/cost/slowdown.h"
#include "moe/measure/layers/overlap.h"

namespace moe {
namespace {

constexpr double kShortestPassS = 0.06;    // of the case's fastest schedule: a late end is about 1 % of it
constexpr double kTaskOfPassS = 0.8e-3;    // of a pass, for each task of its longest queue
constexpr double kShortestTaskS = 0.1e-3;  // less of it, and it passes while its thread wakes up
constexpr double kWorkMargin = 4;          // a pace is at least this many times the work under it
constexpr double kRare = 1.0 / 400;        // of a plan's tasks: a kind that is no more, as a model's ends and its step
constexpr double kRareShare = 1e-3;        // of a pass: what a rare kind's work may take, whatever its pace

// What a kind's work asks for, its tasks being `share` of the plan's. Rare ones may outlast their paces where that is
// nothing beside the pass: else one short sum a step would stretch the whole model.
double factor_of(double ratio, double share, double work_s, double pass_s) {
  const double wanted = kWorkMargin * ratio;
  return share > kRare ? wanted : std::min(wanted, work_s / (kRareShare * pass_s));
}

std::string words_for(const Plan& plan, Phase phase, TaskKind kind) {
  return fmt::format("{} {} of {}", name_of(phase), name_of(kind), plan.schedule);
}

}  // namespace

Dilation least_dilation(const std::vector<PlannedRun>& planned) {
  double of_pass = 0, shortest = 1e300;
  std::string which;
  for (const PlannedRun& p : planned) {
    size_t longest = 0;
    for (const Lane& lane : p.plan.structure->lanes) longest = std::max(longest, lane.queue.size());
    const double least_s = std::max(kShortestPassS, kTaskOfPassS * static_cast<double>(longest));
    of_pass = std::max(of_pass, least_s / (p.forward_s + p.backward_s));
    for (const Task& task : p.plan.tasks()) {
      const double seconds = p.task_seconds[static_cast<size_t>(task.id)];
      if (seconds <= 0 || seconds >= shortest) continue;
      shortest = seconds;
      which = words_for(p.plan, task.phase, task.kind);
    }
  }
  const double of_task = kShortestTaskS / shortest;
  if (of_pass >= of_task) return {of_pass, "the shortest pass"};
  return {of_task, "the shortest task, " + which};
}

Dilation choose_dilation(const std::vector<PlannedRun>& planned, const std::vector<std::vector<RankTimes>>& unpaced) {
  Dilation chosen = least_dilation(planned);
  for (size_t s = 0; s < planned.size(); ++s) {
    std::map<std::pair<Phase, TaskKind>, std::vector<double>> ratios;
    std::map<std::pair<Phase, TaskKind>, double> seconds;  // modelled, of all tasks
    for (const Task& task : planned[s].plan.tasks()) {
      const double modelled = planned[s].task_seconds[static_cast<size_t>(task.id)];
      if (modelled <= 0) continue;
      seconds[{task.phase, task.kind}] += modelled;
      for (const RankTimes& pass : unpaced[s])
        ratios[{task.phase, task.kind}].push_back(own_seconds(task, pass) / modelled);
    }
    const auto measured = static_cast<double>(planned[s].plan.tasks().size() * unpaced[s].size());
    const double pass_s = planned[s].forward_s + planned[s].backward_s;
    for (auto& [of, values] : ratios) {
      const double share = static_cast<double>(values.size()) / measured, ratio = median(std::move(values));
      const double factor = factor_of(ratio, share, ratio * seconds[of], pass_s);
      if (factor > chosen.factor) chosen = {factor, "the work of " + words_for(planned[s].plan, of.first, of.second)};
    }
  }
  return chosen;
}

std::unique_ptr<Pacer> make_pacer(const PlannedRun& run, int ranks, const Dilation& dilation) {
  if (!run.slowdown) return nullptr;
  Pacer::Stall stall;
  if (run.stall) stall = [of = run.stall, dilation](int slowed, int by) { return dilation.factor * of(slowed, by); };
  return std::make_unique<Pacer>(ranks, kResources, run.slowdown, stall);
}

}  // namespace moe
