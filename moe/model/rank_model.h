#pragma once
// A model on one rank: its stage's layers, the model's ends, and the optimizer that changes their weights. Gives the
// tasks of a plan that are no layer's their meaning.
#include <memory>
#include <optional>
#include <vector>

#include "moe/model/model_ends.h"
#include "moe/stack/stack_binding.h"
#include "moe/train/checkpoint.h"
#include "moe/train/optimizer.h"

namespace moe {

class RankModel final : public ModelTasks {
 public:
  /// Blocking: all ranks of `world` make theirs. `stack` must outlive it. Throws as ModelEnds does.
  RankModel(LayerStack& stack, Communicator& world, int64_t vocabulary, const LayerSeed& seed);

  ModelEnds& ends() { return ends_; }
  /// This rank's part of every weight and gradient; a layer's are named "layer-3.wq".
  std::vector<Parameter> parameters();
  /// From now on an optimizer's task changes the weights; before, it leaves the gradients whole and no more.
  void train(const OptimizerSettings& settings);
  /// An optimizer's task is an instant from now on; step() does its work between passes.
  void step_apart() { apart_ = true; }
  void step(Stream& stream) { finish_step(stream); }
  int64_t steps() const { return steps_; }
  /// Returns what a checkpoint holds of this rank: weights and the optimizer's states.
  std::vector<ShardedTensor> stored();
  /// The weights and states are those after so many steps.
  void go_on_from(int64_t steps) { steps_ = steps; }

  void issue(const Task& task, Stream& stream) override;

 private:
  void finish_step(Stream& stream);
  void gather_weights(Stream& stream);
  double own_squares();
  // The ranks that hold a weight alike and share its states: itself alone without ZeRO.
  WeightShare states_share(const Parameter& p) const;

  LayerStack& stack_;
  std::unique_ptr<Communicator> everyone_;  // of all stages
  std::optional<LayerComms> gathers_;       // of the stage, for weights that no plan gathers; with ZeRO alone
  ModelEnds ends_;
  OptimizerSettings settings_;
  std::optional<Optimizer> optimizer_;
  bool apart_ = false;
  int64_t steps_ = 0;
  Tensor squares_;  // of all gradients, float64
};

}  // namespace moe
