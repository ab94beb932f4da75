#include "moe/cost/fluid_replay.h"

#include <algorithm>
#include <limits>
#include <map>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Queues are the tasks in issue order, and a task waits only for earlier ones: then no order can deadlock.
void check_order(const Structure& structure) {
  std::vector<std::vector<int>> issued(structure.lanes.size());
  for (const Task& task : structure.tasks) {
    issued.at(static_cast<size_t>(task.lane)).push_back(task.id);
    for (const int id : task.after)
      require<WrongResult>(id < task.id, "replay: {} is issued before task {}, which it waits for", task.name(), id);
  }
  for (size_t lane = 0; lane < issued.size(); ++lane)
    require<WrongResult>(issued[lane] == structure.lanes[lane].queue,
                         "replay: the queue of lane {} is not its tasks in issue order",
                         name_of(structure.lanes[lane].kind));
}

}  // namespace

FluidReplay::FluidReplay(const Structure& structure, const GroupNetworks& networks, const Contention& contention)
    : slowdown_(contention) {
  const size_t lanes = structure.lanes.size();
  require<WrongResult>(lanes <= kMaxLanes, "replay: {} lanes, at most {} expected", lanes, kMaxLanes);
  check_order(structure);
  place_.resize(structure.tasks.size());
  for (const Lane& lane : structure.lanes)
    for (size_t i = 0; i < lane.queue.size(); ++i)
      place_[static_cast<size_t>(lane.queue[i])] = static_cast<uint32_t>(i);
  std::map<int, uint32_t> stages;  // numbered
  for (size_t lane = 0; lane < lanes; ++lane) {
    const auto number = static_cast<uint32_t>(stages.size());
    lanes_.push_back({0, 0, stages.try_emplace(structure.lanes[lane].stage, number).first->second});
    add_lane(structure, lane, networks);
  }
  rows_.push_back({0, 0, static_cast<uint32_t>(dependencies_.size()), Resource::none});
  compile_slowdowns();
}

void FluidReplay::add_lane(const Structure& structure, size_t lane, const GroupNetworks& networks) {
  lanes_[lane].first = static_cast<uint32_t>(rows_.size());
  for (const int id : structure.lanes[lane].queue) {
    const Task& task = structure.tasks[static_cast<size_t>(id)];
    rows_.push_back({static_cast<uint32_t>(id), static_cast<uint32_t>(task.work_class),
                     static_cast<uint32_t>(dependencies_.size()), resource_of(task, structure.lanes[lane], networks)});
    add_dependencies(structure, task);
  }
  lanes_[lane].end = static_cast<uint32_t>(rows_.size());
}

// A lane is a FIFO: of the tasks on one lane that a task waits for, the last is enough, and its own lane none at all.
void FluidReplay::add_dependencies(const Structure& structure, const Task& task) {
  std::array<uint32_t, kMaxLanes> count{};
  for (const int id : task.after) {
    const auto lane = static_cast<size_t>(structure.tasks[static_cast<size_t>(id)].lane);
    count[lane] = std::max(count[lane], place_[static_cast<size_t>(id)] + 1);
  }
  for (size_t lane = 0; lane < structure.lanes.size(); ++lane)
    if (count[lane] > 0 && static_cast<int>(lane) != task.lane)
      dependencies_.push_back({static_cast<uint32_t>(lane), count[lane]});
}

// One row for every way in which a stage's resources can be busy, so that a replay only looks up: of each resource, as
// many tasks at once as the stage has lanes that ever use it.
void FluidReplay::compile_slowdowns() {
  std::vector<std::array<uint32_t, kSlowed>> users(lanes_.size());  // by stage
  for (const LaneRows& lane : lanes_) {
    std::array<bool, kResources> used{};
    for (uint32_t row = lane.first; row < lane.end; ++row) used[static_cast<size_t>(rows_[row].resource)] = true;
    for (size_t r = 0; r < kSlowed; ++r) users[lane.stage][r] += used[r];
  }
  std::array<uint32_t, kSlowed> most{};
  for (const auto& of_stage : users)
    for (size_t r = 0; r < kSlowed; ++r) most[r] = std::max(most[r], of_stage[r]);
  uint32_t states = 1;
  for (size_t r = 0; r < kSlowed; ++r) {
    step_[r] = states;
    states *= most[r] + 1;
  }
  slowdowns_.resize(states);
  for (uint32_t state = 0; state < states; ++state) {
    std::array<int, kSlowed> running{};
    for (size_t r = 0; r < kSlowed; ++r) running[r] = static_cast<int>(state / step_[r] % (most[r] + 1));
    for (int slowed = 0; slowed < kResources; ++slowed)
      slowdowns_[state][static_cast<size_t>(slowed)] = slowdown_(running, slowed);
  }
}

// One replay: all its state is small and lives on the stack.
class FluidReplay::Run {
 public:
  Run(const FluidReplay& replay, std::span<const double> seconds, double* starts, double* ends)
      : rows_(replay.rows_.data()),
        dependencies_(replay.dependencies_.data()),
        slowdowns_(replay.slowdowns_.data()),
        slowdown_(replay.slowdown_),
        step_(replay.step_),
        lanes_(replay.lanes_.size()),
        seconds_(seconds.data()),
        starts_(starts),
        ends_(ends) {
    for (size_t i = 0; i < lanes_; ++i) {
      const LaneRows& rows = replay.lanes_[i];
      at_[i] = {rows.first, rows.end, 0, rows.stage, Resource::none, kNever, 1};
      busy_[rows.stage] = 0;
    }
  }

  double run() {
    double now = 0;
    for (;;) {
      start_ready(now);
      const double next = set_rates(now);
      if (next == kNever) return now;
      now = next;
      end_those_at(now);
    }
  }

 private:
  struct At {
    uint32_t row, rows_end;  // what runs or waits at the lane's head; past its last
    uint32_t ended, stage;   // tasks behind it
    Resource resource;       // of what runs, as the next two
    double end, slowdown;    // at the present rate; end is never where nothing runs
  };

  bool ready(const Row* row) const {
    for (uint32_t d = row->first_dependency; d < row[1].first_dependency; ++d)
      if (at_[dependencies_[d].lane].ended < dependencies_[d].count) return false;
    return true;
  }

  // Tasks that take no time end at once, slow nobody and may let others start.
  void start_ready(double now) {
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < lanes_; ++i) {
        At& lane = at_[i];
        while (lane.end == kNever && lane.row < lane.rows_end && ready(rows_ + lane.row)) {
          const Row& row = rows_[lane.row];
          if (starts_ != nullptr) starts_[row.task] = now;
          const double seconds = seconds_[row.work_class];
          if (seconds > 0) {
            lane.end = now + seconds;
            lane.slowdown = 1;
            lane.resource = row.resource;
            if (slowdown_.stalls()) stall(lane, now);
            busy_[lane.stage] += step_[static_cast<size_t>(row.resource)];
          } else {
            ends_[row.task] = now;
            ++lane.row, ++lane.ended;
            again = true;
          }
        }
      }
    }
  }

  // `begun` begins beside what runs. What only rounding keeps from having ended does not count.
  void stall(At& begun, double now) {
    constexpr double kRounding = 1e-12;
    const int resource = static_cast<int>(begun.resource);
    for (size_t i = 0; i < lanes_; ++i) {
      At& other = at_[i];
      if (&other == &begun || other.stage != begun.stage || other.end == kNever) continue;
      if (other.end - now <= kRounding * now) continue;
      begun.end += slowdown_.stall_s(resource, static_cast<int>(other.resource));
      other.end += slowdown_.stall_s(static_cast<int>(other.resource), resource) * other.slowdown;
    }
  }

  // Returns the next end; never: nothing runs any more. A rate that stays leaves its task's end as it is: nothing is
  // rounded where nothing changes.
  double set_rates(double now) {
    double next = kNever;
    for (size_t i = 0; i < lanes_; ++i) {
      At& lane = at_[i];
      if (lane.end == kNever) continue;
      const double slowdown = slowdowns_[busy_[lane.stage]][static_cast<size_t>(lane.resource)];
      if (slowdown != lane.slowdown) {
        lane.end = now + (lane.end - now) / lane.slowdown * slowdown;
        lane.slowdown = slowdown;
      }
      next = std::min(next, lane.end);
    }
    return next;
  }

  void end_those_at(double now) {
    for (size_t i = 0; i < lanes_; ++i) {
      At& lane = at_[i];
      if (lane.end != now) continue;
      ends_[rows_[lane.row].task] = now;
      busy_[lane.stage] -= step_[static_cast<size_t>(lane.resource)];
      lane.end = kNever;
      ++lane.row, ++lane.ended;
    }
  }

  const Row* rows_;
  const Dependency* dependencies_;
  const std::array<double, kResources>* slowdowns_;
  const Slowdown& slowdown_;
  std::array<uint32_t, kResources> step_;
  size_t lanes_;
  const double* seconds_;
  double *starts_, *ends_;
  std::array<At, kMaxLanes> at_;
  std::array<uint32_t, kMaxLanes> busy_;  // by stage: sum of the steps of what runs
};

double FluidReplay::makespan(std::span<const double> seconds, std::vector<double>& ends) const {
  ends.resize(place_.size());
  return Run(*this, seconds, nullptr, ends.data()).run();
}

Timeline FluidReplay::timeline(std::span<const double> seconds) const {
  Timeline t;
  t.start_s.resize(place_.size());
  t.end_s.resize(place_.size());
  t.makespan_s = Run(*this, seconds, t.start_s.data(), t.end_s.data()).run();
  for (const LaneRows& lane : lanes_) {
    double& busy = t.lane_busy_s.emplace_back();
    for (uint32_t i = lane.first; i < lane.end; ++i) busy += t.end_s[rows_[i].task] - t.start_s[rows_[i].task];
  }
  return t;
}

Timeline fluid_timeline(const Structure& structure, const GroupNetworks& networks, const Contention& contention,
                        std::span<const double> seconds) {
  return FluidReplay(structure, networks, contention).timeline(seconds);
}

Timeline timeline_of(const Plan& plan, std::span<const double> seconds, const Contention& contention) {
  if (!slows_itself(plan, contention)) return simulate(*plan.structure, seconds);
  return fluid_timeline(*plan.structure, networks_of(plan.groups), contention, seconds);
}

}  // namespace moe
