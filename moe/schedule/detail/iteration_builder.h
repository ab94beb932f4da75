#pragma once
// Adds the tasks of an iteration that do not belong to a layer's pass: transfers between stages, a model's ends and the
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

  /// Adds the send of a pass's output to the neighbouring stage. That stage's pass of the micro-batch adds the receive.
  void transfer(const Pass& from);
  /// These add an end of the model in the phase and micro-batch of `pass`, and return the task that computes it. In a
  /// forward, embed() writes the first layer's input and head() reads the last layer's output; in a backward, head()
  /// writes the gradient of that output and embed() reads the gradient of that input.
  int embed(const Pass& pass);
  int head(const Pass& pass);
  /// Without a planned step: sends the slices of a stage that no backward sent. `ready`: for each slice, the task that
  /// it waits for; `experts`: as in GradientPlacement.
  void finish(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts = {});
  /// Without a planned step: these add a task of a layer that waits for `after`, and the optimizer's task, which waits
  /// for all tasks of the stage.
  int finish(TaskKind kind, int stage, int layer, const std::vector<int>& after);
  void optimize(int stage, int layer);
  /// Without a planned step, directly after optimize(): adds the gathers of the weights of a stage's layers (ZeRO 1),
  /// in the order in which the next forward reads them.
  void gather_weights(int stage, const std::vector<int>& layers, const DenseLayers& dense);

  /// With a planned step, these send the slices of a stage that no backward sent: begin_remaining(), send_remaining()
  /// for each slice by its position in `ready`, end_remaining().
  void begin_remaining(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts);
  void send_remaining(size_t place) { gradient(place); }
  void end_remaining() { pass_ = nullptr; }
  /// Adds a task of Phase::step and returns its id. `slice`: the slice of a sum of gradients; -1: another task.
  int step(TaskKind kind, int stage, int layer, const std::vector<int>& after, int slice = -1);
  const std::vector<Task>& tasks() const { return structure_.tasks; }
  int stage_of(const Task& task) const { return structure_.lanes[task.lane].stage; }
  bool has(GroupKind group, int stage) const { return lanes_.lane(group, stage) >= 0; }

 private:
  bool shards_rows_over_mp() const;
  Chain rows_of_end(const Chain& rows);
  Chain sum_of_end(int made, const Access& sum);

  Pass remaining_;
  std::map<int, Chain> head_inputs_;  // for each micro-batch, the rows that the output projection reads
};

/// Builds an iteration's step: sums of gradients that no backward sends, the norm of all gradients, one optimizer task
/// per layer or end and, with ZeRO 1, the gathers after them. Each task waits only for its inputs.
class StepBuilder {
 public:
  /// A stage after its last backward.
  struct RemainingGradients {
    int stage = 0;
    int end = -1;          // the last task of its backwards
    bool experts = false;  // the backwards do not send the experts' gradients
  };

  StepBuilder(Plan& plan, IterationBuilder& builder);

  /// Sends the slices of a stage that no backward sent, and adds sums for gradients that no slice contains. `ready`:
  /// for each slice, the task that it waits for; `of_experts`: as in GradientPlacement.
  void send_remaining(const RemainingGradients& remaining, const std::vector<int>& ready,
                      const std::vector<bool>& of_experts);
  /// Adds the rest of the step after all stages have sent their remaining slices.
  void step();
  /// Without a planned step: sends the gradients of a stage's offloaded experts to the host.
  void store(int stage);

 private:
  std::vector<int> layers_of(int stage) const { return layers_of_stage(plan_.split(), stage); }
  int stages() const { return plan_.shape.parallel.pp; }
  void sum(int stage, const std::vector<Gradient>& gradients);
  void sum_replicated(int stage);
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
  /// By kind of task and layer: the tasks of all backwards that make gradients.
  std::map<std::pair<TaskKind, int>, std::vector<int>> makers_;
};

}  // namespace moe::schedule
