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
  /// Blocking: all ranks of `world` must construct theirs. `stack` must outlive the model. `step` is the step phase of
  /// the plan that will run it. Throws as ModelEnds does.
  RankModel(LayerStack& stack, Communicator& world, int64_t vocabulary, const StepShape& step, const LayerSeed& seed);

  ModelEnds& ends() { return ends_; }
  /// Returns this rank's part of every weight and gradient; a layer's are named "layer-3.wq".
  std::vector<Parameter> parameters();
  MemorySpace& memory() const { return math().memory(); }
  /// Lets the optimizer's tasks change the weights in all later passes; until then they only complete the gradients.
  /// Throws BadInput if the settings clip gradients but the plan computes no norm.
  void train(const OptimizerSettings& settings);
  /// Lets the optimizer's tasks change nothing in later passes; step() changes the weights between passes instead.
  void step_outside_pass() { apart_ = true; }
  void step(Stream& stream);
  /// Called after a pass whose optimizer tasks have all ended; counts a step if train() was called before. Throws
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
  // Returns the weights of a layer that the optimizer changes on the device (Offload::none) or on the host.
  std::vector<Parameter> parameters_stepped_on(Offload where, int layer);
  void step_layer(Offload where, int layer);
  // Returns the host's copy of an offloaded gradient.
  TensorView host_gradient(TensorView gradient) const;
  bool offloads() const { return stack_.shape().shape.parallel.offload == Offload::experts; }
  void count_experts_once(int layer);
  void gather_end(int layer, Communicator& dp, CommCall call);
  void add_own_squares(void* native);
  // Returns this rank's share of a weight's optimizer states; without ZeRO, all of them.
  WeightShare states_share(const Parameter& p) const;

  LayerStack& stack_;
  std::unique_ptr<Communicator> world_comm_;  // all ranks of all stages
  std::unique_ptr<Communicator> ends_link_;   // this rank's place in both end stages, for a tied embedding; else null
  std::optional<LayerComms> gathers_;         // communicators for gathers in step(); only with ZeRO
  ModelEnds ends_;
  StepShape step_;
  OptimizerSettings settings_;
  EnumArray<Offload, std::map<int, Optimizer>, 2> optimizers_;  // by where and by layer, including the ends
  bool apart_ = false;
  int64_t steps_ = 0;
  Tensor squares_;  // the sum of squares of all gradients, float64
};

// Compares a model's ranks, after a step that changed no weight, with the autograd reference.

/// Computes the reference of a step's tokens, from the cells of any rank. It follows `choices` whose scores are as good
/// as those of its own choices.
ModelReference reference_model(const RankCells& rank, const StackChoices& choices, const ModelEnds& ends,
                               const SampleTokens& tokens);

/// Returns the errors of the ends' gradients. Tensors are named as in stack_errors.
std::vector<TensorError> end_errors(ModelEnds& ends, const ModelReference& reference);

}  // namespace moe
