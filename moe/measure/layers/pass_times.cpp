#include "moe/measure/layers/pass_times.h"

#include <algorithm>
#include <cmath>

#include "moe/base/statistics.h"
#include "moe/measure/layers/overlap.h"
#include "moe/record/over_ranks.h"

namespace moe::measure {
namespace {

enum PassField : size_t { kForward, kTotal, kExposed, kEfficiency, kWorking, kOverruns, kBegin, kFirstTask };

}  // namespace

void append_pass(const Plan& plan, const RunTimes& times, double dilation, PassNumbers& passes) {
  double forward = 0, total = 0;
  for (const Task& task : plan.tasks()) {
    const double end = times.tasks[static_cast<size_t>(task.id)].end_s / dilation;
    total = std::max(total, end);
    if (task.runs_in() == Phase::forward) forward = std::max(forward, end);
  }
  const Overlap overlap = overlap_of(plan, times.tasks);
  passes.insert(passes.end(),
                {forward, total, overlap.exposed_s / dilation, overlap.efficiency,
                 working_seconds(plan, times.tasks) / dilation, static_cast<double>(times.overruns), times.begin_s});
  for (const TaskTime& t : times.tasks) passes.insert(passes.end(), {t.start_s, t.end_s});
}

PassTimes read_passes(const Plan& plan, const std::vector<PassNumbers>& ranks) {
  const size_t tasks = plan.tasks().size(), size = kFirstTask + 2 * tasks;
  PassTimes all;
  for (size_t at = 0; at < ranks.front().size(); at += size) {
    const auto column = [&](PassField which) {
      std::vector<double> values;
      for (const auto& rank : ranks) values.push_back(rank.at(at + which));
      return values;
    };
    all.forward_s.push_back(column(kForward));
    all.total_s.push_back(column(kTotal));
    all.exposed_s.push_back(column(kExposed));
    all.overlap.push_back(column(kEfficiency));
    all.working_s.push_back(column(kWorking));
    all.begin_s.push_back(column(kBegin));
    for (const double overruns : column(kOverruns)) all.overruns += static_cast<int64_t>(overruns);
    RankTimes& pass = all.tasks.emplace_back();
    for (const auto& rank : ranks) {
      const double* times = rank.data() + at + kFirstTask;
      for (auto& own = pass.emplace_back(); own.size() < tasks; times += 2) own.push_back({times[0], times[1]});
    }
  }
  return all;
}

std::vector<std::vector<double>> by_pass(const std::vector<std::vector<double>>& ranks) {
  std::vector<std::vector<double>> passes(ranks.front().size());
  for (size_t pass = 0; pass < passes.size(); ++pass)
    for (const auto& rank : ranks) passes[pass].push_back(rank.at(pass));
  return passes;
}

std::vector<TaskTime> times_on(const RankTimes& ranks, size_t rank) {
  std::vector<TaskTime> times = ranks[rank];
  for (size_t task = 0; task < times.size(); ++task)
    for (size_t other = 0; other < ranks.size() && !has_time(times[task]); ++other) times[task] = ranks[other][task];
  return times;
}

RankTimes times_of_ranks(const PassTimes& passes, size_t pass, const std::vector<RankMachine>& machines) {
  const std::vector<double>& begin_s = passes.begin_s[pass];
  RankTimes all;
  for (size_t rank = 0; rank < begin_s.size(); ++rank) {
    double first_s = begin_s[rank];
    for (size_t other = 0; other < begin_s.size(); ++other)
      if (machines[other].name == machines[rank].name) first_s = std::min(first_s, begin_s[other]);
    const double later_s = begin_s[rank] - first_s;
    for (TaskTime& t : all.emplace_back(times_on(passes.tasks[pass], rank))) t.start_s += later_s, t.end_s += later_s;
  }
  return all;
}

size_t median_pass(const std::vector<std::vector<double>>& total_s) {
  const std::vector<double> totals = max_over_ranks(total_s);
  const double middle = median(totals);
  size_t nearest = 0;
  for (size_t i = 0; i < totals.size(); ++i)
    if (std::abs(totals[i] - middle) < std::abs(totals[nearest] - middle)) nearest = i;
  return nearest;
}

size_t slowest_rank(const std::vector<double>& total_s) {
  return static_cast<size_t>(std::ranges::max_element(total_s) - total_s.begin());
}

}  // namespace moe::measure
