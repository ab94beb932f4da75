#pragma once
// Builds an iteration's step: sums of gradients that no backward sends, the norm of all of them, the optimizer's tasks,
// a layer or end each, and with ZeRO 1 the gathers behind them. Each task waits for just what it needs.
#include <map>
#include <vector>

#include "moe/plan/pipeline.h"
#include "moe/schedule/iteration_builder.h"

namespace moe::schedule {

class StepBuilder {
 public:
  /// Says what a stage has left when its last backward is built.
  struct Left {
    int stage = 0;
    int end = -1;          // the last task of its backwards
    bool experts = false;  // no backward has a place for the experts' gradients
  };

  StepBuilder(Plan& plan, IterationBuilder& builder);

  /// Sends a stage's slices that are left, one for each of `ready`, the tasks that they wait for (`of_experts` as
  /// GradientPlacement's), and sums what no slice has.
  void send_left(const Left& left, const std::vector<int>& ready, const std::vector<bool>& of_experts);
  /// Adds all the rest of the step, once all stages have sent what they had left.
  void step();

 private:
  std::vector<int> layers_of(int stage) const { return layers_of_stage(plan_.split(), stage); }
  int stages() const { return plan_.shape.parallel.pp; }
  void sum(int stage, const std::vector<Gradient>& gradients);
  void sum_alike(int stage);
  void sum_ends(int stage);
  void sum_tied(std::map<int, std::vector<int>>& sums);
  const std::vector<int>& makers(TaskKind kind, int layer) { return makers_[{kind, layer}]; }
  const std::vector<int>& makers_of(int layer);
  std::vector<std::vector<int>> senders() const;
  std::vector<int> stepped(int stage) const;
  void add_norms(const std::map<int, std::vector<int>>& sums, std::vector<int>& norms);
  void gather(int stage);

  Plan& plan_;
  LayerCases cases_;
  IterationBuilder& builder_;
  std::map<std::pair<TaskKind, int>, std::vector<int>> makers_;  // by kind and layer: in all backwards
};

}  // namespace moe::schedule
