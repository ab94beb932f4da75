#pragma once
// One schedule on one rank, ready to run: a layer, this rank's stage of a stack, or a model, with what its plan binds
// to it.
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

/// Finds which ranks share a clock and cores.
struct RankMachine {
  std::string name;
  int ranks_at_once = 1;  // that its cores can carry
};

/// Returns each rank's machine, or the part of it that its process is kept to. `threads`: that a rank computes with.
/// Ranks on GPUs share no core. Every process of the world calls it.
std::vector<RankMachine> machines_of(World& world, DeviceKind device, int threads);
/// Returns a machine of its own for each of so many ranks, for where paces say what tasks take.
std::vector<RankMachine> machines_apart(size_t ranks);

/// Sums the host's numbers over the ranks, by way of the memory of `device`, which the call's stream is of. Blocking.
void sum_over_ranks(std::span<double> numbers, Device& device, Communicator& everyone, CommCall call);

// Makes tasks slower on purpose, to see whether what guards performance notices.

/// Makes tasks of a kind take `factor` times as long as their work does.
struct Drag {
  TaskKind kind{};
  double factor = 1;
  int rank = kEveryRank;
  static constexpr int kEveryRank = -1;
  bool slows(int of_rank) const { return factor > 1 && (rank == kEveryRank || rank == of_rank); }
};

/// Reads "KIND:FACTOR" or "KIND:FACTOR:RANK", "expert:1.1" (both halves too); empty: nothing is slowed. Throws
/// BadInput that begins with `what`.
Drag drag_from(const std::string& text, const std::string& what);

/// Issues what another binding does; behind the work of a slowed task its stream spins. GPUs can't be slowed so: their
/// streams are no threads.
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

/// Returns whether the plan is of one layer, once; else it is a stack's or a model's.
bool one_layer(const Plan& plan);

/// Throws Unsupported naming what of a plan no layer and no stack can run.
void require_runs(const Plan& plan);

class RankRun {
 public:
  struct Setup {
    DeviceKind kind = DeviceKind::cpu;
    AttentionBy attention = AttentionBy::own;
    int place = 0;    // of the rank among those of its machine, which have a device each
    int threads = 1;  // to compute with on the CPU
    uint64_t seed = 1;
    const Workload& workload;
    const TokenSource* text = nullptr;  // of a model; outlives the run
    Drag drag = {};                     // what is slowed on this rank
    bool step_apart = false;            // a model's optimizer does its work between passes, in no task's time
    KnownComms* comms = nullptr;        // that the rank has, for layers alone; none: its own are split
  };
  /// Makes the run, blocking: every rank of `world` makes its own. Throws as MoeLayer and LayerStack do.
  RankRun(const Plan& plan, Communicator& world, const Setup& setup);

  Device& device() const { return *device_; }
  /// Runs one pass (Executor::run).
  const RunTimes& pass(const std::vector<double>& at_least_s = {}, const Contended& contended = {},
                       const std::function<void()>& issued = {});
  /// Runs one pass of a serial plan, in step with the other ranks.
  const RunTimes& pass_in_step(Communicator& everyone);
  /// Records the pass of a layer, which replay() then runs as pass() does (Executor::record). All ranks call it. Throws
  /// Unsupported too for a stack and for a model.
  void record();
  const RunTimes& replay() { return executor_->replay(*binding_); }
  /// Returns the model on this rank; null: there are layers alone. A pass is a step of it, of the text's next batch.
  RankModel* model() const { return model_.get(); }
  /// Returns the tokens of the first step, and what is to be predicted.
  SampleTokens first_step() const { return text_of(Split::train, 0); }
  /// Runs a forward of a batch of held-out text and returns what this rank adds to its loss, of tokens that have the
  /// text's whole context before them (ModelEnds::loss).
  double held_out_loss(int64_t step);
  RankCells cells() const { return stack_ ? stack_->cells() : RankCells(*layer_); }
  /// Enqueues the sums that a layer's plan does not carry (MoeLayer::finish_gradients).
  void finish_gradients(Stream& stream);

 private:
  SampleTokens text_of(Split split, int64_t step) const;
  void begin_step(Split split, int64_t step);
  void end_step();

  // Members stand in the order in which they need each other.
  std::unique_ptr<Device> device_;
  std::unique_ptr<LayerDevice> layer_device_;  // null: the CPU's
  std::unique_ptr<MoeLayer> layer_;            // one of these two
  std::unique_ptr<LayerStack> stack_;
  std::unique_ptr<RankModel> model_;  // of the stack
  const TokenSource* text_;
  uint64_t seed_;                               // of the masks
  std::unique_ptr<Stream> steps_;               // of a model whose steps are apart
  std::unique_ptr<Binding> binding_, dragged_;  // dragged: what is timed, where something is slowed
  std::unique_ptr<Executor> executor_;
};

// Runs tasks alone, and begins each on all ranks together: what each takes where nothing runs beside it but the other
// ranks' share of the same.

/// Returns the plan, of one stage, with every task waiting for the one issued before it. Its lanes stay.
Plan serial_plan(const Plan& plan);

/// Lets no rank go on to the next task before all have ended this one. The ranks' plans have equally many tasks.
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
