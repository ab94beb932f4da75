#pragma once
// A model on one rank: its stage's layers, the model's ends, and the optimizer that changes their weights. Implements
// the tasks of a plan that belong to no layer.
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/layer/reference/stack_reference.h"
#include "moe/model/model_ends.h"
#include "moe/stack/stack_binding.h"
#include "moe/stack/stack_errors.h"
#include "moe/train/checkpoint.h"
#include "moe/train/optimizer.h"

namespace moe {

class RankModel final : public ModelTasks {
 public:
  /// Makes the model, blocking: all ranks of `world` make theirs. `stack` must outlive it. `step`: that of the plan
  /// that runs the model. Throws as ModelEnds does.
  RankModel(LayerStack& stack, Communicator& world, int64_t vocabulary, const StepShape& step, const LayerSeed& seed);

  ModelEnds& ends() { return ends_; }
  /// Returns this rank's part of every weight and gradient; a layer's are named "layer-3.wq".
  std::vector<Parameter> parameters();
  MemorySpace& memory() const { return math().memory(); }
  /// Lets the optimizer's tasks change the weights in all later passes; before, they only leave the gradients whole.
  /// Throws BadInput if gradients should be clipped but the plan has no norm.
  void train(const OptimizerSettings& settings);
  /// Lets the optimizer's tasks change nothing in later passes; step() changes the weights between passes instead.
  void step_apart() { apart_ = true; }
  void step(Stream& stream);
  /// Records that a pass with all of its optimizer's tasks has ended; if they change weights, that was a step. Throws
  /// WrongResult if the step clipped by a norm that isn't finite. Blocking.
  void end_pass();
  int64_t steps() const { return steps_; }
  /// Returns this rank's part of a checkpoint, in memory(): weights and the optimizer's states.
  std::vector<ShardedTensor> stored_tensors();
  /// Continues after `steps` steps, whose weights and optimizer states have been loaded already.
  void resume_from(int64_t steps) { steps_ = steps; }

  void issue(const Task& task, CommCall call) override;

 private:
  // Returns whether a layer number means the embedding or the head.
  bool is_end_layer(int layer) const { return layer < 0 || layer == stack_.shape().layers; }
  Math& math() const { return stack_.front().state().math(); }
  std::vector<Parameter> parameters_of(int layer);
  // Returns the weights that the optimizer steps on the device, or on the host.
  std::vector<Parameter> stepped_on(Offload where, int layer);
  void step_layer(Offload where, int layer);
  // Returns the host's copy of an offloaded gradient.
  TensorView host_gradient(TensorView gradient) const;
  bool offloads() const { return stack_.shape().shape.parallel.offload == Offload::experts; }
  void count_experts_once(int layer);
  void gather_end(int layer, Communicator& dp, CommCall call);
  void add_own_squares(void* native);
  // Returns the share of a weight's states among the ranks that hold it: all of it without ZeRO.
  WeightShare states_share(const Parameter& p) const;

  LayerStack& stack_;
  std::unique_ptr<Communicator> world_comm_;  // all ranks of all stages
  std::unique_ptr<Communicator> ends_link_;   // between the ranks at this place in the end stages; null: not needed
  std::optional<LayerComms> gathers_;         // of the stage, for steps between passes; only with ZeRO
  ModelEnds ends_;
  StepShape step_;
  OptimizerSettings settings_;
  EnumArray<Offload, std::map<int, Optimizer>, 2> optimizers_;  // by where and by layer, including the ends
  bool apart_ = false;
  int64_t steps_ = 0;
  Tensor squares_;  // the sum of squares of all gradients, float64
};

// Compares a model's ranks, after a step that changed no weight, with the autograd reference.

/// Computes the reference of a step's tokens. `rank`: any; `choices` are followed if they are as good as its own.
ModelReference reference_model(const RankCells& rank, const StackChoices& choices, const ModelEnds& ends,
                               const SampleTokens& tokens);

/// Returns the errors of the ends' gradients. Tensors are named as in stack_errors.
std::vector<TensorError> end_errors(ModelEnds& ends, const ModelReference& reference);

}  // namespace moe
