#include "moe/measure/layers/dilation.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>

#include "moe/base/statistics.h"
#include "moe/cost/slowdown.h"
#include "moe/measure/layers/overlap.h"

namespace moe::measure {
namespace {

constexpr double kShortestPassS = 0.06;    // of the case's fastest schedule: a late end is about 1 % of it
constexpr double kTaskOfPassS = 0.8e-3;    // of a pass, for each task of its longest queue
constexpr double kShortestTaskS = 0.1e-3;  // less of it, and it passes while its thread wakes up
constexpr double kWorkMargin = 4;          // a pace is at least this many times the work under it
constexpr double kRare = 1.0 / 400;        // of a plan's tasks: a kind that is no more, as a model's ends; or a step's
constexpr double kRareShare = 1e-3;  // of a pass: what a rare kind's work may take, whatever its pace, or all waking

// Returns the dilation that a kind's work asks for. Rare ones may outlast their paces where that is nothing beside the
// pass: else one short sum a step would stretch the whole model.
double factor_of(double ratio, bool rare, double work_s, double pass_s) {
  const double wanted = kWorkMargin * ratio;
  return rare ? std::min(wanted, work_s / (kRareShare * pass_s)) : wanted;
}

std::string words_for(const Plan& plan, Phase phase, TaskKind kind) {
  return fmt::format("{} {} of {}", name_of(phase), name_of(kind), plan.schedule);
}

double of_pass(const PlannedRun& run) {
  size_t longest = 0;
  for (const Lane& lane : run.plan.structure->lanes) longest = std::max(longest, lane.queue.size());
  const double least_s = std::max(kShortestPassS, kTaskOfPassS * static_cast<double>(longest));
  return least_s / (run.forward_s + run.backward_s);
}

// Returns the least dilation that makes all tasks long enough but some of the shortest, whose threads wake up in next
// to nothing of a pass.
Dilation of_tasks(const PlannedRun& run) {
  std::vector<std::pair<double, const Task*>> tasks;
  for (const Task& task : run.plan.tasks())
    if (const double seconds = run.task_seconds[static_cast<size_t>(task.id)]; seconds > 0)
      tasks.emplace_back(seconds, &task);
  std::ranges::stable_sort(tasks, {}, [](const auto& timed) { return timed.first; });
  const double waking = kShortestTaskS / (kRareShare * (run.forward_s + run.backward_s));  // of each that is shorter
  Dilation least{std::numeric_limits<double>::max(), {}};
  double shorter = 0;
  for (const auto& [seconds, task] : tasks) {
    const double factor = std::max(kShortestTaskS / seconds, shorter++ * waking);
    if (factor >= least.factor) continue;
    least = {factor, "the shortest tasks, up to " + words_for(run.plan, task->phase, task->kind)};
  }
  return tasks.empty() ? Dilation{0, {}} : least;
}

}  // namespace

Dilation least_dilation(const std::vector<PlannedRun>& planned) {
  Dilation least{0, "the shortest pass"};
  for (const PlannedRun& run : planned) {
    if (const Dilation tasks = of_tasks(run); tasks.factor > least.factor) least = tasks;
    if (const double pass = of_pass(run); pass > least.factor) least = {pass, "the shortest pass"};
  }
  return least;
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
      const bool rare = share <= kRare || of.first == Phase::step;
      const double factor = factor_of(ratio, rare, ratio * seconds[of], pass_s);
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

}  // namespace moe::measure
