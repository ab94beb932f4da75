#pragma once
// Paces tasks that slow each other down while they run. The caller supplies the slowdown functions.
//
// Idea: a fluid model. Between two events (starts or ends of tasks) each task has a constant rate, so its end can be
// computed; the next event may change it. Invariant: a task's remaining work is (ends_s - now) / slowdown, which a
// change of rates does not alter; an end that has passed is not changed. Starts and ends are read from the clock as
// they happen.
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace moe {

/// The pacer of ranks that share a clock. Thread-safe; it must outlive its tasks.
class Pacer {
 public:
  /// A resource of a rank that a task uses.
  struct Use {
    int rank = 0, resource = 0;
  };
  /// Returns the slowdown, at least 1, of a task that uses `resource` while running[r] tasks of its rank, itself
  /// included, use resource r: the rest of the task takes that many times as long.
  using Slowdown = std::function<double(std::span<const int> running, int resource)>;
  /// Returns the seconds that a task which uses `resource` loses when it begins to overlap a task that uses `by`.
  using Stall = std::function<double(int resource, int by)>;
  class Task;  // a running task; ends when finished or destroyed

  Pacer(int ranks, int resources, Slowdown slowdown, Stall stall = {});

  /// Starts a task that takes `alone_s` without contention. It runs from now on, on all ranks of `uses`, at the rate of
  /// the slowest of these ranks.
  std::shared_ptr<Task> start(std::vector<Use> uses, double alone_s);
  /// Blocks until the task's time has passed; the first thread that sees this ends the task. Returns false if the time
  /// had passed before the call.
  bool finish(Task& task);

 private:
  void count(const Task& task, int change);
  void stall(Task& begun, double now);
  void set_rates(double now);
  bool end(Task& task, bool allow_early_end);

  const Slowdown slowdown_;
  const Stall stall_;
  std::mutex mutex_;
  std::vector<std::vector<int>> running_;  // [rank][resource]; mutex_ guards this and the next
  std::vector<Task*> tasks_;
};

}  // namespace moe
