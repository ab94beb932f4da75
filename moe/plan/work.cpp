// Says what each task moves or computes on a rank, in each flow.
#include <algorithm>

#include "moe/base/check.h"
#include "moe/plan/pipeline.h"
#include "moe/plan/plan.h"
#include "moe/plan/task_traits.h"

namespace moe {
namespace {

// Counts copies of a rank's own T_rank rows.
double copies(Flow flow, TaskKind kind, const ParallelShape& p) {
  const FlowTraits& f = traits_of(flow);
  const double all_groups = f.gates == Tokens::esp_groups ? p.mp * p.esp : p.mp;
  const double sent = f.sends_all_groups() ? all_groups : f.fused() ? p.esp : 1;
  switch (kind) {
    case TaskKind::dispatch:
    case TaskKind::combine:
    case TaskKind::exchange:
    case TaskKind::sum:
      return sent;
    case TaskKind::expert:
    case TaskKind::expert_dx:
    case TaskKind::expert_dw:
      return f.expert_copies(p);
    case TaskKind::gather:
    case TaskKind::home_copy:
      return p.mp;
    default:  // between the AlltoAlls
      return f.way == Way::over_esp ? p.esp : f.way == Way::over_mp ? p.mp : sent;
  }
}

constexpr int kAttentionGemms = 6, kAttentionWeights = 4;  // of a forward; as many tensors of weights

double gated_tokens(const LayerCase& c, Flow flow) {
  const double tokens = static_cast<double>(c.layer.batch * c.layer.seq);
  const Tokens gates = traits_of(flow).gates;
  if (gates == Tokens::own) return tokens / c.parallel.mp;
  return gates == Tokens::esp_groups ? tokens * c.parallel.esp : tokens;
}

// Counts whole groups of rows that order (i-order) writes or reads: where the split comes after the gate, only the way
// home has those of all MP ranks.
double ordered_groups(TaskKind kind, Phase phase, const LayerCase& c, Flow flow) {
  const bool out = (kind == TaskKind::order) == (phase == Phase::forward);
  if (out && traits_of(flow).gathers_rows()) return 1;
  return gated_tokens(c, flow) * c.parallel.mp / static_cast<double>(c.layer.batch * c.layer.seq);
}

double rows_of(const WorkClass& wc, const LayerCase& c, Flow flow) {
  if (c.rounding == Rounding::exact) return capacity_exact(c) / wc.chunks;
  const int64_t rows = padded_rows(c);
  if (traits_of(flow).home_by_peers) return static_cast<double>(rows) / wc.chunks;
  return static_cast<double>(chunk_rows(rows, wc.chunks, wc.chunk).count());
}

Work chunk_work(TaskKind kind, Phase phase, double rows, const LayerCase& c, Flow flow) {
  const MoeVolumes v = moe_volumes(c, rows * copies(flow, kind, c.parallel));
  const int passes = phase == Phase::backward && kind == TaskKind::expert ? 2 : 1;
  if (is_expert(kind)) return {Op::expert, GroupKind::none, 0, passes * v.expert_flops, passes * gemms_of(c.layer.ffn)};
  const Op op = traits_of(kind).op;
  const double wire = op == Op::alltoall ? bytes_of(wire_type(c.layer)) : bytes_of(c.layer.dtype);
  return {op, group_of(flow, kind), v.alltoall_bytes * (wire / bytes_of(c.layer.dtype)), 0, 0};
}

Work dense_work(TaskKind kind, Phase phase, const LayerCase& c, Flow flow) {
  const int passes = phase == Phase::backward ? 2 : 1;
  const Op op = traits_of(kind).op;
  const GroupKind group = group_of(flow, kind);
  switch (kind) {
    case TaskKind::mp_allgather:
    case TaskKind::mp_reducescatter:
    case TaskKind::mp_allreduce:
    case TaskKind::shared_allgather:
    case TaskKind::shared_reducescatter:
    case TaskKind::shared_allreduce:
    case TaskKind::ffn_allgather:
    case TaskKind::ffn_reducescatter:
    case TaskKind::ffn_allreduce:
      return {op, group, mp_bytes(c), 0, 0};
    case TaskKind::tokens_allgather:
    case TaskKind::tokens_reducescatter:
      return {op, group, mp_bytes(c) * c.parallel.esp, 0, 0};
    case TaskKind::attention:
      return {op, group, 0, passes * attention_flops(c), passes * kAttentionGemms};
    case TaskKind::attention_dx:
      return {op, group, 0, attention_flops(c) + scores_flops(c), 2 * kAttentionGemms - kAttentionWeights};
    case TaskKind::attention_dw:
      return {op, group, 0, attention_flops(c) - scores_flops(c), kAttentionWeights};
    case TaskKind::shared:
    case TaskKind::ffn:
      return {op, group, 0, passes * shared_flops(c), passes * gemms_of(c.layer.ffn)};
    case TaskKind::gate: {
      const double dim = static_cast<double>(c.layer.model_dim * c.layer.experts);
      return {op, group, 0, passes * kFlopsPerMac * gated_tokens(c, flow) * dim, passes};
    }
    case TaskKind::order:
    case TaskKind::i_order:
      return {op, group, moe_volumes(c, planned_rows(c) * ordered_groups(kind, phase, c, flow)).alltoall_bytes, 0, 0};
    case TaskKind::weights:
      return {op, group, static_cast<double>(gradient_bytes(c)), 0, 0};
    case TaskKind::expert_weights:
      return {op, group, static_cast<double>(expert_gradient_bytes(c)), 0, 0};
    case TaskKind::send:  // the receiver waits for it
      return {op, group, mp_bytes(c) / (traits_of(flow).holds == Tokens::own ? c.parallel.mp : 1), 0, 0};
    default:
      return {Op::none, group, 0, 0, 0};
  }
}

// Ends whose weights nobody gave have the gradients that the plan counts of them.
StepWeights weights_of(const Plan& plan, const LayerCases& cases, int layer) {
  if (layer >= 0 && layer < plan.layers) return step_weights(cases.of(layer));
  if (!plan.ends.none()) return layer < 0 ? plan.ends.embedding : plan.ends.head;
  StepWeights weights;
  for (const Gradient& g : plan.gradients)
    if (g.layer == layer) weights.dense += g.bytes / bytes_of(plan.shape.layer.dtype);
  return weights;
}

double end_bytes(const Plan& plan, const LayerCases& cases, int layer) {
  const StepWeights weights = weights_of(plan, cases, layer);
  return static_cast<double>((weights.dense + weights.alike) * bytes_of(plan.shape.layer.dtype));
}

// A byte read is half a byte copied.
double squares_bytes(const Plan& plan, const LayerCases& cases, const std::vector<int>& layers) {
  const auto dense = std::ranges::count_if(layers, [&](int layer) { return plan.dense.has(layer); });
  const auto bytes = [](const LayerCase& c) {
    return static_cast<double>(gradient_bytes(c) + expert_gradient_bytes(c) + stage_gradient_bytes(c));
  };
  double read = static_cast<double>(std::ssize(layers) - dense) * bytes(cases.moe());
  if (dense > 0) read += static_cast<double>(dense) * bytes(cases.dense());
  if (layers.front() == 0) read += end_bytes(plan, cases, kEmbeddingLayer);
  if (layers.back() + 1 == plan.layers) read += end_bytes(plan, cases, plan.layers);
  return read / 2;
}

}  // namespace

Work whole_work(TaskKind kind, Phase phase, const LayerCase& c, Flow flow) {
  if (!is_chunked(kind)) return dense_work(kind, phase, c, flow);
  return chunk_work(kind, phase, planned_rows(c), c, flow);
}

Work work_of(const WorkClass& wc, const LayerCase& c, const std::vector<GradientSlice>& slices, Flow flow) {
  if (sends_gradients(wc.kind)) {
    const double bytes = static_cast<double>(slices.at(static_cast<size_t>(wc.slice)).bytes());
    return {Op::allreduce, group_of(flow, wc.kind), bytes, 0, 0};
  }
  if (!is_chunked(wc.kind)) return dense_work(wc.kind, wc.phase, c, flow);
  return chunk_work(wc.kind, wc.phase, rows_of(wc, c, flow), c, flow);
}

Work end_work(TaskKind kind, Phase phase, const LayerCase& c, Flow flow, int64_t vocabulary) {
  if (kind == TaskKind::embed) return {};
  const auto tokens = static_cast<double>(c.layer.batch * c.layer.seq);
  if (kind == TaskKind::softmax_sums)
    return {traits_of(kind).op, group_of(flow, kind), tokens * c.parallel.mp * kSoftmaxSums * sizeof(double), 0, 0};
  if (kind != TaskKind::head) return {traits_of(kind).op, group_of(flow, kind), mp_bytes(c), 0, 0};
  const int passes = phase == Phase::backward ? 2 : 1;
  const auto weights = static_cast<double>(shared_out(vocabulary, c.parallel.mp) * c.layer.model_dim);
  return {Op::gemm, GroupKind::none, 0, passes * kFlopsPerMac * tokens * weights, passes};
}

Work step_work(const WorkClass& wc, const Plan& plan, const LayerCases& cases) {
  const GroupKind group = group_of(plan.structure->flow, wc.kind);
  const auto layers_here = [&] {
    const StageSplit split = plan.split();
    return layers_of_stage(split, chunk_of_layer(split, wc.layer) % split.stages);
  };
  switch (wc.kind) {
    case TaskKind::optimizer:
      if (!plan.step.optimizer) return {Op::none, group, 0, 0, 0};
      return {Op::copy, group, optimizer_bytes(plan.shape, weights_of(plan, cases, wc.layer), *plan.step.optimizer), 0,
              0};
    case TaskKind::squares:
      return {Op::copy, group, squares_bytes(plan, cases, layers_here()), 0, 0};
    case TaskKind::norm:
      return {Op::allreduce, group, sizeof(double), 0, 0};
    case TaskKind::tied_gradient: {  // each end sends the other its own
      return {Op::sendrecv, group, static_cast<double>(end_gradient_bytes(plan.shape, plan.ends.head)), 0, 0};
    }
    case TaskKind::stage_weights: {
      if (plan.is_end(wc.layer)) return {Op::allgather, group, end_bytes(plan, cases, wc.layer), 0, 0};
      int64_t bytes = 0;
      for (const int layer : layers_here()) bytes += stage_gradient_bytes(cases.of(layer));
      return {Op::allgather, group, static_cast<double>(bytes), 0, 0};
    }
    default:
      return work_of(wc, cases.of(wc.layer), plan.slices, plan.structure->flow);
  }
}

void set_works(Plan& plan) {
  plan.works.clear();
  const Flow flow = plan.structure->flow;
  const LayerCases cases(plan.shape, plan.dense);
  for (const WorkClass& wc : plan.structure->classes)
    plan.works.push_back(is_end(wc.kind)           ? end_work(wc.kind, wc.phase, plan.shape, flow, plan.vocabulary)
                         : wc.phase == Phase::step ? step_work(wc, plan, cases)
                                                   : work_of(wc, cases.of(wc.layer), plan.slices, flow));
}

}  // namespace moe
