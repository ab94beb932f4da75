#include "moe/layer/binding.h"

#include <algorithm>
#include <array>

namespace moe {

void require_runnable(const Plan& plan) {
  require<Unsupported>(plan.layers == 1, "a layer runs plans of one layer, found {}", plan.layers);
  for (const Phase phase : {Phase::forward, Phase::backward}) chunk_counts_of(plan, phase);
}

void require_same_plan(Communicator& world_comm, const Plan& plan) {
  const uint64_t mine = plan.hash();
  std::vector<uint64_t> all(world_comm.size());
  const auto stream = make_cpu_device()->make_stream("plan hash");
  world_comm.allgather(&mine, all.data(), sizeof mine, {*stream, {}, "comparing plans"});
  stream->synchronize();
  for (size_t r = 1; r < all.size(); ++r)
    require<RankFailure>(all[r] == all[0],
                         "ranks have different layers, schedules or degrees: rank 0's plan is {:016x}, rank {}'s is "
                         "{:016x}",
                         all[0], r, all[r]);
}

// The function of a kind of task. A row has one of two functions: a computation runs on its task's stream, an exchange
// is enqueued on it.
struct LayerBinding::Row {
  TaskKind kind;
  void (*compute)(LayerBinding&, const Task&) = nullptr;
  void (*exchange)(LayerBinding&, const Task&, CommCall) = nullptr;

  template <auto part, auto method>
  static constexpr Row computes(TaskKind kind) {
    return {kind, [](LayerBinding& b, const Task& task) { (b.*part.*method)(task); }};
  }
  template <auto part, auto method>
  static constexpr Row exchanges(TaskKind kind) {
    return {kind, nullptr, [](LayerBinding& b, const Task& task, CommCall call) { (b.*part.*method)(task, call); }};
  }
  static constexpr Row gradients(TaskKind kind) {
    return {kind, nullptr, [](LayerBinding& b, const Task& task, CommCall call) { b.sum_gradient(task, call); }};
  }
};

const LayerBinding::Row& LayerBinding::row_of(const Task& task) {
  using B = LayerBinding;
  using enum TaskKind;
  static constexpr std::array kRows{
      Row::computes<&B::attention_, &layer::AttentionPart::attention>(attention),
      Row::computes<&B::attention_, &layer::AttentionPart::attention>(attention_dx),
      Row::computes<&B::attention_, &layer::AttentionPart::attention_dw>(attention_dw),
      Row::computes<&B::dense_, &layer::DensePart::gate>(gate),
      Row::computes<&B::dense_, &layer::DensePart::order>(order),
      Row::computes<&B::dense_, &layer::DensePart::i_order>(i_order),
      Row::exchanges<&B::attention_, &layer::AttentionPart::mp_allgather>(mp_allgather),
      Row::exchanges<&B::attention_, &layer::AttentionPart::mp_reducescatter>(mp_reducescatter),
      Row::exchanges<&B::attention_, &layer::AttentionPart::mp_allreduce>(mp_allreduce),
      Row::computes<&B::attention_, &layer::AttentionPart::keys_values>(keys_values),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_allgather>(cp_allgather),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_reducescatter>(cp_reducescatter),
      Row::computes<&B::attention_, &layer::AttentionPart::heads>(heads),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_send>(cp_send),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_gradient_send>(cp_gradient_send),
      Row::exchanges<&B::dense_, &layer::DensePart::tokens_allgather>(tokens_allgather),
      Row::exchanges<&B::dense_, &layer::DensePart::tokens_reducescatter>(tokens_reducescatter),
      Row::exchanges<&B::rows_, &layer::RowExchange::dispatch>(dispatch),
      Row::exchanges<&B::rows_, &layer::RowExchange::allgather>(allgather),
      Row::exchanges<&B::rows_, &layer::RowExchange::reducescatter>(reducescatter),
      Row::exchanges<&B::rows_, &layer::RowExchange::allreduce>(allreduce),
      Row::exchanges<&B::rows_, &layer::RowExchange::combine>(combine),
      Row::exchanges<&B::rows_, &layer::RowExchange::exchange>(exchange),
      Row::exchanges<&B::rows_, &layer::RowExchange::gather_home>(gather),
      Row::computes<&B::rows_, &layer::RowExchange::sum>(sum),
      Row::computes<&B::rows_, &layer::RowExchange::lay_out>(home_copy),
      Row::computes<&B::experts_, &layer::ExpertPart::copy>(copy),
      Row::computes<&B::experts_, &layer::ExpertPart::expert>(expert),
      Row::computes<&B::experts_, &layer::ExpertPart::expert>(expert_dx),
      Row::computes<&B::experts_, &layer::ExpertPart::expert_dw>(expert_dw),
      Row::computes<&B::shared_, &layer::SharedPart::shared>(shared),
      Row::exchanges<&B::shared_, &layer::SharedPart::allgather>(shared_allgather),
      Row::exchanges<&B::shared_, &layer::SharedPart::reducescatter>(shared_reducescatter),
      Row::exchanges<&B::shared_, &layer::SharedPart::allreduce>(shared_allreduce),
      Row::gradients(gradient),
      Row::gradients(expert_gradient),
  };
  static_assert(
      kRows.size() == kTaskKinds - 28,
      "every kind but send and recv, a model's ends (6), a step's (8), a dense layer's feed-forward (4), those "
      "of offloaded experts (3) and of serving (5)");
  const auto* row = std::ranges::find(kRows, task.kind, &Row::kind);
  require<WrongResult>(row != kRows.end(), "{}: a task that the layer does not know", task.name());
  return *row;
}

LayerBinding::LayerBinding(MoeLayer& layer, const Plan& plan)
    : layer_(layer.state()),
      plan_(layer_, plan),
      attention_(layer_),
      dense_(layer_, plan_),
      rows_(layer_, plan_),
      experts_(layer_, plan_),
      shared_(layer_),
      sizes_(layer_, plan_) {
  for (const Task& task : plan_.plan.tasks()) {
    names_.push_back(task.name());
    sums_experts_ |= task.kind == TaskKind::expert_gradient;
  }
}

void LayerBinding::before_replay() {
  layer_.gradients.begin_pass();
  layer_.experts_summed = sums_experts_;
}

void LayerBinding::begin_pass() {
  before_replay();
  sizes_.fit();
}

void LayerBinding::issue(const Task& task, Stream& stream, Pace pace) {
  if (task.id == 0) begin_pass();
  const Row& row = row_of(task);
  if (row.exchange != nullptr) return row.exchange(*this, task, {stream, pace, names_[task.id]});
  const Task* own = &plan_.plan.tasks()[task.id];
  stream.launch([this, own, compute = row.compute](void* native) {
    layer_.math().use(native);
    compute(*this, *own);
  });
}

void LayerBinding::finish_task(const Task& task, Stream& stream) {
  if (task.kind != TaskKind::gate || task.phase != Phase::forward) return;
  dense_.sum_statistics(stream);
  sizes_.exchange_counts(stream);
}

void LayerBinding::sum_gradient(const Task& task, CommCall call) {
  // Slices may end inside an element; both sides are cut alike, so they still cover each element once.
  const GradientSlice& slice = plan_.plan.slices[task.slice];
  const DType dtype = layer_.shape.dtype();
  const int64_t begin = slice.begin / bytes_of(dtype), end = slice.end / bytes_of(dtype);
  const bool experts = task.kind == TaskKind::expert_gradient;
  const TensorView all = experts ? layer_.expert_gradients.view() : layer_.gradients.pending.view();
  layer_.comms.communicator(task.group).allreduce(all.at(begin), end - begin, dtype, call);
}

// The function of a kind of task. A row has one of two functions: a computation runs on its task's stream, an exchange
// is enqueued on it.
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
  layer::check_case(plan.shape, layer.shape().shape, "layer");
  require<WrongResult>(layer.shape().is_dense(), "found an MoE layer, expected a dense layer: {}",
                       describe(plan.shape.layer));
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
      Row::computes<&B::attention_, &layer::AttentionPart::keys_values>(keys_values),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_allgather>(cp_allgather),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_reducescatter>(cp_reducescatter),
      Row::computes<&B::attention_, &layer::AttentionPart::heads>(heads),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_send>(cp_send),
      Row::exchanges<&B::attention_, &layer::AttentionPart::cp_gradient_send>(cp_gradient_send),
      Row::computes<&B::ffn_, &layer::FfnPart::ffn>(ffn),
      Row::exchanges<&B::ffn_, &layer::FfnPart::allgather>(ffn_allgather),
      Row::exchanges<&B::ffn_, &layer::FfnPart::reducescatter>(ffn_reducescatter),
      Row::exchanges<&B::ffn_, &layer::FfnPart::allreduce>(ffn_allreduce),
  };
  const auto* row = std::ranges::find(kRows, task.kind, &Row::kind);
  require<WrongResult>(row != kRows.end(), "{}: a task that a dense layer does not know", task.name());
  if (task.id == 0) layer_.gradients.begin_pass();
  if (row->exchange != nullptr) return row->exchange(*this, task, {stream, pace, names_[task.id]});
  const Task* own = &plan_.tasks()[task.id];
  stream.launch([this, own, compute = row->compute](void* native) {
    layer_.math().use(native);
    compute(*this, *own);
  });
}

}  // namespace moe
