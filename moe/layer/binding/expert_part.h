#pragma once
// Does the experts' tasks: brings rows from where they were gathered to where the experts compute, and back.
#include "moe/layer/binding/bound_plan.h"

namespace moe::layer {

class ExpertPart {
 public:
  ExpertPart(LayerState& layer, BoundPlan& plan);

  /// Brings the rows of the task's chunk to the experts, where the plan has a task for that.
  void copy(const Task& task);
  /// Passes a chunk through the experts: in a backward whole, or the half that makes the gradients of their input.
  void expert(const Task& task);
  /// Makes the gradients of the experts' weights, from what the first half left at its rows.
  void expert_dw(const Task& task);

 private:
  /// Says where a chunk's rows lie, by local expert: among all that the experts compute; in the chunk's own buffers,
  /// expert after expert.
  struct Places {
    std::vector<Rows> at, packed;
  };
  /// Sets the phase's places for `rows` of T_rank, and returns the rows of all experts together.
  int64_t place(Phase phase, Rows rows);

  LayerState& layer_;
  BoundPlan& plan_;
  std::array<Places, 2> places_;
};

}  // namespace moe::layer
