#pragma once
// Runs a plan on one rank: walks the tasks of the rank's pipeline stage in issue order and enqueues each on its lane's
// stream, with waits only where a dependency crosses lanes. A receive depends on another stage only by its data. The
// executor handles only streams and plans; the Binding handles tensors, costs and communicators.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "moe/base/check.h"
#include "moe/device/pacer.h"
#include "moe/device/stream.h"
#include "moe/plan/plan.h"

namespace moe {

/// The implementation of tasks: issue() enqueues a task's work on a stream and returns.
class Binding {
 public:
  virtual ~Binding() = default;
  /// Enqueues the task's work. A collective applies `pace` itself, since it starts when its last rank arrives; the
  /// executor paces computation and sends to another stage, whose `pace` is empty here.
  virtual void issue(const Task& task, Stream& stream, Pace pace) = 0;
  /// Called once the task's end is recorded: enqueues work that counts in no task's time. May block until that work is
  /// done; the next task is issued afterwards.
  virtual void finish_task(const Task& task, Stream& stream) { (void)task, (void)stream; }
  /// Returns whether issue() and finish_task() never wait for a task that was issued before, so that a whole pass can
  /// be issued before it begins.
  virtual bool can_issue_ahead() const { return false; }
  /// Returns the number of variants of a pass: consecutive passes may enqueue different work, which repeats after this
  /// many passes. Each variant is recorded separately (Executor::record). Throws Unsupported naming why passes can't be
  /// recorded.
  virtual int pass_variants() const { throw Unsupported("this binding cannot record its tasks as a CUDA graph"); }
  /// Returns the variant of the next pass, from 0.
  virtual int pass_variant() const { return 0; }
  /// Called before each replay of a pass: does the host work that issuing the pass would do besides enqueuing.
  virtual void before_replay() {}
};

/// The pacer of tasks that slow each other down, and the resources that this rank's tasks use.
struct ContentionContext {
  Pacer* pacer = nullptr;  // null: paced tasks do not slow each other down
  int rank = 0;
  std::vector<int> resources = {};  // the resource that each task uses
};

/// The start and end of a task on this rank, in seconds from the start of the run. A collective begins when it could
/// begin on this rank, so its time includes the wait for its other ranks.
struct TaskTime {
  double start_s = 0, end_s = 0;
};

struct RunTimes {
  double begin_s = 0;           // now_s() when the run started
  TaskTime pass;                // from the first task's start to the last one's end
  std::vector<TaskTime> tasks;  // by task id; zeros in a replay without times of tasks
  int64_t overruns = 0;         // number of tasks that took longer than their pace
};

/// The times that a replay measures: the pass as a whole, at no cost, or each task as well.
enum class Timed : uint8_t { pass, tasks };

class Executor {
 public:
  /// Makes one stream per lane of the stage and two events per task, so that run() makes none. Throws WrongResult
  /// naming a task that is not in issue order (ids ascend in every lane's queue, and are above those of the tasks that
  /// they wait for).
  Executor(Device& device, std::shared_ptr<const Structure> structure, int stage = 0);
  ~Executor();

  /// Runs one pass. at_least_s[i] is the pace of task i (0 or empty: unpaced). Blocks until every lane is done; throws
  /// the first exception of issue() or of the work, after which the rest is skipped. After an exception, another pass
  /// can be run if the binding's objects are still usable. `only`: runs the tasks of one phase, in their usual order;
  /// tasks of the other phase keep their times. Other stages' tasks have no times. With a pacer, a pace is the task's
  /// time without contention. If lanes are paced threads and the binding allows it, the first task begins when all are
  /// issued, so that issuing does not delay them. `issued` is called just before the first task begins, so that ranks
  /// can begin together.
  const RunTimes& run(Binding& binding, const std::vector<double>& at_least_s = {},
                      std::optional<Phase> only = std::nullopt, const ContentionContext& contended = {},
                      const std::function<void()>& issued = {});

  /// Records a whole pass of `binding` as a CUDA graph, once for each of its pass_variants(). Run each variant once
  /// before, so that memory and kernels exist. Throws Unsupported if the streams are not a GPU's, the host waits in a
  /// pass, or ranks meet on the host; otherwise as run(). Passes can be run as before. A second call replaces the first
  /// recording. The binding's layer, its communicators and its LayerDevice outlive the recording, and no other layer is
  /// made on that device meanwhile, since it could move memory. A replay whose communicator is aborted does not throw.
  void record(Binding& binding, const std::vector<double>& at_least_s = {}, Timed timed = Timed::pass);
  /// Runs one pass as run() does, by one launch of the recorded work of `binding`. Calls of run() and replay() may
  /// alternate. Throws BadInput if nothing was recorded.
  const RunTimes& replay(Binding& binding);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Finds the dependencies of a structure that need an event at run time.

/// Returns, for each task, the tasks of other lanes whose end its lane must wait for, except those that the lane's
/// order or another wait implies. Throws WrongResult naming the task that is out of issue order.
std::vector<std::vector<int>> cross_lane_waits(const Structure& structure);

}  // namespace moe
