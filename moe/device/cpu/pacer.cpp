#include "moe/device/pacer.h"

#include <algorithm>
#include <utility>

#include "moe/device/cpu/clock.h"
#include "moe/device/cpu/doorbell.h"

namespace moe {

class Pacer::Task {
 public:
  Task(Pacer& of, std::vector<Use> what) : pacer(of), uses(std::move(what)), stalled_s(uses.size()) {}
  ~Task() { pacer.end(*this, true); }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  double max_stalled_s() const { return stalled_s.empty() ? 0 : *std::ranges::max_element(stalled_s); }

  Pacer& pacer;
  const std::vector<Use> uses;
  std::vector<double> stalled_s;  // by use; the pacer's mutex guards this and the next
  double slowdown = 1;
  std::atomic<double> ends_s{0};  // at the present rates; written under the mutex until that moment has passed
  cpu::Doorbell earlier;          // rings when ends_s becomes earlier; a later end is seen when the old one passes
};

Pacer::Pacer(int ranks, int resources, Slowdown slowdown, Stall stall)
    : slowdown_(std::move(slowdown)),
      stall_(std::move(stall)),
      running_(static_cast<size_t>(ranks), std::vector<int>(static_cast<size_t>(resources))) {}

std::shared_ptr<Pacer::Task> Pacer::start(std::vector<Use> uses, double alone_s) {
  auto task = std::make_shared<Task>(*this, std::move(uses));
  const std::lock_guard lock(mutex_);
  const double now = now_s();
  task->ends_s = now + alone_s;
  if (stall_ && alone_s > 0) stall(*task, now);
  count(*task, 1);
  tasks_.push_back(task.get());
  set_rates(now);
  return task;
}

bool Pacer::finish(Task& task) {
  const bool in_time = now_s() <= task.ends_s;
  cpu::set_minimal_timer_slack();
  while (true) {
    const double ends_s = task.ends_s, now = now_s();
    if (now >= ends_s && end(task, false)) return in_time;
    if (ends_s - now > cpu::kSpinS)
      task.earlier.wait_until([&] { return task.ends_s != ends_s; }, ends_s - cpu::kSpinS);
  }
}

void Pacer::count(const Task& task, int change) {
  for (const Use& use : task.uses) running_.at(use.rank).at(use.resource) += change;
}

// A task on several ranks loses the largest of the ranks' losses.
void Pacer::stall(Task& begun, double now) {
  for (Task* other : tasks_) {
    if (other->ends_s <= now) continue;
    const double before_s = other->max_stalled_s();
    for (size_t i = 0; i < begun.uses.size(); ++i)
      for (size_t j = 0; j < other->uses.size(); ++j) {
        const Use &mine = begun.uses[i], &its = other->uses[j];
        if (mine.rank != its.rank) continue;
        begun.stalled_s[i] += stall_(mine.resource, its.resource);
        other->stalled_s[j] += stall_(its.resource, mine.resource);
      }
    other->ends_s = other->ends_s + (other->max_stalled_s() - before_s) * other->slowdown;
  }
  begun.ends_s = begun.ends_s + begun.max_stalled_s();
}

void Pacer::set_rates(double now) {
  for (Task* task : tasks_) {
    double slowdown = 1;
    for (const Use& use : task->uses) slowdown = std::max(slowdown, slowdown_(running_[use.rank], use.resource));
    const double before_s = task->ends_s;
    if (slowdown == task->slowdown || before_s <= now) continue;
    const double after_s = now + (before_s - now) / task->slowdown * slowdown;
    task->slowdown = slowdown;
    task->ends_s = after_s;
    if (after_s < before_s) task->earlier.ring();
  }
}

// Returns whether the task is over.
bool Pacer::end(Task& task, bool allow_early_end) {
  const std::lock_guard lock(mutex_);
  const double now = now_s();
  if (!allow_early_end && now < task.ends_s) return false;  // another task's start has moved the end
  if (std::erase(tasks_, &task) == 0) return true;
  count(task, -1);
  set_rates(now);
  return true;
}

}  // namespace moe
