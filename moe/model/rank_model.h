#pragma once
// A model on one rank: its stage's layers, the model's ends, and the optimizer that changes their weights. Gives the
// tasks of a plan that are no layer's their meaning.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "moe/layer/reference/stack_reference.h"
#include "moe/model/model_ends.h"
#include "moe/stack/stack_binding.h"
#include "moe/stack/stack_errors.h"
#include "moe/train/checkpoint.h"
#include "moe/train/optimizer.h"

namespace moe {

class RankModel final : public ModelTasks {
 public:
  /// Makes the model, blocking: all ranks of `world` make theirs. `stack` must outlive it. `step`: of the plan that
  /// runs it. Throws as ModelEnds does.
  RankModel(LayerStack& stack, Communicator& world, int64_t vocabulary, const StepShape& step, const LayerSeed& seed);

  ModelEnds& ends() { return ends_; }
  /// Returns this rank's part of every weight and gradient; a layer's are named "layer-3.wq".
  std::vector<Parameter> parameters();
  MemorySpace& memory() const { return math().memory(); }
  /// Lets the optimizer's tasks change the weights from now on; before, they leave the gradients whole and no more.
  /// Throws BadInput where gradients are to be clipped, and the plan has no norm.
  void train(const OptimizerSettings& settings);
  /// Lets the optimizer's tasks change nothing from now on; step() does that between passes.
  void step_apart() { apart_ = true; }
  void step(Stream& stream);
  /// Notes that a pass has ended, with all of its optimizer's tasks; where they change weights, that was a step. Throws
  /// WrongResult where it clipped by a norm that isn't finite. Blocking.
  void passed();
  int64_t steps() const { return steps_; }
  /// Returns what a checkpoint holds of this rank, in memory(): weights and the optimizer's states.
  std::vector<ShardedTensor> stored();
  /// Continues from weights and states that are those after so many steps.
  void go_on_from(int64_t steps) { steps_ = steps; }

  void issue(const Task& task, CommCall call) override;

 private:
  // Returns whether a number of a layer stands for the embedding or the head.
  bool of_end(int layer) const { return layer < 0 || layer == stack_.shape().layers; }
  Math& math() const { return stack_.front().state().math(); }
  std::vector<Parameter> parameters_of(int layer);
  void step_layer(int layer);
  void count_experts_once(int layer);
  void gather_end(int layer, Communicator& dp, CommCall call);
  void add_own_squares(void* native);
  // Returns the ranks that hold a weight alike and share its states: this one alone without ZeRO.
  WeightShare states_share(const Parameter& p) const;

  LayerStack& stack_;
  std::unique_ptr<Communicator> everyone_;   // of all stages
  std::unique_ptr<Communicator> ends_link_;  // of the ranks at this place in the end stages; null: nothing goes there
  std::optional<LayerComms> gathers_;        // of the stage, for steps between passes; with ZeRO alone
  ModelEnds ends_;
  StepShape step_;
  OptimizerSettings settings_;
  std::map<int, Optimizer> optimizers_;  // by layer, the ends' too
  bool apart_ = false;
  int64_t steps_ = 0;
  Tensor squares_;  // of all gradients: their sum, float64
};

// Compares a model's ranks, after a step that changed no weight, with the autograd reference.

/// Computes the reference of a step's tokens. `rank`: any; `choices` are followed where they are as good.
ModelReference reference_model(const RankCells& rank, const StackChoices& choices, const ModelEnds& ends,
                               const SampleTokens& tokens);

/// Compares the ends' gradients. Tensors are named as stack_errors names a layer's.
std::vector<TensorError> end_errors(ModelEnds& ends, const ModelReference& reference);

}  // namespace moe
