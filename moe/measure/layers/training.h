#pragma once
// Training steps from a model's passes, with losses and checkpoints, and their verification.
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "moe/comm/world.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/model/gpt2_file.h"
#include "moe/stack/stack_errors.h"
#include "moe/train/optimizer.h"

namespace moe::measure {

/// The error of a training run that was stopped before its last step.
class TrainingStopped : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct TrainingSettings {
  const TokenSource* text = nullptr;
  OptimizerSettings optimizer = {};
  int held_out_batches = 0;  // number of held-out batches whose loss is computed after the last step
  /// The folder of checkpoints (moe/train/checkpoint.h). They are written every `every` steps (0: not), after the last
  /// step and when asked to stop; a run continues from the newest one. Empty: no checkpoints.
  std::string folder = {};
  int every = 0;
  /// One line that identifies the training; checkpoints with another identity are refused.
  std::string identity = {};
  const std::atomic<bool>* stop = nullptr;  // the run ends after the current step once this is true
  /// Files of weights. `weights` are loaded before training, after the gradients were verified on other weights;
  /// `save_weights` are written after the first schedule's training. Empty: no file.
  std::string weights = {}, save_weights = {};
};

/// Verifies a model. `ranks`: those of this process, after passes on the first step's tokens that changed no weight.
/// Returns the errors of all layers and ends; throws WrongResult as verify_stack.
std::vector<TensorError> verify_model(const std::vector<RankRun*>& ranks, const ModelReference& reference);

/// The bytes that a rank received from others, and the seconds of the transfer; both on the rank with the most.
struct ExchangeTotals {
  double bytes = 0, seconds = 0;
};

/// The training steps of one schedule on the ranks of this process.
class Training {
 public:
  /// Starts training, so that passes change the weights. Continues from the newest checkpoint, which any number of
  /// ranks may have written. All processes must call it. Throws BadInput naming the checkpoint if it belongs to another
  /// training.
  void begin(World& world, const std::vector<RankRun*>& ranks, const TrainingSettings& settings);
  /// Moves weights and optimizer states from the ranks that have trained to those of another plan of the same model,
  /// which then continue the training. `from`, `to`: ranks of this process. All processes must call it.
  ExchangeTotals move(World& world, const std::vector<RankRun*>& from, const std::vector<RankRun*>& to) const;
  /// Returns the number of steps before this run.
  int64_t first_step() const { return static_cast<int64_t>(earlier_.size()); }
  /// Records a step of a rank and writes a checkpoint if one is due. All ranks must call it, each on its own thread.
  /// Returns false if the run should end.
  bool record_step(size_t place, RankRun& rank, Communicator& world_comm, Stream& stream);
  /// Returns the loss of each step, including those before this run. All processes must call it.
  std::vector<double> losses(World& world) const;
  /// Returns whether the ranks were asked to stop.
  bool is_stopped() const { return stopped_; }
  /// Returns ": rank 2 was asked to stop" on the process of rank 0 if exactly one of several ranks was asked; else "".
  std::string stop_reason() const {
    return stopping_rank_ < 0 ? "" : fmt::format(": rank {} was asked to stop", stopping_rank_);
  }
  double held_out_loss(World& world, const std::vector<RankRun*>& ranks) const;

 private:
  bool stop_requested(Device& device, Communicator& world_comm, Stream& stream);
  void write(size_t place, RankRun& rank, Communicator& world_comm, Stream& stream) const;

  TrainingSettings settings_;
  std::atomic<bool> stopped_ = false;
  int stopping_rank_ = -1;
  std::vector<double> earlier_;              // losses before this run
  std::vector<std::vector<double>> losses_;  // [rank of this process][step of this run]: the rank's part of the loss
};

// Loading and saving a model's weights (moe/model/gpt2_file.h) with any number of ranks.

/// Loads the weights. All processes must call this function and the next, each with its ranks that ran `plan`.
void take_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan);
/// Saves the weights. Ranks write their parts to FILE.parts, which is removed once the file is written.
void save_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan);

}  // namespace moe::measure
