#include "moe/plan/plan.h"

#include <algorithm>
#include <bit>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/plan/offload.h"
#include "moe/plan/pipeline.h"
#include "moe/plan/task_kind.h"
#include "moe/shape/layer_fields.h"

namespace moe {
namespace {

constexpr EnumArray<Phase, std::string_view, kPhases> kPhaseNames{"forward", "backward", "step"};
constexpr EnumArray<LaneKind, std::string_view, kLaneKinds> kLaneNames{
    "compute", "inter", "intra", "comm", "copy", "gradient", "receive", "host", "host_link"};
// clang-format off
constexpr EnumArray<Buffer, std::string_view, kBuffers> kBufferNames{
    "input",          "gathered_input", "attention_partial", "hidden",
    "routing",        "ordered",        "dispatched",        "gathered",
    "expert_out",     "scattered",      "combined",          "output",
    "gradient",       "tokens",         "token_gradients",   "gathered_output",
    "laid_out",       "reduced",        "exchanged",         "summed",
    "home_gathered",  "home_laid_out",  "received",          "logits",
    "shared_input",   "shared_partial", "shared_sum",        "ffn_input",
    "ffn_partial",    "expert_hidden",  "attention_hidden",  "end_input",
    "end_partial",    "softmax_sums",   "keys_values",       "all_keys_values",
    "queries_partial", "received_keys_values", "mixed"};
// clang-format on

class Hash {
 public:
  void add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) state_ = (state_ ^ ((value >> (8 * byte)) & 0xff)) * 0x100000001b3ULL;
  }
  void add(double value) { add(std::bit_cast<uint64_t>(value)); }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
    add(text.size());
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ULL;  // FNV-1a
};

template <class Value>
void hash_field(Hash& hash, const Value& value) {
  if constexpr (std::same_as<Value, int64_t>)
    hash.add(static_cast<uint64_t>(value));
  else if constexpr (std::same_as<Value, std::optional<double>>)
    hash.add(value.value_or(-1.0));
  else if constexpr (std::is_enum_v<Value>)
    hash.add(name_of(value));
  else if constexpr (std::same_as<Value, std::string>)
    hash.add(std::string_view(value));
  else if constexpr (!std::same_as<Value, bool>)  // bools are hashed elsewhere, or only by their mark
    hash.add(value);
}

void hash_shape(Hash& hash, const LayerCase& c) {
  const LayerShape &l = c.layer, usual;
  for_each_layer_field([&](const auto& field) {
    if (!field.optional) hash_field(hash, l.*field.member);
  });
  const ParallelShape& p = c.parallel;
  for (const int v : {p.nodes, p.ranks_per_node, p.dp, p.mp, p.ep, p.esp, p.pp, p.edp})
    hash.add(static_cast<uint64_t>(v));
  if (p.cp > 1) hash.add(fmt::format("cp {}{}", p.cp, p.ring_blocks() > 0 ? " ring" : ""));
  hash.add(uint64_t{p.ep_inside} << 1 | uint64_t{l.residual});
  hash.add(name_of(c.rounding));
  for_each_layer_field([&](const auto& field) {
    if (!field.optional || l.*field.member == usual.*field.member) return;
    if (!field.mark.empty()) hash.add(field.mark);
    hash_field(hash, l.*field.member);
  });
  if (c.row_multiple > 1) hash.add(static_cast<uint64_t>(c.row_multiple));
}

void hash_layers(Hash& hash, const LayerSet& layers) {
  hash.add(layers.by_layer.size());
  for (const bool is : layers.by_layer) hash.add(uint64_t{is});
}

void hash_ids(Hash& hash, const std::vector<int>& ids) {
  hash.add(ids.size());
  for (const int id : ids) hash.add(static_cast<uint64_t>(id));
}

void hash_accesses(Hash& hash, const std::vector<Access>& accesses) {
  hash.add(accesses.size());
  for (const Access& a : accesses) {
    for (const int v :
         {static_cast<int>(a.buffer), static_cast<int>(a.phase), a.layer, a.chunk, a.chunks, a.micro_batch})
      hash.add(static_cast<uint64_t>(v));
    if (a.is_recompute) hash.add(std::string_view("again"));
  }
}

void hash_structure(Hash& hash, const Structure& structure) {
  hash.add(static_cast<uint64_t>(structure.flow));
  hash.add(structure.lanes.size());
  for (const Lane& lane : structure.lanes) {
    hash.add(name_of(lane.kind));
    for (const int v : {lane.stage, int{lane.owns_inter}, int{lane.owns_intra}}) hash.add(static_cast<uint64_t>(v));
    hash_ids(hash, lane.queue);
  }
  hash.add(structure.tasks.size());
  for (const Task& task : structure.tasks) {
    hash.add(name_of(task.kind));
    for (const int v : {static_cast<int>(task.phase), task.micro_batch, task.layer, task.chunk, task.chunks, task.lane,
                        static_cast<int>(task.group), task.slice})
      hash.add(static_cast<uint64_t>(v));
    if (task.is_recompute) hash.add(std::string_view("again"));
    hash_ids(hash, task.after);
    hash_accesses(hash, task.reads);
    hash_accesses(hash, task.writes);
  }
}

}  // namespace

std::string_view name_of(Phase phase) { return kPhaseNames[phase]; }
std::string_view name_of(LaneKind kind) { return kLaneNames[kind]; }
std::string_view name_of(Buffer buffer) { return kBufferNames[buffer]; }

std::string Task::name() const {
  std::string text = fmt::format("{} {}", name_of(phase), name_of(kind));
  if (chunks > 1) text += fmt::format(" {}/{}", chunk + 1, chunks);
  if (slice >= 0) text += fmt::format(" slice {}", slice);
  text += fmt::format(" of layer {}{}", layer, is_recompute ? ", again" : "");
  if (micro_batch > 0) text += fmt::format(", micro-batch {}", micro_batch);
  return text + fmt::format(" (task {})", id);
}

std::vector<int> cross_lane_dependencies(const Structure& structure, const Task& task) {
  const auto lane_of = [&](int id) { return structure.tasks[id].lane; };
  std::vector<int> last;
  for (const int id : task.after) {
    if (lane_of(id) == task.lane) continue;
    const auto known = std::ranges::find(last, lane_of(id), lane_of);
    if (known == last.end())
      last.push_back(id);
    else
      *known = std::max(*known, id);
  }
  return last;
}

uint64_t Plan::hash() const {
  Hash hash;
  hash.add(schedule);
  hash.add(static_cast<uint64_t>(rows));
  hash.add(static_cast<uint64_t>(vocabulary));
  hash_shape(hash, shape);
  if (dense.hidden > 0) {
    hash.add(std::string_view("dense"));
    hash.add(static_cast<uint64_t>(dense.hidden));
    hash_layers(hash, dense);
  }
  if (!whole.by_layer.empty()) {
    hash.add(std::string_view("whole"));
    hash_layers(hash, whole);
  }
  if (step.planned)
    hash.add(uint64_t{step.clips} << 2 | (step.optimizer ? 1 + static_cast<uint64_t>(*step.optimizer) : 0));
  if (step.tied) hash.add(std::string_view("tied"));
  hash_structure(hash, *structure);
  for (const Gradient& gradient : gradients)
    for (const int64_t v : {int64_t{gradient.layer}, gradient.bytes, int64_t{gradient.made_by},
                            int64_t{gradient.experts} | int64_t{gradient.is_replicated} << 1})
      hash.add(static_cast<uint64_t>(v));
  for (const GradientSlice& slice : slices)
    for (const int64_t v : {int64_t{slice.gradient}, slice.begin, slice.end}) hash.add(static_cast<uint64_t>(v));
  return hash.value();
}

// The work of tasks: bytes or FLOPs on a rank, for each flow.

namespace {

// Returns the rows that a task of this kind handles, as a multiple of a rank's own T_rank rows.
double row_copies(Flow flow, TaskKind kind, const ParallelShape& p) {
  const FlowTraits& f = traits_of(flow);
  if (computes(kind)) return f.expert_copies(p);
  if (kind == TaskKind::gather || kind == TaskKind::home_copy) return p.mp;
  const double all_groups = f.gates == Tokens::esp_groups ? p.mp * p.esp : p.mp;
  const double sent = f.sends_all_groups() ? all_groups : f.fused() ? p.esp : 1;
  if (operation_of(kind) == TaskOperation::alltoall || operation_of(kind) == TaskOperation::sum) return sent;
  return f.way == RowRoute::over_esp ? p.esp : f.way == RowRoute::over_mp ? p.mp : sent;  // between the AlltoAlls
}

constexpr int kScoresGemms = 2, kKeysValuesGemms = 2;

Work attention_of(double flops, int gemms) { return {Op::attention, GroupKind::none, 0, flops, gemms}; }

int weight_gemms(const LayerCase& c) {
  return static_cast<int>(
      std::ranges::count_if(projections(c.layer, max_heads(c)), [](const Projection& p) { return p.in > 0; }));
}

// Returns the work of a task of attention in a ring: the projections, the heads with one block, or the output's
// projection, whose backward may be two halves.
Work ring_work(TaskKind kind, Phase phase, const LayerCase& c) {
  const int passes = phase == Phase::backward ? 2 : 1, halves = is_half(kind) ? 1 : passes;
  const double scores = scores_flops(c), out = out_flops(c);
  if (kind == TaskKind::heads) return attention_of(passes * scores / c.parallel.ring_blocks(), passes * kScoresGemms);
  if (kind == TaskKind::keys_values)
    return attention_of(passes * (attention_flops(c) - scores - out), passes * (weight_gemms(c) - 1));
  return attention_of(halves * out, halves);
}

// Returns the work of attention, excluding keys and values if context parallelism makes them a task of their own.
Work attention_work(TaskKind kind, Phase phase, const LayerCase& c) {
  if (c.parallel.ring_blocks() > 0) return ring_work(kind, phase, c);
  const int passes = phase == Phase::backward ? 2 : 1, apart_gemms = c.parallel.cp > 1 ? kKeysValuesGemms : 0;
  const double apart = c.parallel.cp > 1 ? keys_values_flops(c) : 0, all = attention_flops(c), scores = scores_flops(c);
  const int weights = weight_gemms(c), gemms = weights + kScoresGemms;  // GEMMs of a forward
  if (kind == TaskKind::keys_values) return attention_of(passes * apart, passes * apart_gemms);
  if (kind == TaskKind::attention_dx) return attention_of(all + scores - apart, 2 * gemms - weights - apart_gemms);
  if (kind == TaskKind::attention_dw) return attention_of(all - scores - apart, weights - apart_gemms);
  return attention_of(passes * (all - apart), passes * (gemms - apart_gemms));
}

double gated_tokens(const LayerCase& c, Flow flow) {
  const double tokens = static_cast<double>(mp_tokens(c));
  const Tokens gates = traits_of(flow).gates;
  if (gates == Tokens::own) return tokens / c.parallel.mp;
  return gates == Tokens::esp_groups ? tokens * c.parallel.esp : tokens;
}

// Returns the number of groups of rows that order writes and i-order reads. If tokens are split over MP after the gate,
// this rank sends only one group, while the returning rows are those of all MP ranks.
double ordered_groups(TaskKind kind, Phase phase, const LayerCase& c, Flow flow) {
  const bool out = (kind == TaskKind::order) == (phase == Phase::forward);
  if (out && traits_of(flow).gathers_rows()) return 1;
  return gated_tokens(c, flow) * c.parallel.mp / static_cast<double>(mp_tokens(c));
}

double rows_of(const Task& task, const LayerCase& c, Flow flow) {
  if (c.rounding == Rounding::exact) return capacity_exact(c) / task.chunks;
  const int64_t rows = padded_rows(c);
  if (traits_of(flow).home_by_peers) return static_cast<double>(rows) / task.chunks;
  return static_cast<double>(chunk_rows(rows, task.chunks, task.chunk).count());
}

Work chunk_work(TaskKind kind, Phase phase, double rows, const LayerCase& c, Flow flow) {
  const MoeVolumes v = moe_volumes(c, rows * row_copies(flow, kind, c.parallel));
  const int passes = phase == Phase::backward && kind == TaskKind::expert ? 2 : 1;
  if (is_expert(kind)) return {Op::expert, GroupKind::none, 0, passes * v.expert_flops, passes * gemms_of(c.layer.ffn)};
  const Op op = op_of(kind);
  const double wire = op == Op::alltoall ? bytes_of(wire_type(c.layer)) : bytes_of(c.layer.dtype);
  return {op, group_of(flow, kind), v.alltoall_bytes * (wire / bytes_of(c.layer.dtype)), 0, 0};
}

// Returns the work of a computation of the dense part, over all its tokens.
Work dense_computation(TaskKind kind, Phase phase, const LayerCase& c, Flow flow) {
  const int passes = phase == Phase::backward ? 2 : 1;
  const Op op = op_of(kind);
  switch (part_of(kind)) {
    case TaskPart::attention:
      return attention_work(kind, phase, c);
    case TaskPart::shared_expert:
    case TaskPart::feed_forward:
      return {op, GroupKind::none, 0, passes * shared_flops(c), passes * gemms_of(c.layer.ffn)};
    case TaskPart::gate: {
      const double dim = static_cast<double>(c.layer.model_dim * c.layer.experts);
      return {op, GroupKind::none, 0, passes * kFlopsPerMac * gated_tokens(c, flow) * dim, passes};
    }
    case TaskPart::offload:  // an expert's gradients have as many bytes as its weights
      return {op, GroupKind::none, static_cast<double>(expert_gradient_bytes(c)), 0, 0};
    case TaskPart::permute:
      return {op, GroupKind::none,
              moe_volumes(c, planned_rows(c) * ordered_groups(kind, phase, c, flow)).alltoall_bytes, 0, 0};
    default:
      return {};
  }
}

// Returns the bytes of a collective of the dense part.
double dense_bytes(TaskKind kind, const LayerCase& c, Flow flow) {
  switch (part_of(kind)) {
    case TaskPart::attention:
    case TaskPart::shared_expert:
    case TaskPart::feed_forward:
      if (traits_of(kind).group != GroupKind::cp) return mp_bytes(c);
      return operation_of(kind) == TaskOperation::send ? cp_bytes(c) / c.parallel.cp : cp_bytes(c);
    case TaskPart::gate:
      return mp_bytes(c) * c.parallel.esp;
    case TaskPart::weights:
      return static_cast<double>(kind == TaskKind::expert_weights ? expert_gradient_bytes(c) : gradient_bytes(c));
    case TaskPart::stages:  // the send has the price; the receiver only waits
      if (kind == TaskKind::recv) return 0;
      return mp_bytes(c) / (traits_of(flow).holds == Tokens::own ? c.parallel.mp : 1);
    default:
      return 0;
  }
}

Work dense_work(TaskKind kind, Phase phase, const LayerCase& c, Flow flow) {
  const GroupKind group = group_of(flow, kind);
  if (group == GroupKind::none) return dense_computation(kind, phase, c, flow);
  return {op_of(kind), group, dense_bytes(kind, c, flow), 0, 0};
}

// Returns the weights of a layer or end. If the plan has none for its ends, they follow from the ends' gradients.
StepWeights weights_of(const Plan& plan, const LayerCases& cases, int layer) {
  if (layer >= 0 && layer < plan.layers) return step_weights(cases.at(layer));
  if (!plan.ends.none()) return layer < 0 ? plan.ends.embedding : plan.ends.head;
  StepWeights weights;
  for (const Gradient& g : plan.gradients)
    if (g.layer == layer) weights.dense += g.bytes / bytes_of(plan.shape.layer.dtype);
  return weights;
}

double end_bytes(const Plan& plan, const LayerCases& cases, int layer) {
  const StepWeights weights = weights_of(plan, cases, layer);
  return static_cast<double>((weights.dense + weights.replicated) * bytes_of(plan.shape.layer.dtype));
}

// Returns the bytes of the norm's squares. Reading a byte counts as half a copied byte.
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

Work work_of(const Task& task, const LayerCase& c, const std::vector<GradientSlice>& slices, Flow flow) {
  if (sends_gradients(task.kind)) {
    const double bytes = static_cast<double>(slices.at(task.slice).bytes());
    return {Op::allreduce, group_of(flow, task.kind), bytes, 0, 0};
  }
  if (!is_chunked(task.kind)) return dense_work(task.kind, task.phase, c, flow);
  return chunk_work(task.kind, task.phase, rows_of(task, c, flow), c, flow);
}

Work end_work(TaskKind kind, Phase phase, const LayerCase& c, Flow flow, int64_t vocabulary) {
  if (kind == TaskKind::embed) return {};
  const auto tokens = static_cast<double>(mp_tokens(c));
  if (kind == TaskKind::softmax_sums)
    return {op_of(kind), group_of(flow, kind), tokens * c.parallel.mp * kSoftmaxSums * sizeof(double), 0, 0};
  if (kind != TaskKind::head) return {op_of(kind), group_of(flow, kind), mp_bytes(c), 0, 0};
  const int passes = phase == Phase::backward ? 2 : 1;
  const auto weights = static_cast<double>(padded_share(vocabulary, c.parallel.mp) * c.layer.model_dim);
  return {Op::gemm, GroupKind::none, 0, passes * kFlopsPerMac * tokens * weights, passes};
}

Work step_work(const Task& task, const Plan& plan, const LayerCases& cases) {
  const GroupKind group = group_of(plan.structure->flow, task.kind);
  const auto layers_here = [&] {
    const StageSplit split = plan.split();
    return layers_of_stage(split, chunk_of_layer(split, task.layer) % split.stages);
  };
  switch (task.kind) {
    case TaskKind::optimizer:
      if (!plan.step.optimizer) return {Op::none, group, 0, 0, 0};
      return {Op::copy, group,
              optimizer_bytes(plan.shape, device_weights(plan.shape, weights_of(plan, cases, task.layer)),
                              *plan.step.optimizer),
              0, 0};
    case TaskKind::host_optimizer: {
      if (!plan.step.optimizer) return {Op::none, group, 0, 0, 0};
      const StepWeights experts{.experts = step_weights(plan.shape).experts};
      return {Op::host_copy, group, optimizer_bytes(plan.shape, experts, *plan.step.optimizer), 0, 0};
    }
    case TaskKind::squares:
      return {Op::copy, group, squares_bytes(plan, cases, layers_here()), 0, 0};
    case TaskKind::norm:
      return {Op::allreduce, group, sizeof(double), 0, 0};
    case TaskKind::tied_gradient: {  // each end sends its own gradients to the other
      return {Op::sendrecv, group, static_cast<double>(end_gradient_bytes(plan.shape, plan.ends.head)), 0, 0};
    }
    case TaskKind::stage_weights: {
      if (plan.is_end(task.layer)) return {Op::allgather, group, end_bytes(plan, cases, task.layer), 0, 0};
      int64_t bytes = 0;
      for (const int layer : layers_here()) bytes += stage_gradient_bytes(cases.at(layer));
      return {Op::allgather, group, static_cast<double>(bytes), 0, 0};
    }
    default:
      return work_of(task, cases.at(task.layer), plan.slices, plan.structure->flow);
  }
}

void set_works(Plan& plan) {
  plan.works.clear();
  const Flow flow = plan.structure->flow;
  const LayerCases cases(plan.shape, plan.dense, plan.whole);
  for (const Task& task : plan.structure->tasks)
    plan.works.push_back(
        is_end(task.kind)           ? end_work(task.kind, task.phase, plan.shape, flow, plan.vocabulary)
        : task.phase == Phase::step ? step_work(task, plan, cases)
        : plan.differs_by_part(task)
            ? work_of(task, part_case(cases.at(task.layer), plan.part_of(task.micro_batch)), plan.slices, flow)
            : work_of(task, cases.at(task.layer), plan.slices, flow));
}

}  // namespace moe
