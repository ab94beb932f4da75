#pragma once
// Runs a plan on one rank: walks the tasks in issue order and enqueues each on its lane's stream, with waits only where
// a dependency crosses lanes. Knows streams and plans; tensors, costs and communicators belong to the Binding.
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "moe/device/stream.h"
#include "moe/plan/plan.h"

namespace moe {

/// Gives tasks their meaning: enqueues `task`'s work on `stream` and returns.
class Binding {
 public:
  virtual ~Binding() = default;
  /// `pace` is for a collective to honour itself (its start is when its last rank arrived); computation is paced by
  /// the executor.
  virtual void issue(const Task& task, Stream& stream, Pace pace) = 0;
};

/// When a task began and ended on this rank, seconds from the start of the run.
struct TaskTime {
  double start_s = 0, end_s = 0;
};

struct RunTimes {
  double begin_s = 0;  // now_s() when the run started
  std::vector<TaskTime> tasks;  // by task id
  int64_t overruns = 0;         // tasks whose work outlasted their pace
};

class Executor {
 public:
  /// One stream a lane, two events a task, all made here: run() allocates nothing that lasts.
  Executor(Device& device, std::shared_ptr<const Structure> structure);
  ~Executor();

  /// One pass. at_least_s[i] is the pace of task i (empty: unpaced). Blocks until every lane is done; throws what the
  /// work threw.
  const RunTimes& run(Binding& binding, const std::vector<double>& at_least_s = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe
