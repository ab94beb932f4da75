#include "moe/simulator/simulator.h"

#include <algorithm>
#include <array>
#include <limits>

#include "moe/base/check.h"

namespace moe {

const Structure& checked(const Structure& structure) {
  const size_t lanes = structure.lanes.size();
  require<Unsupported>(lanes <= kMaxLanes, "replay: found {} lanes of all stages, expected at most {}", lanes,
                       kMaxLanes);
  std::vector<std::vector<int>> issued(lanes);
  for (const Task& task : structure.tasks) {
    issued.at(task.lane).push_back(task.id);
    for (const int id : task.after)  // names are built only for messages, because searches check many plans
      if (id >= task.id)
        throw WrongResult(fmt::format("replay: {} is issued before task {}, which it waits for", task.name(), id));
  }
  for (size_t lane = 0; lane < lanes; ++lane)
    require<WrongResult>(issued[lane] == structure.lanes[lane].queue,
                         "replay: the queue of lane {} is not its tasks in issue order",
                         name_of(structure.lanes[lane].kind));
  return structure;
}

Replay::Replay(const Structure& structure) : lanes_(checked(structure).lanes.size()) {
  rows_.reserve(structure.tasks.size() + 1);
  for (const Task& task : structure.tasks) {
    rows_.push_back({static_cast<uint32_t>(dependencies_.size()), static_cast<uint32_t>(task.lane)});
    for (const int id : cross_lane_dependencies(structure, task)) dependencies_.push_back(static_cast<uint32_t>(id));
  }
  rows_.push_back({static_cast<uint32_t>(dependencies_.size()), 0});
}

double Replay::makespan(std::span<const double> seconds, std::vector<double>& ends) const {
  const size_t n = rows_.size() - 1;
  ends.resize(n);
  std::array<double, kMaxLanes> lane_end;  // NOLINT: the first lanes_ are set to 0 below, no others are read
  std::fill_n(lane_end.begin(), lanes_, 0.0);
  for (size_t i = 0; i < n; ++i) {
    const Row& row = rows_[i];
    double start = lane_end[row.lane];
    for (uint32_t d = row.first_dependency; d < rows_[i + 1].first_dependency; ++d)
      start = std::max(start, ends[dependencies_[d]]);
    ends[i] = lane_end[row.lane] = start + seconds[i];
  }
  double makespan = 0;
  for (size_t lane = 0; lane < lanes_; ++lane) makespan = std::max(makespan, lane_end[lane]);
  return makespan;
}

Timeline Replay::timeline(std::span<const double> seconds) const {
  Timeline t;
  t.makespan_s = makespan(seconds, t.end_s);
  t.lane_busy_s.resize(lanes_);
  for (size_t i = 0; i < t.end_s.size(); ++i) {
    t.start_s.push_back(t.end_s[i] - seconds[i]);
    t.lane_busy_s[rows_[i].lane] += seconds[i];
  }
  return t;
}

Timeline simulate(const Structure& structure, std::span<const double> seconds) {
  return Replay(structure).timeline(seconds);
}

std::vector<double> starts_of(const Structure& structure, std::span<const double> end_s) {
  std::vector<double> start_s(end_s.size()), lane_end_s(structure.lanes.size());
  for (const Task& task : structure.tasks) {
    double& start = start_s[task.id] = lane_end_s[task.lane];
    for (const int id : task.after) start = std::max(start, end_s[id]);
    lane_end_s[task.lane] = end_s[task.id];
  }
  return start_s;
}

double moe_seconds(const Structure& structure, std::span<const double> end_s, Phase phase) {
  const std::vector<double> start_s = starts_of(structure, end_s);
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (const Task& task : structure.tasks) {
    if (task.phase != phase || task.is_recompute || !is_chunked(task.kind)) continue;
    begin = std::min(begin, start_s[task.id]);
    end = std::max(end, end_s[task.id]);
  }
  return std::max(0.0, end - begin);
}

CriticalPath critical_path(const Structure& structure, std::span<const double> start_s, std::span<const double> end_s) {
  const size_t n = structure.tasks.size();
  CriticalPath path{std::vector<bool>(n), std::vector<double>(n)};
  if (n == 0) return path;
  std::vector<int> before(n, -1);  // for each task, its predecessor on its lane
  for (const Lane& lane : structure.lanes)
    for (size_t i = 1; i < lane.queue.size(); ++i) before[lane.queue[i]] = lane.queue[i - 1];
  const auto waited_for = [&](size_t id, auto&& visit) {
    for (const int other : structure.tasks[id].after) visit(static_cast<size_t>(other));
    if (before[id] >= 0) visit(static_cast<size_t>(before[id]));
  };

  const auto last = std::ranges::max_element(end_s);
  std::vector<double> latest(n, *last);  // latest ends that do not lengthen the run
  for (size_t id = n; id-- > 0;) {       // reverse issue order
    double ready_s = -std::numeric_limits<double>::infinity();
    waited_for(id, [&](size_t other) { ready_s = std::max(ready_s, end_s[other]); });
    const double latest_ready = latest[id] - (end_s[id] - std::min(ready_s, start_s[id]));
    waited_for(id, [&](size_t other) { latest[other] = std::min(latest[other], latest_ready); });
  }
  for (size_t id = 0; id < n; ++id) path.slack_s[id] = std::max(0.0, latest[id] - end_s[id]);

  size_t at = static_cast<size_t>(last - end_s.begin());
  for (bool further = true; further;) {
    path.on_path[at] = true;
    size_t next = at;
    waited_for(at, [&](size_t other) {
      if (next == at || end_s[other] > end_s[next]) next = other;
    });
    further = next != at;
    at = next;
  }
  return path;
}

}  // namespace moe
