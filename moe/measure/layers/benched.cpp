#include "moe/measure/layers/benched.h"

#include <algorithm>
#include <utility>

#include "moe/base/statistics.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/record/pass_times.h"

namespace moe::measure {
namespace {

constexpr double kUneven = 0.01;  // limit for the share by which the median pass exceeds the fastest

void divide(std::vector<TaskTime>& times, double dilation) {
  for (TaskTime& t : times) t = {t.start_s / dilation, t.end_s / dilation};
}

}  // namespace

void set_run_times(PassTimes passes, const std::vector<RankMachine>& machines, bool lockstep, MeasuredRun& run) {
  const auto own = [](auto&... pass) { return own_seconds(pass...); };
  const double dilation = run.dilation.factor;
  run.task_s.clear();
  for (const Task& task : run.plan.tasks())
    run.task_s.push_back(median(lockstep ? seconds_by_pass(passes, task, machines, lockstep_seconds)
                                         : seconds_by_pass(passes, task, machines, own)) /
                         dilation);
  run.forward_s = std::move(passes.forward_s);
  run.total_s = std::move(passes.total_s);
  run.exposed_s = std::move(passes.exposed_s);
  run.overlap = std::move(passes.overlap);
  run.working_s = std::move(passes.working_s);
  run.overruns = passes.overruns;
  const size_t pass = median_pass(run.total_s), rank = slowest_rank(run.total_s[pass]);
  run.median_rank = static_cast<int>(rank);
  run.median_tasks = times_on(passes.tasks[pass], rank);
  run.median_ranks = times_of_ranks(passes, pass, machines);
  divide(run.median_tasks, dilation);
  for (std::vector<TaskTime>& times : run.median_ranks) divide(times, dilation);
}

std::vector<MicroOpTimes> micro_op_times(const PassTimes& passes, const std::vector<RankMachine>& machines,
                                         const MeasuredRun& run) {
  std::vector<MicroOpTimes> times(passes.tasks.size());
  double experts = 0, alltoalls = 0;
  for (const Task& task : run.plan.tasks()) {
    const bool is_expert = task.kind == TaskKind::expert;
    if (task.phase != Phase::forward ||
        !(is_expert || task.kind == TaskKind::dispatch || task.kind == TaskKind::combine))
      continue;
    (is_expert ? experts : alltoalls) += run.dilation.factor;
    for (size_t i = 0; i < times.size(); ++i)
      (is_expert ? times[i].expert_s : times[i].alltoall_s) +=
          own_seconds(task, passes.tasks[i], passes.begin_s[i], machines);
  }
  for (MicroOpTimes& pass : times) {
    if (experts > 0) pass.expert_s /= experts;
    if (alltoalls > 0) pass.alltoall_s /= alltoalls;
  }
  return times;
}

double disturbance(const MeasuredRun& run) {
  if (run.paced_tasks == 0) return run.core_slowdown;
  const std::vector<double> totals = max_over_ranks(run.total_s);
  return median(totals) / quantile(totals, 0) - 1;
}

int passes_within(double seconds, double pass_s) {
  return pass_s > 0 ? static_cast<int>(std::clamp(seconds / pass_s, double{kPasses}, double{kMaxPasses})) : kPasses;
}

double overrun_share(const MeasuredRun& run) {
  return run.paced_tasks > 0 ? static_cast<double>(run.overruns) / static_cast<double>(run.paced_tasks) : 0;
}

bool disturbed(const MeasuredRun& run) {
  if (run.paced_tasks == 0) return disturbance(run) > kSlowCores;
  return overrun_share(run) > kOverrunLimit || disturbance(run) > kUneven;
}

bool TimeLimit::exceeded(Device& device, Communicator& world_comm, Stream& stream) const {
  if (max_s_ <= 0) return false;
  double late = now_s() - begin_s_ > max_s_ ? 1 : 0;
  sum_over_ranks({&late, 1}, device, world_comm, {stream, {}, "time of passes"});
  return late > 0;
}

bool TimeLimit::exceeded(World& world) const {
  if (max_s_ <= 0) return false;
  const std::vector<double> own{now_s() - begin_s_};
  const auto all = gather(world, std::vector(world.local_ranks().size(), own));
  return std::ranges::any_of(all, [&](const auto& rank) { return rank.front() > max_s_; });
}

}  // namespace moe::measure
