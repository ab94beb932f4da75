#pragma once
// What a model's passes are beside a layer's: steps of training, with losses; and their proof.
#include <vector>

#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/stack/stack_errors.h"

namespace moe {

/// `ranks`: of this process, each after passes of the first step that changed no weight. Returns the errors of all
/// layers and of the model's ends; throws WrongResult as verify_stack does.
std::vector<TensorError> verify_model(const std::vector<RankRun*>& ranks, const StackChoices& choices);

/// One schedule's steps on the ranks of this process.
class Training {
 public:
  /// From now on passes change the weights.
  void begin(const std::vector<RankRun*>& ranks, const OptimizerSettings& optimizer);
  /// A rank made a step; ranks may call it at once.
  void stepped(size_t place, RankRun& rank) { losses_[place].push_back(own_loss(rank)); }
  /// Sums the ranks' losses and takes that of held-out text. All processes call it.
  void read(World& world, const std::vector<RankRun*>& ranks, int held_out_batches, MeasuredRun& run) const;

 private:
  static double own_loss(const RankRun& rank);

  std::vector<std::vector<double>> losses_;  // [rank here][step]
};

}  // namespace moe
