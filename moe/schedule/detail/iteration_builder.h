#pragma once
// Builds the tasks of a whole iteration outside of its layers' passes: transfers between stages, a model's ends and the
// optimizer's step.
#include <map>
#include <utility>
#include <vector>

#include "moe/plan/pipeline.h"
#include "moe/schedule/layer_builder.h"

namespace moe::schedule {

class IterationBuilder : public LayerBuilder {
 public:
  using LayerBuilder::LayerBuilder;

  /// Sends a pass's output to the neighbouring stage, whose next pass of that micro-batch begins by receiving it.
  void transfer(const Pass& from);
  /// Adds a model's ends in the pass's phase and micro-batch. In a forward, embed() makes the first layer's input and
  /// head() takes the last one's output; in a backward, head() makes that output's gradient and embed() takes the first
  /// layer's. Both return the task that computes the end and makes its gradients.
  int embed(const Pass& pass);
  int head(const Pass& pass);
  /// Without a planned step: adds the slices that a stage has left, where `ready` has the task that each waits for and
  /// `experts` is as in GradientPlacement.
  void finish(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts = {});
  /// Also without a planned step: adds a task of a layer after the given ones; the optimizer's after all of the stage.
  int finish(TaskKind kind, int stage, int layer, const std::vector<int>& after);
  void optimize(int stage, int layer);
  /// Also without a planned step, right after optimize(): gathers the weights of a stage's layers from their replicas
  /// (ZeRO 1), in the order in which the next forward reads them.
  void gather_weights(int stage, const std::vector<int>& layers, const DenseLayers& dense);

  /// With a planned step, replaces the start of finish(): the next slices are those that the stage has left.
  void begin_left(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts);
  void send_left(size_t place) { gradient(place); }
  void end_left() { pass_ = nullptr; }
  /// Adds a task of Phase::step and returns it. `slice`: the slice of a sum of gradients.
  int step(TaskKind kind, int stage, int layer, const std::vector<int>& after, int slice = -1);
  const std::vector<Task>& tasks() const { return structure_.tasks; }
  int stage_of(const Task& task) const { return structure_.lanes[task.lane].stage; }
  bool has(GroupKind group, int stage) const { return lanes_.of(group, stage) >= 0; }

 private:
  bool rows_apart() const;
  Chain rows_of_end(const Chain& rows);
  Chain sum_of_end(int made, const Access& sum);

  Pass left_;
  std::map<int, Chain> head_inputs_;  // by micro-batch: the rows that the output projection reads
};

/// Builds an iteration's step: sums of gradients that no backward sends, the norm of all gradients, one optimizer task
/// per layer or end and, with ZeRO 1, the gathers after them. Each task waits only for its inputs.
class StepBuilder {
 public:
  /// The work that a stage has left after its last backward.
  struct Left {
    int stage = 0;
    int end = -1;          // the last task of its backwards
    bool experts = false;  // no backward has a place for the experts' gradients
  };

  StepBuilder(Plan& plan, IterationBuilder& builder);

  /// Sends the slices that a stage has left, where `ready` has the task that each waits for and `of_experts` is as in
  /// GradientPlacement, and sums the gradients that no slice contains.
  void send_left(const Left& left, const std::vector<int>& ready, const std::vector<bool>& of_experts);
  /// Adds the rest of the step after all stages have sent their remaining slices.
  void step();
  /// Without a planned step: sends the gradients of a stage's offloaded experts to the host.
  void store(int stage);

 private:
  std::vector<int> layers_of(int stage) const { return layers_of_stage(plan_.split(), stage); }
  int stages() const { return plan_.shape.parallel.pp; }
  void sum(int stage, const std::vector<Gradient>& gradients);
  void sum_alike(int stage);
  void sum_ends(int stage);
  void sum_tied(std::map<int, std::vector<int>>& sums);
  const std::vector<int>& makers(TaskKind kind, int layer) { return makers_[{kind, layer}]; }
  const std::vector<int>& makers_of(int layer);
  std::vector<std::vector<int>> senders(const std::vector<int>& finished) const;
  std::vector<std::pair<int, std::vector<int>>> stores(int stage, const std::vector<std::vector<int>>& sent_by);
  std::vector<int> stepped(int stage) const;
  void add_norms(const std::map<int, std::vector<int>>& sums, std::vector<int>& norms);
  void gather(int stage);

  Plan& plan_;
  LayerCases cases_;
  IterationBuilder& builder_;
  std::map<std::pair<TaskKind, int>, std::vector<int>> makers_;  // by kind and layer, in all backwards
};

}  // namespace moe::schedule
