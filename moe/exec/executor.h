#pragma once
// Runs a plan on one rank: walks the tasks of the rank's pipeline stage in issue order and enqueues each on its lane's
// stream, with waits only where a dependency crosses lanes. What a receive waits for in another stage comes with its
// data. Knows streams and plans; tensors, costs and communicators belong to the Binding.
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

/// Gives tasks their meaning: enqueues `task`'s work on `stream` and returns.
class Binding {
 public:
  virtual ~Binding() = default;
  /// Enqueues the task's work. `pace` is for a collective to honour itself (its start is when its last rank arrived);
  /// computation and what is sent to another stage are paced by the executor, and get an empty one.
  virtual void issue(const Task& task, Stream& stream, Pace pace) = 0;
  /// Enqueues, once the task's end is recorded, what belongs to no task's time, and may block until it is
  /// done, since the next task is issued afterwards.
  virtual void settle(const Task& task, Stream& stream) { (void)task, (void)stream; }
  /// Returns whether neither issue() nor settle() waits for a task that was issued before, so that all of a pass can be
  /// issued before it begins.
  virtual bool can_issue_ahead() const { return false; }
  /// Returns how many passes in a row differ in what they enqueue before the first one's comes again: each is recorded
  /// by itself (Executor::record). Throws Unsupported naming why passes can't be recorded.
  virtual int turns() const { throw Unsupported("recorded passes: found what knows no way to record its own"); }
  /// Returns which of these the next pass is, from 0.
  virtual int turn() const { return 0; }
  /// Called before each replay of a pass: does what issuing the pass does beside enqueuing it.
  virtual void before_replay() {}
};

/// How paced tasks slow each other down, on this rank and others.
struct Contended {
  Pacer* pacer = nullptr;  // none: they don't
  int rank = 0;
  std::vector<int> resources = {};  // by task, what it uses
};

/// When a task began and ended on this rank, in seconds from the start of the run. A collective begins when it
/// could begin here, so its time holds the wait for its other ranks.
struct TaskTime {
  double start_s = 0, end_s = 0;
};

struct RunTimes {
  double begin_s = 0;           // now_s() when the run started
  TaskTime pass;                // from the first task's start to the last one's end
  std::vector<TaskTime> tasks;  // by task id; of a replay that has none, zeros
  int64_t overruns = 0;         // tasks whose work outlasted their pace
};

/// What of a replay has times: the pass as a whole, which costs it nothing, or each task too.
enum class Timed : uint8_t { pass, tasks };

class Executor {
 public:
  /// Makes all that run() needs, one stream a lane of the stage and two events a task: run() allocates nothing that
  /// lasts. Throws WrongResult naming the task if one is not in issue order (ids ascend in every lane's queue, and
  /// after what they wait for).
  Executor(Device& device, std::shared_ptr<const Structure> structure, int stage = 0);
  ~Executor();

  /// Runs one pass. at_least_s[i] is the pace of task i (0 or empty: unpaced). Blocks until every lane is done; throws
  /// the first exception of issue() or of the work, after which the rest is skipped. A pass can be run again then, if
  /// what the binding uses still can. `only`: the tasks that run in one phase, in the order that all have; those of the
  /// other keep their times. Other stages' tasks have no times. With a pacer, a pace is what its task takes alone.
  /// Where threads are paced, the first task begins when all are issued, if the binding allows that: issuing takes no
  /// time from them. `issued` is called just before it does: where ranks begin together.
  const RunTimes& run(Binding& binding, const std::vector<double>& at_least_s = {},
                      std::optional<Phase> only = std::nullopt, const Contended& contended = {},
                      const std::function<void()>& issued = {});

  /// Records a whole pass of `binding` as a CUDA graph, in each of its turns, after runs that make what a first pass
  /// makes. Throws Unsupported where the streams are not a GPU's, the host waits in a pass, or ranks meet on the host;
  /// else what run() does. Passes can be run after that as before. A second call replaces what the first recorded. The
  /// binding's layer, its communicators and its LayerDevice outlive the recording, and no other layer is made on that
  /// device meanwhile: it could make room anew. A replay whose communicator is aborted does not throw.
  void record(Binding& binding, const std::vector<double>& at_least_s = {}, Timed timed = Timed::pass);
  /// Runs one pass as run() does, by one launch of what was recorded of `binding`. Passes that are run and replayed may
  /// take turns. Throws BadInput if nothing was recorded.
  const RunTimes& replay(Binding& binding);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Finds which dependencies of a structure need an event at run time.

/// Returns for each task the tasks of other lanes whose end its lane must wait for. Left out are those that the lane's
/// order, or another wait, implies already. Throws WrongResult naming the task that is out of issue order.
std::vector<std::vector<int>> crossings_of(const Structure& structure);

}  // namespace moe
