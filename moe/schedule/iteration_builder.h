#pragma once
// Builds what a whole iteration has beside its layers' passes: transfers between stages, a model's ends, the
// optimizer's step.
#include <vector>

#include "moe/schedule/layer_builder.h"

namespace moe::schedule {

class IterationBuilder : public LayerBuilder {
 public:
  using LayerBuilder::LayerBuilder;

  /// Sends what a pass made to the neighbouring stage, whose next pass of that micro-batch receives it first.
  void transfer(const Pass& from);
  /// Adds a model's ends, of the pass's phase and micro-batch. Forward, embed() makes the first layer's input and
  /// head() takes the last one's output; backward, head() makes that output's gradient and embed() takes the first
  /// layer's. Both return the task that computes, and has made the end's gradients.
  int embed(const Pass& pass);
  int head(const Pass& pass);
  /// Adds, where a step is not planned, the slices that a stage has left, one for each of `ready`, the tasks that they
  /// wait for, and the optimizer's task after everything that the stage does; `experts` as GradientPlacement's.
  void finish(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts = {});
  /// Gathers likewise, right after finish(), the weights of a stage's layers from the ranks that hold them alike (ZeRO
  /// 1), in the order in which the next forward reads them.
  void gather_weights(int stage, const std::vector<int>& layers, const DenseLayers& dense);

  /// Begins, where a step is planned, what finish() does else: the next slices are those that the stage has left.
  void begin_left(int stage, int layer, const std::vector<int>& ready, const std::vector<bool>& experts);
  void send_left(size_t place) { gradient(place); }
  void end_left() { pass_ = nullptr; }
  /// Adds a task of Phase::step and returns it. `slice`: of a sum of gradients.
  int step(TaskKind kind, int stage, int layer, const std::vector<int>& after, int slice = -1);
  const std::vector<Task>& tasks() const { return structure_.tasks; }
  bool has(GroupKind group, int stage) const { return lanes_.of(group, stage) >= 0; }

 private:
  bool rows_apart() const;
  Chain rows_of_end(const Chain& rows);
  Chain sum_of_end(int made, const Access& sum);

  Pass left_;
  std::map<int, Chain> head_inputs_;  // by micro-batch: the rows that the output projection reads
};

}  // namespace moe::schedule
