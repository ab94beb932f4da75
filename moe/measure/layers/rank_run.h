#pragma once
// One schedule on one rank, ready to run: a layer, this rank's stage of a stack, or a model, with the binding of its
// plan.
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/comm/communicator.h"
#include "moe/comm/world.h"
#include "moe/exec/executor.h"
#include "moe/layer/workload.h"
#include "moe/model/rank_model.h"
#include "moe/train/token_source.h"

namespace moe::measure {

/// The machine of a rank: ranks of the same machine share a clock and cores.
struct RankMachine {
  std::string name;
  int ranks_at_once = 1;  // how many ranks its cores can run at the same time
};

/// Returns each rank's machine, or the part of it to which its process is restricted. `threads`: those with which a
/// rank computes. Ranks on GPUs share no core. Every process of the world calls it.
std::vector<RankMachine> machines_of(World& world, DeviceKind device, int threads);
/// Returns a separate machine for each of `ranks` ranks, for runs in which paces determine the time of tasks.
std::vector<RankMachine> machines_apart(size_t ranks);

/// Sums the host's numbers over the ranks, through the memory of `device`, which has the call's stream. Blocking.
void sum_over_ranks(std::span<double> numbers, Device& device, Communicator& everyone, CommCall call);

// Makes tasks slower on purpose, to test the checks that guard performance.

/// Makes tasks of a kind take `factor` times as long as their work does.
struct Drag {
  TaskKind kind{};
  double factor = 1;
  int rank = kEveryRank;
  static constexpr int kEveryRank = -1;
  bool slows(int of_rank) const { return factor > 1 && (rank == kEveryRank || rank == of_rank); }
};

/// Reads "KIND:FACTOR" or "KIND:FACTOR:RANK", such as "expert:1.1" (both halves too); empty: nothing is slowed. Throws
/// BadInput that begins with `what`.
Drag drag_from(const std::string& text, const std::string& what);

/// Issues the tasks of another binding; after the work of a slowed task its stream spins. This does not work on GPUs,
/// whose streams are no threads.
class Dragged final : public Binding {
 public:
  Dragged(Binding& tasks, const Drag& drag) : tasks_(tasks), drag_(drag) {}
  void issue(const Task& task, Stream& stream, Pace pace) override;
  void settle(const Task& task, Stream& stream) override { tasks_.settle(task, stream); }
  bool can_issue_ahead() const override { return tasks_.can_issue_ahead(); }

 private:
  Binding& tasks_;
  Drag drag_;
};

/// Returns whether the plan is of one layer, once; otherwise it is that of a stack or a model.
bool one_layer(const Plan& plan);

/// Throws Unsupported naming the feature of a plan that no layer and no stack can run.
void require_runs(const Plan& plan);

class RankRun {
 public:
  struct Setup {
    DeviceKind kind = DeviceKind::cpu;
    AttentionBy attention = AttentionBy::own;
    int place = 0;    // number of the rank among those of its machine, each of which has a device
    int threads = 1;  // threads that compute on the CPU
    uint64_t seed = 1;
    const Workload& workload;
    const TokenSource* text = nullptr;  // for a model; outlives the run
    Drag drag = {};                     // tasks that are slowed on this rank
    bool step_apart = false;            // the optimizer of a model works between passes, in no task's time
    KnownComms* comms = nullptr;        // the rank's communicators, for layers only; null: the run splits its own
  };
  /// Makes the run, blocking: every rank of `world` makes its own. Throws as MoeLayer and LayerStack do.
  RankRun(const Plan& plan, Communicator& world, const Setup& setup);

  Device& device() const { return *device_; }
  /// Runs one pass (Executor::run).
  const RunTimes& pass(const std::vector<double>& at_least_s = {}, const Contended& contended = {},
                       const std::function<void()>& issued = {});
  /// Runs one pass of a serial plan, in step with the other ranks.
  const RunTimes& pass_in_step(Communicator& everyone);
  /// Records the pass of a layer, which replay() then runs as pass() does (Executor::record). All ranks call it. Also
  /// throws Unsupported for a stack and for a model.
  void record();
  const RunTimes& replay() { return executor_->replay(*binding_); }
  /// Returns the model on this rank; null if there are only layers. A pass is a step of it, on the text's next batch.
  RankModel* model() const { return model_.get(); }
  /// Returns the tokens of the first step, and their targets.
  SampleTokens first_step() const { return text_of(Split::train, 0); }
  /// Runs a forward of a batch of held-out text and returns this rank's part of its loss, for tokens that have the
  /// text's whole context before them (ModelEnds::loss).
  double held_out_loss(int64_t step);
  RankCells cells() const { return stack_ ? stack_->cells() : RankCells(*layer_); }
  /// Enqueues the sums that a layer's plan does not have (MoeLayer::finish_gradients).
  void finish_gradients(Stream& stream);

 private:
  SampleTokens text_of(Split split, int64_t step) const;
  void begin_step(Split split, int64_t step);
  void end_step();

  // Members are declared in the order in which they depend on each other.
  std::unique_ptr<Device> device_;
  std::unique_ptr<LayerDevice> layer_device_;  // null: the CPU's
  std::unique_ptr<MoeLayer> layer_;            // exactly one of these two is set
  std::unique_ptr<LayerStack> stack_;
  std::unique_ptr<RankModel> model_;  // model of the stack
  const TokenSource* text_;
  uint64_t seed_;                               // seed of the masks
  std::unique_ptr<Stream> steps_;               // stream of a model whose steps are apart
  std::unique_ptr<Binding> binding_, dragged_;  // dragged_: the timed binding if tasks are slowed
  std::unique_ptr<Executor> executor_;
};

// Runs each task alone and begins it on all ranks together, to measure its time when nothing else runs except the other
// ranks' share of the same task.

/// Returns the plan, of one stage, with every task waiting for the one issued before it. Its lanes do not change.
Plan serial_plan(const Plan& plan);

/// Lets no rank begin the next task before all have ended this one. All ranks' plans have the same number of tasks.
class InStep final : public Binding {
 public:
  InStep(Binding& tasks, Communicator& everyone) : tasks_(tasks), everyone_(everyone) {}
  void issue(const Task& task, Stream& stream, Pace pace) override { tasks_.issue(task, stream, pace); }
  void settle(const Task& task, Stream& stream) override;

 private:
  Binding& tasks_;
  Communicator& everyone_;
};

}  // namespace moe::measure
