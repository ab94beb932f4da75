#pragma once
// Gives the tasks of a dense layer's passes (moe/plan/dense_layers.h) their meaning on one rank, as LayerBinding does
// those of a layer with experts.
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/layer/binding/attention_part.h"
#include "moe/layer/binding/ffn_part.h"
#include "moe/layer/moe_layer.h"

namespace moe {

class DenseBinding : public Binding {
 public:
  /// Binds a plan, whose structure is shared, to `layer`, which must outlive the binding. Throws WrongResult naming
  /// what differs unless the plan is of the layer's case and flow.
  DenseBinding(MoeLayer& layer, const Plan& plan);

  void issue(const Task& task, Stream& stream, Pace pace) override;
  void settle(const Task&, Stream&) override {}
  bool can_issue_ahead() const override { return true; }

 private:
  struct Row;  // says what does a kind of task

  LayerState& layer_;
  Plan plan_;
  layer::AttentionPart attention_;
  layer::FfnPart ffn_;
  std::vector<std::string> names_;  // of the tasks: communicators keep views of them
};

}  // namespace moe
