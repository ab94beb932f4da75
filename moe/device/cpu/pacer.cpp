#include "moe/device/pacer.h"

#include <algorithm>
#include <utility>

#include "moe/device/cpu/clock.h"
#include "moe/device/cpu/doorbell.h"

namespace moe {

class Pacer::Task {
 public:
  Task(Pacer& of, std::vector<Use> what) : pacer(of), uses(std::move(what)) {}
  ~Task() { pacer.end(*this, true); }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  Pacer& pacer;
  const std::vector<Use> uses;
  double slowdown = 1;            // guarded by the pacer's mutex
  std::atomic<double> ends_s{0};  // at the present rate; written under the mutex, no more once it has passed
  Doorbell earlier;               // rings when ends_s moves so; a later one is seen when the old one passes
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
  be_punctual();
  while (true) {
    const double ends_s = task.ends_s, now = now_s();
    if (now >= ends_s && end(task, false)) return in_time;
    if (ends_s - now > kSpinS) task.earlier.wait_until([&] { return task.ends_s != ends_s; }, ends_s - kSpinS);
  }
}

void Pacer::count(const Task& task, int change) {
  for (const Use& use : task.uses)
    running_.at(static_cast<size_t>(use.rank)).at(static_cast<size_t>(use.resource)) += change;
}

// Of two tasks that meet on several ranks, the most that one costs the other on any of them.
void Pacer::stall(Task& begun, double now) {
  for (Task* other : tasks_) {
    double of_begun = 0, of_other = 0;
    for (const Use& a : begun.uses)
      for (const Use& b : other->uses) {
        if (a.rank != b.rank) continue;
        of_begun = std::max(of_begun, stall_(a.resource, b.resource));
        of_other = std::max(of_other, stall_(b.resource, a.resource));
      }
    if (other->ends_s <= now) continue;
    begun.ends_s = begun.ends_s + of_begun;
    other->ends_s = other->ends_s + of_other * other->slowdown;
  }
}

void Pacer::set_rates(double now) {
  for (Task* task : tasks_) {
    double slowdown = 1;
    for (const Use& use : task->uses)
      slowdown = std::max(slowdown, slowdown_(running_[static_cast<size_t>(use.rank)], use.resource));
    const double before_s = task->ends_s;
    if (slowdown == task->slowdown || before_s <= now) continue;
    const double after_s = now + (before_s - now) / task->slowdown * slowdown;
    task->slowdown = slowdown;
    task->ends_s = after_s;
    if (after_s < before_s) task->earlier.ring();
  }
}

// Returns whether it is over.
bool Pacer::end(Task& task, bool even_early) {
  const std::lock_guard lock(mutex_);
  const double now = now_s();
  if (!even_early && now < task.ends_s) return false;  // another start slowed it since its thread looked
  if (std::erase(tasks_, &task) == 0) return true;
  count(task, -1);
  set_rates(now);
  return true;
}

}  // namespace moe
