#pragma once
// A rank of a benchmark, ready to run one schedule: a layer, the rank's stage of a stack, or a model, bound to its
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
  int ranks_at_once = 1;  // number of ranks that its cores can run at the same time
};

/// Returns each rank's machine, limited to the cores that its process may use. `threads`: CPU threads per rank. Ranks
/// on GPUs share no core. Every process of the world must call it.
std::vector<RankMachine> machines_of(World& world, DeviceKind device, int threads);
/// Returns a separate machine for each of `ranks` ranks, for runs in which paces determine the time of tasks.
std::vector<RankMachine> one_machine_per_rank(size_t ranks);

/// Sums host numbers over all ranks in place, blocking. They go through `device`, which has the call's stream.
void sum_over_ranks(std::span<double> numbers, Device& device, Communicator& world_comm, CommCall call);

// Slowing tasks on purpose, to test the checks for performance regressions.

/// The tasks to slow: those of one kind take `factor` times as long as their work.
struct InjectedSlowdown {
  TaskKind kind{};
  double factor = 1;
  int rank = kEveryRank;
  static constexpr int kEveryRank = -1;
  bool slows(int of_rank) const { return factor > 1 && (rank == kEveryRank || rank == of_rank); }
};

/// Reads "KIND:FACTOR" or "KIND:FACTOR:RANK". "expert:1.1" also slows both halves of experts; an empty text slows
/// nothing. Throws BadInput whose text begins with `what`.
InjectedSlowdown injected_slowdown_from(const std::string& text, const std::string& what);

/// A binding that issues the tasks of another one and, after each slowed task, spins on its stream. Not for GPUs, whose
/// streams are not threads.
class SlowedBinding final : public Binding {
 public:
  SlowedBinding(Binding& tasks, const InjectedSlowdown& injected) : tasks_(tasks), injected_(injected) {}
  void issue(const Task& task, Stream& stream, Pace pace) override;
  void finish_task(const Task& task, Stream& stream) override { tasks_.finish_task(task, stream); }
  bool can_issue_ahead() const override { return tasks_.can_issue_ahead(); }

 private:
  Binding& tasks_;
  InjectedSlowdown injected_;
};

/// Returns whether the plan has a single layer and micro-batch; otherwise it is that of a stack or a model.
bool is_one_layer(const Plan& plan);

/// Throws Unsupported if neither a layer nor a stack can run the plan, naming the feature that prevents it.
void require_runs(const Plan& plan);

class RankRun {
 public:
  struct Setup {
    DeviceKind kind = DeviceKind::cpu;
    AttentionBy attention = AttentionBy::own;
    int place = 0;    // index of the rank on its machine, which selects its device
    int threads = 1;  // threads that compute on the CPU
    uint64_t seed = 1;
    const Workload& workload;
    const TokenSource* text = nullptr;  // text of a model; must outlive the run
    InjectedSlowdown injected = {};     // tasks to slow on this rank
    bool step_outside_pass = false;     // a model's optimizer runs between passes, outside of tasks
    CommsCache* comms = nullptr;        // communicators to reuse, for layers only; null: the run splits its own
  };
  /// Blocking: every rank of `world` must create its own. Throws as MoeLayer and LayerStack.
  RankRun(const Plan& plan, Communicator& world, const Setup& setup);

  Device& device() const { return *device_; }
  /// Runs one pass (Executor::run).
  const RunTimes& pass(const std::vector<double>& at_least_s = {}, const ContentionContext& contended = {},
                       const std::function<void()>& issued = {});
  /// Runs one pass of a serial plan; each task begins on all ranks together.
  const RunTimes& lockstep_pass(Communicator& world_comm);
  /// Records the pass of a layer (Executor::record), which replay() then runs. All ranks must call it. Throws
  /// Unsupported also for a stack or a model.
  void record();
  const RunTimes& replay() { return executor_->replay(*binding_); }
  /// Returns the model on this rank; null if there are only layers. A pass is a training step on the next batch of the
  /// text.
  RankModel* model() const { return model_.get(); }
  /// Returns the tokens and targets of the first step.
  SampleTokens first_step() const { return text_of(Split::train, 0); }
  /// Runs the forward of a batch of held-out text and returns this rank's part of the loss of tokens with the full
  /// context before them (ModelEnds::loss).
  double held_out_loss(int64_t step);
  RankCells cells() const { return stack_ ? stack_->cells() : RankCells(*layer_); }
  /// Enqueues the sums of gradients that a layer's plan does not contain (MoeLayer::finish_gradients).
  void finish_gradients(Stream& stream);

 private:
  SampleTokens text_of(Split split, int64_t step) const;
  void begin_step(Split split, int64_t step);
  void end_step();

  // Members are declared in the order in which they depend on each other.
  std::unique_ptr<Device> device_;
  std::unique_ptr<LayerDevice> layer_device_;  // null: on the CPU
  std::unique_ptr<MoeLayer> layer_;            // exactly one of layer_ and stack_ is set
  std::unique_ptr<LayerStack> stack_;
  std::unique_ptr<RankModel> model_;  // of the stack, if it is a model's
  const TokenSource* text_;
  uint64_t seed_;                              // seed of masked tokens
  std::unique_ptr<Stream> steps_;              // stream of the optimizer if Setup::step_outside_pass
  std::unique_ptr<Binding> binding_, slowed_;  // dragged_: set if tasks are slowed
  std::unique_ptr<Executor> executor_;
};

// Running each task alone, beginning on all ranks together, to measure its time while nothing else runs.

/// Returns a plan of one stage in which every task also waits for the task issued before it. Lanes stay the same.
Plan serial_plan(const Plan& plan);

/// A binding in which no rank begins a task before all ranks have ended the previous one. All ranks must have the same
/// number of tasks.
class LockstepBinding final : public Binding {
 public:
  LockstepBinding(Binding& tasks, Communicator& world_comm) : tasks_(tasks), world_comm_(world_comm) {}
  void issue(const Task& task, Stream& stream, Pace pace) override { tasks_.issue(task, stream, pace); }
  void finish_task(const Task& task, Stream& stream) override;

 private:
  Binding& tasks_;
  Communicator& world_comm_;
};

}  // namespace moe::measure
