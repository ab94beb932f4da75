#include "moe/exec/executor.h"

#include <algorithm>
#include <atomic>
#include <latch>
#include <utility>

#include "moe/base/check.h"
#include "moe/exec/crossings.h"

namespace moe {

struct Executor::Impl {
  struct Mark {
    std::unique_ptr<Event> start, end;
  };

  std::shared_ptr<const Structure> structure;
  std::vector<std::vector<int>> crossings;
  std::shared_ptr<Failure> failure = std::make_shared<Failure>();
  std::vector<Mark> marks;                     // by task; outlive the streams
  std::vector<std::unique_ptr<Stream>> lanes;  // null: of another stage
  std::atomic<int64_t> overruns{0};
  RunTimes times;

  Event& start(int task) { return *marks[static_cast<size_t>(task)].start; }
  Event& end(int task) { return *marks[static_cast<size_t>(task)].end; }

  bool has(int task) const {
    return lanes[static_cast<size_t>(structure->tasks[static_cast<size_t>(task)].lane)] != nullptr;
  }

  void issue(const Task& task, Binding& binding, Pace pace) {
    Stream& lane = *lanes[static_cast<size_t>(task.lane)];
    for (const int before : crossings[static_cast<size_t>(task.id)])
      if (has(before)) lane.wait(end(before));
    const bool paces_itself = task.group != GroupKind::none && task.kind != TaskKind::send;
    const bool held = !paces_itself && !pace.pacer && pace.at_least_s > 0;
    held ? lane.mark(start(task.id)) : lane.record(start(task.id));
    if (paces_itself) {
      binding.issue(task, lane, pace);
    } else if (pace.pacer && pace.at_least_s > 0) {
      issue_contended(task, binding, pace);
    } else {
      binding.issue(task, lane, {});
      if (held) lane.hold(start(task.id), pace);
    }
    lane.record(end(task.id));
    binding.settle(task, lane);
  }

  void issue_contended(const Task& task, Binding& binding, Pace pace) {
    Stream& lane = *lanes[static_cast<size_t>(task.lane)];
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
                 const Contended& contended) noexcept {
    try {
      for (const Task& task : structure->tasks) {
        if (failure->failed()) return;
        if (!has(task.id) || (only && task.phase != *only)) continue;
        const auto id = static_cast<size_t>(task.id);
        Pace pace{.at_least_s = at_least_s.empty() ? 0.0 : at_least_s[id], .overruns = &overruns};
        if (contended.pacer) {
          pace.pacer = contended.pacer;
          pace.rank = contended.rank;
          pace.resource = contended.resources[id];
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
  impl_->crossings = crossings_of(*impl_->structure);
  impl_->marks.resize(impl_->structure->tasks.size());
  impl_->times.tasks.resize(impl_->structure->tasks.size());
  for (const Lane& lane : impl_->structure->lanes) {
    const Urgency urgency = lane.kind == LaneKind::compute ? Urgency::usual : Urgency::high;
    impl_->lanes.push_back(lane.stage == stage ? device.make_stream(name_of(lane.kind), impl_->failure, urgency)
                                               : nullptr);
  }
  for (const Task& task : impl_->structure->tasks)
    if (impl_->has(task.id)) impl_->marks[static_cast<size_t>(task.id)] = {device.make_event(), device.make_event()};
}

Executor::~Executor() = default;

const RunTimes& Executor::run(Binding& binding, const std::vector<double>& at_least_s, std::optional<Phase> only,
                              const Contended& contended, const std::function<void()>& issued) {
  Impl& impl = *impl_;
  const std::vector<Task>& tasks = impl.structure->tasks;
  require<BadInput>(at_least_s.empty() || at_least_s.size() == tasks.size(), "{} paces for {} tasks", at_least_s.size(),
                    tasks.size());
  require<BadInput>(!contended.pacer || contended.resources.size() == tasks.size(),
                    "resources of {} tasks for {} tasks", contended.resources.size(), tasks.size());
  const auto own = std::ranges::find_if(impl.lanes, [](const auto& lane) { return lane != nullptr; });
  require<Unsupported>(!contended.pacer || own == impl.lanes.end() || !(*own)->calls_at_once(),
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
  impl.drain();
  impl.failure->rethrow();
  for (size_t id = 0; id < tasks.size(); ++id) {
    if (!impl.has(static_cast<int>(id)) || (only && tasks[id].phase != *only)) continue;
    const auto& mark = impl.marks[id];
    times.tasks[id] = {mark.start->seconds() - times.begin_s, mark.end->seconds() - times.begin_s};
  }
  times.overruns = impl.overruns;
  return times;
}

}  // namespace moe
