#include "moe/exec/executor.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <utility>

#include "moe/base/check.h"
#include "moe/device/profiled.h"
#include "moe/device/recorded_work.h"

namespace moe {

struct Executor::Impl {
  struct Mark {
    std::unique_ptr<Event> start, end;
  };

  std::shared_ptr<const Structure> structure;
  std::vector<std::vector<int>> crossings;
  std::shared_ptr<Failure> failure = std::make_shared<Failure>();
  std::vector<std::string> names;  // name of each task
  std::vector<Mark> marks;         // by task; declared before the lanes, to outlive the streams
  Mark pass;                       // events of a replayed pass
  std::atomic<int64_t> overruns{0};
  std::vector<std::unique_ptr<Stream>> lanes;           // null: a lane of another stage
  std::vector<std::unique_ptr<RecordedWork>> recorded;  // by pass variant; empty: nothing is recorded
  Timed timed = Timed::pass;                            // which times the recorded passes have
  RunTimes times;

  Event& start(int task) { return *marks[task].start; }
  Event& end(int task) { return *marks[task].end; }

  bool mixes_phases = false;  // a forward task is issued after a backward one

  bool has(int task) const { return lanes[structure->tasks[task].lane] != nullptr; }

  Stream& wait(const Task& task) {
    Stream& lane = *lanes[task.lane];
    for (const int before : crossings[task.id])
      if (has(before)) lane.wait(end(before));
    return lane;
  }

  // Skips a task of the other phase: records its end event after the tasks that it waits for.
  void pass_over(const Task& task) { wait(task).record(end(task.id)); }

  void issue(const Task& task, Binding& binding, Pace pace) {
    const NamedRange range(names[task.id]);
    Stream& lane = wait(task);
    const bool paces_itself = task.group != GroupKind::none && task.kind != TaskKind::send;
    const bool held = !paces_itself && !pace.pacer && pace.at_least_s > 0;
    if (held)
      lane.mark(start(task.id));
    else
      lane.record(start(task.id));
    if (paces_itself) {
      binding.issue(task, lane, pace);
    } else if (pace.pacer && pace.at_least_s > 0) {
      issue_contended(task, binding, pace);
    } else {
      binding.issue(task, lane, {});
      if (held) lane.hold(start(task.id), pace);
    }
    lane.record(end(task.id));
    binding.finish_task(task, lane);
  }

  void issue_contended(const Task& task, Binding& binding, Pace pace) {
    Stream& lane = *lanes[task.lane];
    const auto running = std::make_shared<std::shared_ptr<Pacer::Task>>();
    lane.launch([running, pace](void*) {
      *running = pace.pacer->start({{pace.rank, pace.resource}}, pace.at_least_s);
    });
    binding.issue(task, lane, {});
    lane.launch([running, pace](void*) {
      if (!pace.pacer->finish(**running)) pace.overruns->fetch_add(1, std::memory_order_relaxed);
    });
  }

  void issue_all(Binding& binding, const std::vector<double>& at_least_s, std::optional<Phase> only,
                 const ContentionContext& contended) noexcept {
    try {
      for (const Task& task : structure->tasks) {
        if (failure->failed()) return;
        if (!has(task.id)) continue;
        if (only && task.execution_phase() != *only) {
          if (mixes_phases) pass_over(task);
          continue;
        }
        Pace pace{.at_least_s = at_least_s.empty() ? 0.0 : at_least_s[task.id], .overruns = &overruns};
        if (contended.pacer) {
          pace.pacer = contended.pacer;
          pace.rank = contended.rank;
          pace.resource = contended.resources[task.id];
        }
        issue(task, binding, pace);
      }
    } catch (...) {
      failure->set(std::current_exception());
    }
  }

  void before_begin(const std::function<void()>& issued) noexcept {
    try {
      if (issued) issued();
    } catch (...) {
      failure->set(std::current_exception());
    }
  }

  std::vector<Stream*> own_lanes() const {
    std::vector<Stream*> own;
    for (const auto& lane : lanes)
      if (lane) own.push_back(lane.get());
    return own;
  }

  // Throws the first failure, else reads the events' times.
  void finish(std::optional<Phase> only) {
    drain();
    failure->rethrow();
    times.pass = {};
    bool first = true;
    for (const Task& task : structure->tasks) {
      if (!has(task.id) || (only && task.execution_phase() != *only)) continue;
      const TaskTime time{start(task.id).seconds() - times.begin_s, end(task.id).seconds() - times.begin_s};
      times.tasks[task.id] = time;
      times.pass = {first ? time.start_s : std::min(times.pass.start_s, time.start_s),
                    std::max(times.pass.end_s, time.end_s)};
      first = false;
    }
    times.overruns = overruns;
  }

  // Drains the lanes in order. A replay runs on the first one, so the others' overrun counts are complete once it is
  // drained.
  void drain() noexcept {
    for (const auto& lane : lanes) {
      if (!lane) continue;
      try {
        lane->synchronize();
      } catch (...) {
        failure->set(std::current_exception());
      }
    }
  }
};

Executor::Executor(Device& device, std::shared_ptr<const Structure> structure, int stage)
    : impl_(std::make_unique<Impl>()) {
  impl_->structure = std::move(structure);
  impl_->crossings = cross_lane_waits(*impl_->structure);
  impl_->mixes_phases = !std::ranges::is_partitioned(
      impl_->structure->tasks, [](const Task& task) { return task.execution_phase() == Phase::forward; });
  impl_->marks.resize(impl_->structure->tasks.size());
  impl_->times.tasks.resize(impl_->structure->tasks.size());
  for (const Lane& lane : impl_->structure->lanes) {
    const StreamPriority urgency = lane.kind == LaneKind::compute ? StreamPriority::usual : StreamPriority::high;
    impl_->lanes.push_back(lane.stage == stage ? device.make_stream(name_of(lane.kind), impl_->failure, urgency)
                                               : nullptr);
  }
  for (const Task& task : impl_->structure->tasks) impl_->names.push_back(task.name());
  for (const Task& task : impl_->structure->tasks)
    if (impl_->has(task.id)) impl_->marks[task.id] = {device.make_event(), device.make_event()};
  impl_->pass = {device.make_event(), device.make_event()};
}

Executor::~Executor() = default;

const RunTimes& Executor::run(Binding& binding, const std::vector<double>& at_least_s, std::optional<Phase> only,
                              const ContentionContext& contended, const std::function<void()>& issued) {
  Impl& impl = *impl_;
  const std::vector<Task>& tasks = impl.structure->tasks;
  require<BadInput>(at_least_s.empty() || at_least_s.size() == tasks.size(), "{} paces for {} tasks", at_least_s.size(),
                    tasks.size());
  require<BadInput>(!contended.pacer || contended.resources.size() == tasks.size(),
                    "resources of {} tasks for {} tasks", contended.resources.size(), tasks.size());
  const auto own = std::ranges::find_if(impl.lanes, [](const auto& lane) { return lane != nullptr; });
  require<Unsupported>(!contended.pacer || own == impl.lanes.end() || !(*own)->calls_work_immediately(),
                       "tasks that slow each other down are paced on the CPU alone");
  impl.failure->clear();
  impl.overruns = 0;
  RunTimes& times = impl.times;
  times.begin_s = now_s();
  const bool apart =
      !at_least_s.empty() && own != impl.lanes.end() && (*own)->pace_clock() && binding.can_issue_ahead();
  std::latch begun(1);
  if (apart)
    for (const auto& lane : impl.lanes)
      if (lane) lane->launch([&begun](void*) { begun.wait(); });
  impl.issue_all(binding, at_least_s, only, contended);
  if (apart && !impl.failure->failed()) impl.before_begin(issued);
  if (apart) times.begin_s = now_s();
  begun.count_down();
  impl.finish(only);
  return times;
}

void Executor::record(Binding& binding, const std::vector<double>& at_least_s, Timed timed) {
  Impl& impl = *impl_;
  impl.recorded.clear();
  const std::vector<Stream*> lanes = impl.own_lanes();
  require<Unsupported>(!lanes.empty() && lanes.front()->calls_work_immediately(),
                       "recorded passes: found the CPU, expected a GPU, whose streams have graphs");
  require<Unsupported>(binding.can_issue_ahead(), "a pass in which the host waits cannot be recorded as a CUDA graph");
  const auto turns = static_cast<size_t>(binding.pass_variants());
  std::vector<Event*> events;
  if (timed == Timed::tasks)
    for (const auto& mark : impl.marks)
      for (Event* event : {mark.start.get(), mark.end.get()})
        if (event != nullptr) events.push_back(event);
  for (size_t pass = 0; pass < turns; ++pass) run(binding, at_least_s);
  std::vector<std::unique_ptr<RecordedWork>> recorded(turns);
  for (size_t pass = 0; pass < turns; ++pass) {
    const auto turn = static_cast<size_t>(binding.pass_variant());
    recorded.at(turn) = record_work(lanes, events, [&] {
      impl.issue_all(binding, at_least_s, std::nullopt, {});
      impl.failure->rethrow();
    });
  }
  impl.recorded = std::move(recorded);
  impl.timed = timed;
}

const RunTimes& Executor::replay(Binding& binding) {
  Impl& impl = *impl_;
  require<BadInput>(!impl.recorded.empty(), "a replay of a pass: found none that was recorded");
  RecordedWork& work = *impl.recorded.at(binding.pass_variant());
  Stream& first = *impl.own_lanes().front();
  RunTimes& times = impl.times;
  impl.failure->clear();
  impl.overruns = 0;
  times.begin_s = now_s();
  binding.before_replay();
  first.record(*impl.pass.start);
  work.run();
  first.record(*impl.pass.end);
  if (impl.timed == Timed::tasks) {
    impl.finish(std::nullopt);
    return times;
  }
  impl.drain();
  impl.failure->rethrow();
  std::ranges::fill(times.tasks, TaskTime{});
  times.pass = {impl.pass.start->seconds() - times.begin_s, impl.pass.end->seconds() - times.begin_s};
  times.overruns = impl.overruns;
  return times;
}

namespace {

void check_issue_order(const Structure& structure) {
  const int tasks = static_cast<int>(structure.tasks.size());
  std::vector<int> queued(structure.tasks.size(), 0);
  for (size_t lane = 0; lane < structure.lanes.size(); ++lane) {
    int last = -1;
    for (const int id : structure.lanes[lane].queue) {
      require<WrongResult>(id >= 0 && id < tasks, "lane {} queues task {} of {}", lane, id, tasks);
      const Task& task = structure.tasks[id];
      require<WrongResult>(task.lane == static_cast<int>(lane), "{} belongs to lane {} but is queued on lane {}",
                           task.name(), task.lane, lane);
      require<WrongResult>(id > last, "{} (task {}) is queued after task {}, which is issued later", task.name(), id,
                           last);
      last = id;
      ++queued[id];
    }
  }
  for (int id = 0; id < tasks; ++id) {
    const Task& task = structure.tasks[id];
    require<WrongResult>(task.id == id, "{} has id {} at place {}", task.name(), task.id, id);
    require<WrongResult>(queued[id] == 1, "{} is on {} lanes' queues, expected 1", task.name(), queued[id]);
    for (const int before : task.after)
      require<WrongResult>(before >= 0 && before < id, "{} (task {}) waits for task {}, which is not issued before it",
                           task.name(), id, before);
  }
}

}  // namespace

std::vector<std::vector<int>> cross_lane_waits(const Structure& structure) {
  check_issue_order(structure);
  const size_t lanes = structure.lanes.size();
  // done_by[t][l]: the last task of lane l that must have ended when t ends; last_on[l]: the last task of lane l so
  // far.
  std::vector<std::vector<int>> done_by(structure.tasks.size()), crossings(structure.tasks.size());
  std::vector<int> last_on(lanes, -1);
  for (const Task& task : structure.tasks) {
    std::vector<int> done(lanes, -1);
    if (last_on[task.lane] >= 0) done = done_by[last_on[task.lane]];
    // Considers later tasks first, since their waits imply more of the others.
    std::vector<int> after = task.after;
    std::sort(after.rbegin(), after.rend());
    for (const int before : after) {
      const auto other = static_cast<size_t>(structure.tasks[before].lane);
      if (done[other] >= before) continue;
      crossings[task.id].push_back(before);
      const std::vector<int>& implied = done_by[before];
      for (size_t l = 0; l < lanes; ++l) done[l] = std::max(done[l], implied[l]);
    }
    done[task.lane] = task.id;
    last_on[task.lane] = task.id;
    done_by[task.id] = std::move(done);
  }
  return crossings;
}

}  // namespace moe
