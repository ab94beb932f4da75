#include "moe/cost/simulator.h"

#include <algorithm>
#include <array>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr size_t kMaxLanes = 64;

}  // namespace

Replay::Replay(const Structure& structure) : lanes_(structure.lanes.size()) {
  require<WrongResult>(lanes_ <= kMaxLanes, "replay: {} lanes, at most {} expected", lanes_, kMaxLanes);
  std::vector<std::vector<int>> issued(lanes_);
  for (const Task& task : structure.tasks) issued.at(static_cast<size_t>(task.lane)).push_back(task.id);
  for (size_t lane = 0; lane < lanes_; ++lane)  // tasks are replayed in issue order: the queues must agree with it
    require<WrongResult>(issued[lane] == structure.lanes[lane].queue,
                         "replay: the queue of lane {} is not its tasks in issue order",
                         name_of(structure.lanes[lane].kind));
  rows_.reserve(structure.tasks.size() + 1);
  for (const Task& task : structure.tasks) {
    rows_.push_back({static_cast<uint32_t>(task.work_class), static_cast<uint32_t>(dependencies_.size()),
                     static_cast<uint32_t>(task.lane)});
    for (const int id : task.after) {
      require<WrongResult>(id < task.id, "replay: {} is issued before task {}, which it waits for", task.name(), id);
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
