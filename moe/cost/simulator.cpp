#include "moe/cost/simulator.h"

#include <algorithm>
#include <array>

#include "moe/base/check.h"

namespace moe {

const Structure& checked(const Structure& structure) {
  const size_t lanes = structure.lanes.size();
  require<Unsupported>(lanes <= kMaxLanes, "replay: found {} lanes of all stages, expected at most {}", lanes,
                       kMaxLanes);
  std::vector<std::vector<int>> issued(lanes);
  for (const Task& task : structure.tasks) {
    issued.at(static_cast<size_t>(task.lane)).push_back(task.id);
    for (const int id : task.after)  // a name is put together for a message alone: searches check many plans
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
    rows_.push_back({static_cast<uint32_t>(task.work_class), static_cast<uint32_t>(dependencies_.size()),
                     static_cast<uint32_t>(task.lane)});
    for (const int id : task.after) {
      if (structure.tasks[static_cast<size_t>(id)].lane != task.lane)
        dependencies_.push_back(static_cast<uint32_t>(id));  // on its own lane the order says it already
    }
  }
  rows_.push_back({0, static_cast<uint32_t>(dependencies_.size()), 0});
}

double Replay::makespan(std::span<const double> seconds, std::vector<double>& ends) const {
  const size_t n = rows_.size() - 1;
  ends.resize(n);
  std::array<double, kMaxLanes> lane_end;  // NOLINT: the lanes that there are begin at 0, no others are read
  std::fill_n(lane_end.begin(), lanes_, 0.0);
  for (size_t i = 0; i < n; ++i) {
    const Row& row = rows_[i];
    double start = lane_end[row.lane];
    for (uint32_t d = row.first_dependency; d < rows_[i + 1].first_dependency; ++d)
      start = std::max(start, ends[dependencies_[d]]);
    ends[i] = lane_end[row.lane] = start + seconds[row.work_class];
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
    t.start_s.push_back(t.end_s[i] - seconds[rows_[i].work_class]);
    t.lane_busy_s[rows_[i].lane] += seconds[rows_[i].work_class];
  }
  return t;
}

Timeline simulate(const Structure& structure, std::span<const double> seconds) {
  return Replay(structure).timeline(seconds);
}

}  // namespace moe
