// Idea: rates change only when a task starts or ends. The replay goes from one such event to the next, and updates the
// ends of the tasks whose slowdown has changed.
// Invariant: `end` of a running lane is the time at which its task ends if no rate changes; `busy_` of a stage is the
// sum of SlowdownTable::step over its running tasks, which is the index of their row in that table (slowdown.h). The
// same algorithm runs with two kinds of times: numbers, and lines, whose slopes say how times change if the tasks'
// seconds change.
// Source: the fluid models of simulators such as SimGrid (Casanova et al. 2008), with a profile's factors for rates.
#include "moe/simulator/fluid_replay.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <map>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

FluidReplay::FluidReplay(const Structure& structure, const GroupNetworks& networks, const Contention& contention)
    : slowdowns_(contention, max_at_once(checked(structure), networks)) {
  const size_t lanes = structure.lanes.size();
  place_.resize(structure.tasks.size());
  for (const Lane& lane : structure.lanes)
    for (size_t i = 0; i < lane.queue.size(); ++i) place_[lane.queue[i]] = static_cast<uint32_t>(i);
  std::map<int, uint32_t> stages;  // index of each stage
  for (size_t lane = 0; lane < lanes; ++lane) {
    const auto number = static_cast<uint32_t>(stages.size());
    lanes_.push_back({0, 0, stages.try_emplace(structure.lanes[lane].stage, number).first->second});
    add_lane(structure, lane, networks);
  }
  rows_.push_back({0, static_cast<uint32_t>(dependencies_.size()), Resource::none});
}

void FluidReplay::add_lane(const Structure& structure, size_t lane, const GroupNetworks& networks) {
  lanes_[lane].first = static_cast<uint32_t>(rows_.size());
  for (const int id : structure.lanes[lane].queue) {
    const Task& task = structure.tasks[id];
    rows_.push_back({static_cast<uint32_t>(id), static_cast<uint32_t>(dependencies_.size()),
                     resource_of(task, structure.lanes[lane], networks)});
    for (const int other : cross_lane_dependencies(structure, task))
      dependencies_.push_back({static_cast<uint32_t>(structure.tasks[other].lane), place_[other] + 1});
  }
  lanes_[lane].end = static_cast<uint32_t>(rows_.size());
}

// Represents times as numbers, and records the start and end of each task.
struct FluidReplay::PlainClock {
  using Time = double;
  const double* seconds;
  double *starts, *ends;

  Time duration(uint32_t task) const { return seconds[task]; }
  static bool takes_time(Time time) { return time > 0; }
  static bool runs(Time end) { return end != kNever; }
  static Time never() { return kNever; }
  static double value(Time time) { return time; }
  static Time later(Time time, double by_s) { return time + by_s; }
  static Time slowed(Time now, Time end, double before, double slowdown) {
    return now + (end - now) / before * slowdown;
  }
  void started(uint32_t task, Time now) const {
    if (starts != nullptr) starts[task] = now;
  }
  void ended(uint32_t task, Time now) const { ends[task] = now; }
  void next_is(Time, Time) const {}
};

// Represents times as lines. Of two equal values, the one with the smaller slope comes first, because it is smaller
// after any small step.
struct FluidReplay::LineClock {
  struct Time {
    double value, slope;
    friend Time operator+(Time a, Time b) { return {a.value + b.value, a.slope + b.slope}; }
    auto operator<=>(const Time&) const = default;
  };
  const double *seconds, *slopes;
  double steepest;
  double reach = kNever;

  Time duration(uint32_t task) const { return {seconds[task], slopes[task]}; }
  static bool takes_time(Time time) { return time.value > 0; }
  static bool runs(Time end) { return end.value != kNever; }
  static Time never() { return {kNever, 0}; }
  static double value(Time time) { return time.value; }
  static Time later(Time time, double by_s) { return {time.value + by_s, time.slope}; }
  static Time slowed(Time now, Time end, double before, double slowdown) {
    const double more = slowdown / before;
    return {now.value + (end.value - now.value) * more, now.slope + (end.slope - now.slope) * more};
  }
  void started(uint32_t, Time) const {}
  void ended(uint32_t, Time) const {}
  // Limits the reach to the step at which `other` would end before `next`. Slopes that differ only by rounding count as
  // equal.
  void next_is(Time next, Time other) {
    const double closing = next.slope - other.slope;
    if (closing > 1e-9 * steepest) reach = std::min(reach, (other.value - next.value) / closing);
  }
};

// One replay. Its state is small and lives on the stack.
template <class Clock>
class FluidReplay::Run {
  using Time = typename Clock::Time;

 public:
  Run(const FluidReplay& replay, Clock& clock)
      : rows_(replay.rows_.data()),
        dependencies_(replay.dependencies_.data()),
        slowdowns_(replay.slowdowns_),
        lanes_(replay.lanes_.size()),
        clock_(clock) {
    for (size_t i = 0; i < lanes_; ++i) {
      const LaneRows& rows = replay.lanes_[i];
      at_[i] = {rows.first, rows.end, 0, rows.stage, Resource::none, 1, Clock::never()};
      busy_[rows.stage] = 0;
    }
  }

  Time run() {
    Time now{};
    for (;;) {
      start_ready(now);
      const Time next = set_rates(now);
      if (!Clock::runs(next)) return now;
      now = next;
      end_tasks_at(now);
    }
  }

 private:
  struct At {
    uint32_t row, rows_end;  // the lane's running or waiting task; end of the queue
    uint32_t ended, stage;   // ended: number of tasks that ended
    Resource resource;       // of the running task, like the next two members
    double slowdown;
    Time end;  // at the current rate; never() if no task runs
  };

  bool ready(const Row* row) const {
    for (uint32_t d = row->first_dependency; d < row[1].first_dependency; ++d)
      if (at_[dependencies_[d].lane].ended < dependencies_[d].count) return false;
    return true;
  }

  // Starts all tasks that can start. Tasks of 0 seconds end at once, slow no other task and may let others start.
  void start_ready(Time now) {
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < lanes_; ++i) {
        At& lane = at_[i];
        while (!Clock::runs(lane.end) && lane.row < lane.rows_end && ready(rows_ + lane.row)) {
          const Row& row = rows_[lane.row];
          clock_.started(row.task, now);
          const Time seconds = clock_.duration(row.task);
          if (Clock::takes_time(seconds)) {
            lane.end = now + seconds;
            lane.slowdown = 1;
            lane.resource = row.resource;
            if (slowdowns_.stalls()) stall(lane, now);
            busy_[lane.stage] += slowdowns_.step(row.resource);
          } else {
            clock_.ended(row.task, now);
            ++lane.row, ++lane.ended;
            again = true;
          }
        }
      }
    }
  }

  // Adds the stalls between `begun`, which starts now, and the running tasks, except those that would have ended
  // without rounding errors.
  void stall(At& begun, Time now) {
    constexpr double kRounding = 1e-12;
    for (size_t i = 0; i < lanes_; ++i) {
      At& other = at_[i];
      if (&other == &begun || other.stage != begun.stage || !Clock::runs(other.end)) continue;
      if (Clock::value(other.end) - Clock::value(now) <= kRounding * Clock::value(now)) continue;
      begun.end = Clock::later(begun.end, slowdowns_.stall_s(begun.resource, other.resource));
      other.end = Clock::later(other.end, slowdowns_.stall_s(other.resource, begun.resource) * other.slowdown);
    }
  }

  // Returns the next end; never() if no task runs. If a task's rate does not change, its end is not recomputed, to
  // avoid rounding errors.
  Time set_rates(Time now) {
    Time next = Clock::never();
    for (size_t i = 0; i < lanes_; ++i) {
      At& lane = at_[i];
      if (!Clock::runs(lane.end)) continue;
      const double slowdown = slowdowns_(busy_[lane.stage], lane.resource);
      if (slowdown != lane.slowdown) {
        lane.end = Clock::slowed(now, lane.end, lane.slowdown, slowdown);
        lane.slowdown = slowdown;
      }
      next = std::min(next, lane.end);
    }
    for (size_t i = 0; i < lanes_; ++i)
      if (Clock::runs(at_[i].end)) clock_.next_is(next, at_[i].end);
    return next;
  }

  void end_tasks_at(Time now) {
    for (size_t i = 0; i < lanes_; ++i) {
      At& lane = at_[i];
      if (lane.end != now) continue;
      clock_.ended(rows_[lane.row].task, now);
      busy_[lane.stage] -= slowdowns_.step(lane.resource);
      lane.end = Clock::never();
      ++lane.row, ++lane.ended;
    }
  }

  const Row* rows_;
  const Dependency* dependencies_;
  const SlowdownTable& slowdowns_;
  size_t lanes_;
  Clock& clock_;
  std::array<At, kMaxLanes> at_;
  std::array<uint32_t, kMaxLanes> busy_;  // for each stage: sum of the steps of running tasks
};

double FluidReplay::makespan(std::span<const double> seconds, std::vector<double>& ends) const {
  ends.resize(place_.size());
  PlainClock clock{seconds.data(), nullptr, ends.data()};
  return Run(*this, clock).run();
}

LinearSegment FluidReplay::replay_along(std::span<const double> seconds, std::span<const double> slopes) const {
  double steepest = 0;
  for (const double slope : slopes) steepest = std::max(steepest, std::abs(slope));
  LineClock clock{seconds.data(), slopes.data(), steepest};
  const LineClock::Time end = Run(*this, clock).run();
  return {end.value, end.slope, clock.reach};
}

Timeline FluidReplay::timeline(std::span<const double> seconds) const {
  Timeline t;
  t.start_s.resize(place_.size());
  t.end_s.resize(place_.size());
  PlainClock clock{seconds.data(), t.start_s.data(), t.end_s.data()};
  t.makespan_s = Run(*this, clock).run();
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
