#pragma once
// Paces tasks that slow each other down while they run. Knows nothing of costs: how much tasks slow each other, it is
// told.
//
// Idea: a fluid model. Between two starts or ends of tasks each has a constant rate, so the moment at which a task will
// end is known until the next start or end moves it. Invariant: what is left of a task is (ends_s - now) / slowdown,
// unchanged by a change of rates; a moment that has passed is moved no more. Starts and ends are read from the clock as
// they happen.
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace moe {

/// Serves a set of ranks that share a clock. Threads may call it at once; it outlives its tasks.
class Pacer {
 public:
  /// What a task uses of a rank.
  struct Use {
    int rank = 0, resource = 0;
  };
  /// Returns how many times as long a task that uses `resource` takes while running[r] tasks of its rank, itself
  /// included, use resource r. It then gets through so much less of what is left of it. At least 1.
  using Slowdown = std::function<double(std::span<const int> running, int resource)>;
  /// Returns the seconds that a task which uses `resource` loses when it and one that uses `by` begin to run side by
  /// side.
  using Stall = std::function<double(int resource, int by)>;
  class Task;  // runs until it is finished or destroyed

  Pacer(int ranks, int resources, Slowdown slowdown, Stall stall = {});

  /// Starts a task that takes `alone_s` undisturbed: it runs from now on, on all ranks of `uses`, at the slowest's
  /// rate.
  std::shared_ptr<Task> start(std::vector<Use> uses, double alone_s);
  /// Blocks until the task's time has passed; the first of its threads to see that ends it. Returns false if it had
  /// passed already.
  bool finish(Task& task);

 private:
  void count(const Task& task, int change);
  void stall(Task& begun, double now);
  void set_rates(double now);
  bool end(Task& task, bool even_early);

  const Slowdown slowdown_;
  const Stall stall_;
  std::mutex mutex_;
  std::vector<std::vector<int>> running_;  // [rank][resource]; guarded by mutex_, as the next
  std::vector<Task*> tasks_;
};

}  // namespace moe
