#pragma once
// Turns a model's passes into steps of training, with losses and checkpoints, and verifies them.
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
class Stopped : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct TrainingSettings {
  const TokenSource* text = nullptr;
  OptimizerSettings optimizer = {};
  int held_out_batches = 0;  // batches over which a loss is computed after the last step
  /// The folder into which checkpoints (moe/train/checkpoint.h) are written, every `every` steps (0: never), after the
  /// last step and when asked to stop; a run begins at the newest checkpoint. Empty: no checkpoints.
  std::string folder = {};
  int every = 0;
  std::string identity = {};                // one line; a checkpoint with another identity is refused
  const std::atomic<bool>* stop = nullptr;  // set: the run ends after its step
  /// Files of weights: `weights` are those at the beginning of training, once the first step's gradients were verified
  /// on other weights; `save_weights` are those at the end of the first schedule. Empty: no file.
  std::string weights = {}, save_weights = {};
};

/// Verifies a model. `ranks`: those of this process, each after passes of the first step that changed no weight.
/// Returns the errors of all layers and of the model's ends; throws WrongResult as verify_stack does.
std::vector<TensorError> verify_model(const std::vector<RankRun*>& ranks, const ModelReference& reference);

/// What ranks got from each other, and for how long all were at it: of the rank with most.
struct Moved {
  double bytes = 0, seconds = 0;
};

/// Runs one schedule's steps on the ranks of this process.
class Training {
 public:
  /// Lets later passes change the weights. Continues from the newest checkpoint, whatever the number of ranks that
  /// wrote it. All processes call it. Throws BadInput naming the checkpoint if it is that of another training.
  void begin(World& world, const std::vector<RankRun*>& ranks, const TrainingSettings& settings);
  /// Makes ranks of another plan of the same model go on where those that trained it are: moves weights and states to
  /// the ranks that need them. `from`, `to`: of this process. All processes call it.
  Moved move(World& world, const std::vector<RankRun*>& from, const std::vector<RankRun*>& to) const;
  /// Counts the steps before this run.
  int64_t first_step() const { return static_cast<int64_t>(earlier_.size()); }
  /// Records that a rank made a step; all ranks call it, each on its own thread. Writes a checkpoint if one is due.
  /// Returns false if the run should end.
  bool stepped(size_t place, RankRun& rank, Communicator& everyone, Stream& stream);
  /// Returns the loss of each step, the earlier ones first. All processes call it.
  std::vector<double> losses(World& world) const;
  /// Returns whether the ranks were asked to stop.
  bool is_stopped() const { return stopped_; }
  /// Returns ": rank 2 was asked to stop" if one of several ranks ended the run, on the process of rank 0.
  std::string stopped_by() const {
    return stopped_by_ < 0 ? "" : fmt::format(": rank {} was asked to stop", stopped_by_);
  }
  double held_out_loss(World& world, const std::vector<RankRun*>& ranks) const;

 private:
  bool asked_to_stop(Device& device, Communicator& everyone, Stream& stream);
  void write(size_t place, RankRun& rank, Communicator& everyone, Stream& stream) const;

  TrainingSettings settings_;
  std::atomic<bool> stopped_ = false;
  int stopped_by_ = -1;
  std::vector<double> earlier_;              // losses before this run
  std::vector<std::vector<double>> losses_;  // [rank here][step of this run]: each rank's part of the losses
};

// Reads a model's weights from a file and writes them into one (moe/model/gpt2_file.h), on any number of ranks.

/// Reads the weights. All processes call this function and the next, each with its ranks that ran `plan`.
void take_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan);
/// Writes the weights; parts are kept in FILE.parts until the file is written.
void save_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan);

}  // namespace moe::measure
