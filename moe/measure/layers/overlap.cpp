#include "moe/measure/layers/overlap.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "moe/base/statistics.h"
#include "moe/record/pass_times.h"

namespace moe::measure {
namespace {

bool communicates(LaneKind kind) {
  switch (kind) {
    case LaneKind::compute:
    case LaneKind::copy:
    case LaneKind::host:
    case LaneKind::host_link:
      return false;
    default:
      return true;
  }
}

double exposed_seconds(const Plan& plan, std::span<const TaskTime> times) {
  struct Edge {
    double at_s;
    int communicating, computing;  // +1: such a task begins, -1: it ends
  };
  std::vector<Edge> edges;
  for (const Task& task : plan.tasks()) {
    const LaneKind lane = plan.structure->lanes[task.lane].kind;
    const int communicating = communicates(lane), computing = lane == LaneKind::compute;
    const TaskTime& t = times[task.id];
    edges.push_back({t.start_s, communicating, computing});
    edges.push_back({t.end_s, -communicating, -computing});
  }
  std::ranges::sort(edges, {}, &Edge::at_s);
  double exposed = 0, last = 0;
  int communicating = 0, computing = 0;
  for (const Edge& edge : edges) {
    if (communicating > 0 && computing == 0) exposed += edge.at_s - last;
    communicating += edge.communicating;
    computing += edge.computing;
    last = edge.at_s;
  }
  return exposed;
}

// The times of a task on the ranks of one machine, by the machine's clock.
struct MachineTimes {
  int ranks_at_once = 1;
  std::vector<TaskTime> ranks;
};

std::vector<MachineTimes> times_on_machines(const Task& task, const RankTimes& ranks,
                                            const std::vector<double>& begin_s,
                                            const std::vector<RankMachine>& machines) {
  std::map<std::string_view, MachineTimes> by_name;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const TaskTime& t = ranks[rank][task.id];
    if (!has_time(t)) continue;
    MachineTimes& machine = by_name[machines[rank].name];
    machine.ranks_at_once = machines[rank].ranks_at_once;
    machine.ranks.push_back({begin_s[rank] + t.start_s, begin_s[rank] + t.end_s});
  }
  std::vector<MachineTimes> all;
  for (auto& [name, machine] : by_name) all.push_back(std::move(machine));
  return all;
}

double seconds_from_last_start(const std::vector<TaskTime>& ranks) {
  const double start = std::ranges::max_element(ranks, {}, &TaskTime::start_s)->start_s;
  return std::ranges::max_element(ranks, {}, &TaskTime::end_s)->end_s - start;
}

double computing_seconds(const MachineTimes& machine) {
  const auto ranks = static_cast<int>(machine.ranks.size());
  if (ranks <= machine.ranks_at_once) {
    double slowest = 0;
    for (const TaskTime& t : machine.ranks) slowest = std::max(slowest, t.end_s - t.start_s);
    return slowest;
  }
  std::vector<std::pair<double, int>> edges;
  for (const TaskTime& t : machine.ranks) edges.insert(edges.end(), {{t.start_s, 1}, {t.end_s, -1}});
  std::ranges::sort(edges);
  double rank_seconds = 0, last = 0;
  int running = 0;
  for (const auto& [at, change] : edges) {
    rank_seconds += std::min(running, machine.ranks_at_once) * (at - last);
    running += change;
    last = at;
  }
  return rank_seconds / machine.ranks_at_once;
}

}  // namespace

bool is_farther_from_1(double a, double b) { return b == 0 || std::abs(std::log(a)) > std::abs(std::log(b)); }

Overlap overlap_of(const Plan& plan, std::span<const TaskTime> times) {
  std::vector<double> busy(plan.structure->lanes.size());
  double begin = 1e300, end = 0, sum = 0;
  for (const Task& task : plan.tasks()) {
    const TaskTime& t = times[task.id];
    if (!has_time(t)) continue;
    busy[task.lane] += t.end_s - t.start_s;
    begin = std::min(begin, t.start_s);
    end = std::max(end, t.end_s);
  }
  for (const double lane : busy) sum += lane;
  Overlap overlap{exposed_seconds(plan, times), 1};
  const double could = sum - *std::ranges::max_element(busy);
  if (could > 0) overlap.efficiency = std::clamp((sum - (end - begin)) / could, 0.0, 1.0);
  return overlap;
}

double working_seconds(const Plan& plan, std::span<const TaskTime> times) {
  std::vector<TaskTime> works;
  for (const Task& task : plan.tasks())
    if (task.kind != TaskKind::send && task.kind != TaskKind::recv && task.kind != TaskKind::norm)
      works.push_back(times[task.id]);
  std::ranges::sort(works, {}, &TaskTime::start_s);
  double seconds = 0, until = 0;
  for (const TaskTime& t : works) {
    seconds += std::max(0.0, t.end_s - std::max(t.start_s, until));
    until = std::max(until, t.end_s);
  }
  return seconds;
}

double bubble_of(const Plan& plan, std::span<const TaskTime> times) {
  const std::vector<Lane>& lanes = plan.structure->lanes;
  const int stages = std::ranges::max_element(lanes, {}, &Lane::stage)->stage + 1;
  double working = 0, end = 0;
  for (const TaskTime& t : times) end = std::max(end, t.end_s);
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<TaskTime> own(times.begin(), times.end());
    for (const Task& task : plan.tasks())
      if (lanes[task.lane].stage != stage) own[task.id] = {};
    working += working_seconds(plan, own);
  }
  return end > 0 ? 1 - working / (stages * end) : 0;
}

double own_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                   const std::vector<RankMachine>& machines) {
  const std::vector<MachineTimes> by_machine = times_on_machines(task, ranks, begin_s, machines);
  double most = 0, least = 1e300;
  for (const MachineTimes& machine : by_machine) {
    most = std::max(most, computing_seconds(machine));
    for (const TaskTime& t : machine.ranks) least = std::min(least, t.end_s - t.start_s);
  }
  return by_machine.empty() ? 0 : task.group == GroupKind::none ? most : least;
}

double own_seconds(const Task& task, const RankTimes& ranks) {
  return own_seconds(task, ranks, std::vector<double>(ranks.size()), one_machine_per_rank(ranks.size()));
}

double lockstep_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                        const std::vector<RankMachine>& machines) {
  if (task.group == GroupKind::none) return own_seconds(task, ranks, begin_s, machines);
  std::vector<double> seconds;
  for (const MachineTimes& machine : times_on_machines(task, ranks, begin_s, machines))
    seconds.push_back(seconds_from_last_start(machine.ranks));
  return seconds.empty() ? 0 : *std::ranges::min_element(seconds);
}

std::vector<TaskComparison> compare_tasks(const Plan& plan, std::span<const double> measured,
                                          std::span<const double> predicted) {
  std::vector<TaskComparison> rows;
  std::vector<std::vector<double>> ratios;
  for (const Task& task : plan.tasks()) {
    const auto same = [&](const TaskComparison& row) { return row.kind == task.kind && row.phase == task.phase; };
    auto row = std::ranges::find_if(rows, same);
    if (row == rows.end()) {
      row = rows.insert(rows.end(), TaskComparison());
      row->kind = task.kind;
      row->phase = task.phase;
      ratios.emplace_back();
    }
    ++row->tasks;
    row->measured_s += measured[task.id];
    row->predicted_s += predicted[task.id];
    if (predicted[task.id] <= 0) continue;
    const double ratio = measured[task.id] / predicted[task.id];
    ratios[row - rows.begin()].push_back(ratio);
    if (is_farther_from_1(ratio, row->worst_ratio)) row->worst_ratio = ratio, row->worst_task = task.name();
  }
  for (size_t i = 0; i < rows.size(); ++i)
    if (!ratios[i].empty()) rows[i].median_ratio = median(ratios[i]);
  return rows;
}

namespace {

enum PassField : size_t { kForward, kTotal, kExposed, kEfficiency, kWorking, kOverruns, kBegin, kFirstTask };

}  // namespace

void append_pass(const Plan& plan, const RunTimes& times, double dilation, PackedPassTimes& passes) {
  double forward = 0, total = 0;
  for (const Task& task : plan.tasks()) {
    const double end = times.tasks[task.id].end_s / dilation;
    total = std::max(total, end);
    if (task.execution_phase() == Phase::forward) forward = std::max(forward, end);
  }
  const Overlap overlap = overlap_of(plan, times.tasks);
  passes.insert(passes.end(),
                {forward, total, overlap.exposed_s / dilation, overlap.efficiency,
                 working_seconds(plan, times.tasks) / dilation, static_cast<double>(times.overruns), times.begin_s});
  for (const TaskTime& t : times.tasks) passes.insert(passes.end(), {t.start_s, t.end_s});
}

PassTimes read_passes(const Plan& plan, const std::vector<PackedPassTimes>& ranks) {
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
