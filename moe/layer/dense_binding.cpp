#include "moe/layer/dense_binding.h"

#include <algorithm>
#include <array>

namespace moe {

// Says what does a kind of task. A row has one of the two: a computation runs on its task's stream, an exchange is
// enqueued on it.
struct DenseBinding::Row {
  TaskKind kind;
  void (*compute)(DenseBinding&, const Task&) = nullptr;
  void (*exchange)(DenseBinding&, const Task&, CommCall) = nullptr;

  template <auto part, auto method>
  static constexpr Row computes(TaskKind kind) {
    return {kind, [](DenseBinding& b, const Task& task) { (b.*part.*method)(task); }};
  }
  template <auto part, auto method>
  static constexpr Row exchanges(TaskKind kind) {
    return {kind, nullptr, [](DenseBinding& b, const Task& task, CommCall call) { (b.*part.*method)(task, call); }};
  }
};

DenseBinding::DenseBinding(MoeLayer& layer, const Plan& plan)
    : layer_(layer.state()), plan_(plan), attention_(layer_), ffn_(layer_) {
  require<WrongResult>(plan.shape == layer.shape().shape && layer.shape().is_dense(),
                       "the plan is for {}, the layer is {}", describe(plan.shape.layer),
                       describe(layer.shape().shape.layer));
  require<WrongResult>(plan.structure->flow == layer.shape().flow, "the plan's flow is {}, the layer's {}",
                       name_of(plan.structure->flow), name_of(layer.shape().flow));
  for (const Task& task : plan_.tasks()) names_.push_back(task.name());
}

void DenseBinding::issue(const Task& task, Stream& stream, Pace pace) {
  using B = DenseBinding;
  using enum TaskKind;
  static constexpr std::array kRows{
      Row::computes<&B::attention_, &layer::AttentionPart::attention>(attention),
      Row::computes<&B::attention_, &layer::AttentionPart::attention>(attention_dx),
      Row::computes<&B::attention_, &layer::AttentionPart::attention_dw>(attention_dw),
      Row::exchanges<&B::attention_, &layer::AttentionPart::mp_allgather>(mp_allgather),
      Row::exchanges<&B::attention_, &layer::AttentionPart::mp_reducescatter>(mp_reducescatter),
      Row::exchanges<&B::attention_, &layer::AttentionPart::mp_allreduce>(mp_allreduce),
      Row::computes<&B::ffn_, &layer::FfnPart::ffn>(ffn),
      Row::exchanges<&B::ffn_, &layer::FfnPart::allgather>(ffn_allgather),
      Row::exchanges<&B::ffn_, &layer::FfnPart::reducescatter>(ffn_reducescatter),
      Row::exchanges<&B::ffn_, &layer::FfnPart::allreduce>(ffn_allreduce),
  };
  const auto* row = std::ranges::find(kRows, task.kind, &Row::kind);
  require<WrongResult>(row != kRows.end(), "{}: a task that a dense layer does not know", task.name());
  if (task.id == 0) layer_.gradients.begin_pass();
  if (row->exchange != nullptr) return row->exchange(*this, task, {stream, pace, names_[static_cast<size_t>(task.id)]});
  const Task* own = &plan_.tasks()[static_cast<size_t>(task.id)];
  stream.launch([this, own, compute = row->compute](void* native) {
    layer_.math().use(native);
    compute(*this, *own);
  });
}

}  // namespace moe
