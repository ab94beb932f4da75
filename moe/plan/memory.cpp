#include "moe/plan/memory.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/base/registry.h"
#include "moe/plan/detail/plan_checks.h"
#include "moe/plan/pipeline.h"
#include "moe/plan/step.h"
#include "moe/shape/dense_layers.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

constexpr EnumArray<ActivationModel, Named<ActivationModel>, 3> kModels{{{{"printed", ActivationModel::printed},
                                                                          {"corrected", ActivationModel::corrected},
                                                                          {"counted", ActivationModel::counted}}}};
static_assert(is_in_enum_order(kModels, &Named<ActivationModel>::value));

// The rules of each Trainer.
constexpr EnumArray<Trainer, MemoryRules, 4> kRules{
    {{{},
      {.gradient_bytes = 4,
       .float_logits = true,
       .gathers_again = true,
       .fused_attention = true,
       .weighs_before_combine = true},
      {.float_logits = true},
      {.weight_bytes = 4, .gradient_bytes = 4, .optimizer_bytes = 8, .float_logits = true, .fused_attention = true}}}};

double width(const LayerCase& c) { return bytes_of(c.layer.dtype); }

double tokens(const LayerCase& c) { return static_cast<double>(mp_tokens(c)); }

// A number for each kind of layer: layers, or sets of a layer's activations for one micro-batch.
struct Layers {
  int moe = 0, dense = 0;
};

Layers layers_of(const MemoryRequest& r, int chunk) {
  const auto [first, last] = layers_of_chunk(r.split(), chunk);
  const int dense = r.dense.count(first, last);
  return {last - first - dense, dense};
}

Layers layers_in(const MemoryRequest& r, int stage) {
  const StageSplit split = r.split();
  Layers all;
  for (int chunk = stage; chunk < split.chunks(); chunk += split.stages) {
    const Layers more = layers_of(r, chunk);
    all.moe += more.moe;
    all.dense += more.dense;
  }
  return all;
}

// Returns the request with `shape` replaced by the dense layers' case.
MemoryRequest dense_request(MemoryRequest r) {
  if (r.dense.hidden > 0) r.shape = dense_case(r.shape, r.dense.hidden);
  return r;
}

void check(const MemoryRequest& r) {
  require<BadInput>(r.layers >= 1, "layers: found {}, expected a whole number >= 1", r.layers);
  require<BadInput>(r.micro_batches >= 1, "micro-batches: found {}, expected a whole number >= 1", r.micro_batches);
  require<BadInput>(r.shape.parallel.zero >= 0 && r.shape.parallel.zero <= kMaxZeroStage,
                    "zero: found {}, expected 0 to {}", r.shape.parallel.zero, kMaxZeroStage);
  require<Unsupported>(r.shape.layer.parts == 1 || r.shape.parallel.recompute != Recompute::full,
                       "parts: found {} with recompute full, which keeps no keys, expected none or selective",
                       r.shape.layer.parts);
  check_offload(r.shape);
  require<WrongResult>(r.slots.empty() || std::ssize(r.slots) == r.shape.parallel.pp,
                       "memory: found the slots of {} stages, expected pp = {}", r.slots.size(), r.shape.parallel.pp);
  require<BadInput>(r.layers >= r.shape.parallel.pp, "layers = {} over pp = {}: every stage needs a layer", r.layers,
                    r.shape.parallel.pp);
}

// The ends of a model, embedding and head, that are on a stage.
struct Ends {
  Ends(const MemoryRequest& r, int stage)
      : embedding(r.vocabulary > 0 && stage == 0), head(r.vocabulary > 0 && stage == r.shape.parallel.pp - 1) {}
  bool embedding, head;
};

// Returns the number of the vocabulary's tokens on the rank with the most.
double words(const MemoryRequest& r) { return static_cast<double>(padded_share(r.vocabulary, r.shape.parallel.mp)); }

// Returns the parameters of the model's ends on one rank.
double end_parameters(const MemoryRequest& r, Ends ends) {
  StepWeights all;
  if (ends.embedding) all += embedding_weights(r.shape, r.vocabulary);
  if (ends.head) all += head_weights(r.shape, r.vocabulary, r.tied_embedding);
  return static_cast<double>(all.dense + all.replicated);
}

bool uses_moetune_rules(const MemoryRequest& r) { return r.shape.parallel.trainer == Trainer::moetune; }

// Returns the bytes of the head's probabilities: those of all micro-batches if moetune runs the model, else of one.
double probabilities(const MemoryRequest& r, Ends ends) {
  if (!ends.head) return 0;
  const double wide = memory_rules(r.shape.parallel.trainer).float_logits ? sizeof(float) : width(r.shape);
  return (r.keeps_ends && uses_moetune_rules(r) ? r.micro_batches : 1) * wide * tokens(r.shape) * words(r);
}

// Returns the bytes of the ends' M-wide rows: the normed rows and, if a rank has only the rows of its own tokens, the
// rows that it gathers and sums (a single set for the embedding).
double end_rows(const MemoryRequest& r, Ends ends) {
  if (!uses_moetune_rules(r)) {  // other trainers: the normed rows of one micro-batch
    const double held = tokens(r.shape) / (traits_of(r.flow).holds == Tokens::own ? r.shape.parallel.mp : 1);
    return ends.head ? width(r.shape) * held * static_cast<double>(r.shape.layer.model_dim) : 0;
  }
  if (!r.keeps_ends) return 0;
  const bool apart = r.shape.parallel.mp > 1 && traits_of(r.flow).holds == Tokens::own;
  const int sets = (ends.head ? 1 : 0) + (apart ? ends.embedding + 2 * ends.head : 0);
  return r.micro_batches * sets * width(r.shape) * tokens(r.shape) * static_cast<double>(r.shape.layer.model_dim);
}

// torchtitan's FSDP shards all states or none.
int sharding_stage(const ParallelShape& p) {
  return p.trainer == Trainer::torchtitan && p.zero > 0 ? kMaxZeroStage : p.zero;
}

// Counts the bytes of weights, gradients and optimizer states of `parameters` parameters that `replicas` ranks
// replicate.
MemoryEstimate states(double parameters, int replicas, const MemoryRequest& r) {
  const double w = width(r.shape);
  MemoryRules bytes = memory_rules(r.shape.parallel.trainer);
  if (w != 2) bytes = {.weight_bytes = w, .gradient_bytes = w, .optimizer_bytes = 2 * w};
  const auto shard = [&](int stage) { return sharding_stage(r.shape.parallel) >= stage ? replicas : 1; };
  MemoryEstimate e;
  e.weights = parameters * bytes.weight_bytes / shard(3);
  e.gradients = parameters * bytes.gradient_bytes / shard(2);
  e.optimizer = parameters * bytes.optimizer_bytes / shard(1);
  return e;
}

// Returns the bytes of one layer's expert weights in FP8, in both orientations.
double fp8_bytes(const MemoryRequest& r) {
  const LayerShape& l = r.shape.layer;
  const ParallelShape& p = r.shape.parallel;
  if (!in_fp8(l.ffn)) return 0;
  const double hidden = static_cast<double>(l.experts) / p.ep * static_cast<double>(l.hidden) / p.esp +
                        static_cast<double>(l.shared_hidden) / p.mp;
  const double scale = sizeof(float) / static_cast<double>(kFp8Block * kFp8Block);  // bytes of the scale per number
  return 2 * gemms_of(l.ffn) * static_cast<double>(l.model_dim) * hidden * (1 + scale);
}

// Returns the activation bytes of one layer and micro-batch by MoNTA, Table 4. `w`: bytes per element; `scores_t`:
// number of ranks that share the scores.
double table4(const MemoryRequest& r, double w, double scores_t) {
  const LayerShape& l = r.shape.layer;
  const ParallelShape& p = r.shape.parallel;
  const double bsh = tokens(r.shape) * static_cast<double>(l.model_dim);
  if (r.shape.parallel.recompute == Recompute::full) return w * bsh / p.mp;
  double factor = is_dense(r.shape) ? (10 * w + 1) / p.mp : (10 * w + 1) * static_cast<double>(l.top_k) / p.ep / p.esp;
  if (r.dense_part) factor += (6 * w + 1) / p.mp;
  if (r.dense_part && r.shape.parallel.recompute == Recompute::none)
    factor += (2 * w + 1) * static_cast<double>(l.heads * l.seq) / static_cast<double>(l.model_dim) / scores_t;
  return bsh * factor;
}

PassBytes pass_of(const MemoryRequest& r) { return pass_bytes(r.shape, r.flow, {r.dense_part, r.scores}); }

// Returns the activation bytes of one layer and micro-batch by the request's activation model.
double activations_of(const MemoryRequest& r) {
  if (r.activations == ActivationModel::printed) return table4(r, 2, 1);
  if (r.activations == ActivationModel::corrected) return table4(r, width(r.shape), r.shape.parallel.mp);
  return pass_of(r).kept;
}

enum class LayerSubset { all, last, others };  // which layers of a chunk to count

Layers layers_of(const MemoryRequest& r, int chunk, LayerSubset which) {
  const auto [first, last] = layers_of_chunk(r.split(), chunk);
  const Layers ends = r.dense.has(last - 1) ? Layers{0, 1} : Layers{1, 0};
  if (which == LayerSubset::last) return ends;
  const Layers all = layers_of(r, chunk);
  return which == LayerSubset::all ? all : Layers{all.moe - ends.moe, all.dense - ends.dense};
}

// Returns, for each kind of layer, the largest number of forwards on the stage whose backward is yet to come.
Layers passes(const MemoryRequest& r, int stage, LayerSubset which = LayerSubset::all) {
  if (r.virtual_stages == 1 || r.dense.has_none(r.layers)) {  // all chunks of a stage have the same layers
    const int held = passes_in_flight(r.order, r.micro_batches, r.split(), stage);
    const Layers each = layers_of(r, stage, which);
    return {each.moe * held, each.dense * held};
  }
  Layers now, most;
  for (const PipelineStep& step : steps_of_stage(r.order, r.micro_batches, r.split(), stage)) {
    const Layers each = layers_of(r, step.chunk, which);
    const int sign = step.phase == Phase::forward ? 1 : -1;
    now.moe += sign * each.moe;
    now.dense += sign * each.dense;
    most = {std::max(most.moe, now.moe), std::max(most.dense, now.dense)};
  }
  return most;
}

// Returns, for each kind of layer, the number of passes for which the stage keeps all tensors that the backward reads.
Layers sets_kept(const MemoryRequest& r, int stage) {
  if (!r.slots.empty()) {
    const StageSlots& slots = r.slots[stage];
    return {slots.kept - slots.kept_dense, slots.kept_dense};
  }
  if (r.shape.parallel.recompute != Recompute::full) return passes(r, stage);
  const Layers layers = layers_in(r, stage);  // MoE and dense layers can't share a set
  return {std::min(1, layers.moe), std::min(1, layers.dense)};
}

// Returns, for each kind of layer, the number of layer outputs that the stage keeps. A plan's slots exclude the outputs
// of chunks' last layers, which are added here.
Layers outputs_kept(const MemoryRequest& r, int stage) {
  const Layers last = passes(r, stage, LayerSubset::last);
  if (r.slots.empty()) {
    const Layers others = passes(r, stage, LayerSubset::others);
    return {others.moe + last.moe, others.dense + last.dense};
  }
  const StageSlots& slots = r.slots[stage];
  return {slots.outputs - slots.outputs_dense + last.moe, slots.outputs_dense + last.dense};
}

double activations(const MemoryRequest& r, int stage) {
  const MemoryRequest dense = dense_request(r);
  const double layer = activations_of(r), dense_layer = is_dense(dense.shape) ? activations_of(dense) : 0;
  if (r.activations == ActivationModel::printed) {
    const int of_dense = r.dense.count(0, r.layers);
    return (r.layers - of_dense) * layer + of_dense * dense_layer;
  }
  const auto sum = [](Layers count, double moe, double of_dense) { return count.moe * moe + count.dense * of_dense; };
  if (r.activations == ActivationModel::corrected) return sum(passes(r, stage), layer, dense_layer);
  const double outputs = r.dense_part ? sum(outputs_kept(r, stage), pass_of(r).output, pass_of(dense).output) : 0;
  return sum(sets_kept(r, stage), layer, dense_layer) + outputs + probabilities(r, {r, stage}) +
         end_rows(r, {r, stage});
}

// Returns whether a rank gathers weights that `replicas` ranks replicate: always under ZeRO 3, where it has only a
// shard.
bool gathers_from(const LayerCase& c, int replicas) {
  return sharding_stage(c.parallel) == kMaxZeroStage || replicas > 1;
}

// Returns the number of a layer's parameters that are gathered together.
double gathered(const LayerCase& c, const RankParameters& layer) {
  return (gathers_from(c, c.parallel.replicas()) ? layer.dense : 0) +
         (gathers_from(c, c.parallel.edp) ? layer.experts : 0);
}

// Returns the bytes of a stage's inputs, outputs and their gradients. If moetune runs the model, these exist for every
// chunk and micro-batch; outputs in flight are excluded, because the activations include them.
double stage_ends(const MemoryRequest& r, const PassBytes& pass, int stage) {
  const int passes = r.virtual_stages * r.micro_batches;
  return pass.output * (r.keeps_ends && uses_moetune_rules(r)
                            ? 4 * passes - passes_in_flight(r.order, r.micro_batches, r.split(), stage)
                            : 3);
}

double buffers(const MemoryRequest& r, int stage) {
  const MemoryRequest dense = dense_request(r);
  PassBytes pass = pass_of(r);
  if (is_dense(dense.shape)) pass.moe += pass_of(dense).moe;
  const int moe_layers = layers_in(r, stage).moe;
  const auto [first, last] = layers_of_chunk(r.split(), stage);
  const PartSlots slots = r.slots.empty() ? PartSlots() : r.slots[stage].parts;
  double bytes = slots.dense * pass.dense + slots.moe * pass.moe + slots.input_sums * pass.input_sum;
  bytes += moe_layers * r.micro_batches * pass.permanent + stage_ends(r, pass, stage);
  if (last - first > 1) bytes += slots.output_gradients * pass.output;
  if (r.shape.parallel.zero == 0) return bytes;
  RankParameters most = rank_parameters(r);
  if (const RankParameters other = rank_parameters(dense); gathered(r.shape, other) > gathered(r.shape, most))
    most = other;
  return bytes + width(r.shape) * gathered(r.shape, most);
}

std::vector<StageSlots> slots_by_stage(const MemorySlots& slots, int stages) {
  std::vector<StageSlots> all(stages, StageSlots{.parts = {0, 0, 0, 0}});
  for (const MemorySlot& slot : slots.slots) {
    StageSlots& at = all[slot.stage];
    switch (slot.lifetime) {
      case Lifetime::kept:
        ++at.kept, at.kept_dense += slot.dense_layers;
        break;
      case Lifetime::output:
        ++at.outputs, at.outputs_dense += slot.dense_layers;
        break;
      case Lifetime::dense_forward:
        ++at.parts.dense;
        break;
      case Lifetime::moe_forward:
        ++at.parts.moe;
        break;
      case Lifetime::input_sum:
        ++at.parts.input_sums;
        break;
      case Lifetime::output_gradient:
        ++at.parts.output_gradients;
        break;
      case Lifetime::dense_backward:
      case Lifetime::moe_backward:
        break;  // the forward's slots already count these
    }
  }
  return all;
}

}  // namespace

const MemoryRules& memory_rules(Trainer trainer) { return kRules[trainer]; }

std::string_view name_of(ActivationModel model) { return kModels[model].name; }

RankParameters rank_parameters(const MemoryRequest& r) {
  const LayerCase& c = r.shape;
  const StepWeights all = step_weights(c);
  int64_t dense = all.dense + all.replicated;
  if (!r.dense_part)
    dense -= attention_parameters(c) + attention_biases(c) + 2 * norm_parameters(c.layer) + latent_parameters(c.layer);
  return {static_cast<double>(dense), static_cast<double>(all.experts)};
}

double micro_batches_in_flight(const MemoryRequest& r, int stage) {
  return static_cast<double>(passes_in_flight(r.order, r.micro_batches, r.split(), stage)) / r.virtual_stages;
}

MemoryEstimate estimate_stage(const MemoryRequest& r, int stage) {
  check(r);
  const RankParameters layer = rank_parameters(r), dense_layer = rank_parameters(dense_request(r));
  const Layers layers = layers_in(r, stage);
  double parameters = layers.moe * layer.dense + end_parameters(r, {r, stage});
  if (layers.dense > 0) parameters += layers.dense * dense_layer.dense;
  const MemoryEstimate dense = states(parameters, r.shape.parallel.replicas(), r);
  MemoryEstimate experts = states(layers.moe * layer.experts, r.shape.parallel.edp, r);
  MemoryEstimate e;
  if (r.shape.parallel.offload == Offload::experts) {
    e.host = experts.total();
    if (layers.moe > kWindowLayers) experts.weights *= static_cast<double>(kWindowLayers) / layers.moe;
    experts.optimizer = 0;
  }
  e.weights = dense.weights + experts.weights + layers.moe * fp8_bytes(r);
  if (layers.dense > 0) e.weights += layers.dense * fp8_bytes(dense_request(r));
  e.gradients = dense.gradients + experts.gradients;
  e.optimizer = dense.optimizer + experts.optimizer;
  e.activations = activations(r, stage);
  e.buffers = buffers(r, stage);
  e.stage = stage;
  return e;
}

MemoryEstimate estimate_memory(const MemoryRequest& r) {
  MemoryEstimate most = estimate_stage(r, 0);
  for (int stage = 1; stage < r.shape.parallel.pp; ++stage)
    if (const MemoryEstimate e = estimate_stage(r, stage); e.total() > most.total()) most = e;
  return most;
}

MemoryEstimate layer_memory(const LayerCase& shape, Flow flow, bool scores) {
  MemoryRequest request;
  request.shape = shape;
  request.flow = flow;
  request.scores = scores;
  request.layers = shape.parallel.pp;
  return estimate_memory(request);
}

namespace {

// Returns the size of a plan's vocabulary; without tasks for the ends, that of the embedding's weights, rounded up to a
// multiple of MP.
int64_t vocabulary_of(const Plan& plan) {
  if (plan.vocabulary > 0 || plan.ends.none()) return plan.vocabulary;
  const int64_t places = embedding_weights(plan.shape, 0).dense;
  return (plan.ends.embedding.dense - places) / plan.shape.layer.model_dim * plan.shape.parallel.mp;
}

}  // namespace

MemoryRequest memory_request(const Plan& plan) {
  MemoryRequest request;
  request.shape = plan.shape;
  request.layers = std::max(plan.layers, plan.shape.parallel.pp);
  request.micro_batches = plan.micro_batches;
  request.order = plan.order;
  request.virtual_stages = plan.virtual_stages;
  request.flow = plan.structure->flow;
  request.dense = plan.dense;
  request.slots = slots_by_stage(memory_slots(plan), plan.shape.parallel.pp);
  request.vocabulary = vocabulary_of(plan);
  request.tied_embedding = plan.step.tied;
  request.keeps_ends = plan.vocabulary > 0;
  return request;
}

std::optional<Refusal> memory_refusal(const MemoryEstimate& estimate, double capacity_bytes) {
  if (estimate.total() <= capacity_bytes) return std::nullopt;
  return Refusal{
      .kind = Refusal::Kind::too_large,
      .reason = "does not fit",
      .detail = fmt::format("needs {}, a rank has {}", human_bytes(estimate.total()), human_bytes(capacity_bytes))};
}

namespace {

bool is_attention_task(TaskKind kind) { return part_of(kind) == TaskPart::attention; }

// Returns whether the task sums attention's results over MP. In a backward, this is the pass's last task, and it reads
// only those results.
bool sums_attention(TaskKind kind) {
  return is_attention_task(kind) && traits_of(kind).group == GroupKind::mp &&
         operation_of(kind) != TaskOperation::allgather;
}

bool is_row_task(TaskKind kind) { return is_chunked(kind) || is_shared(kind) || kind == TaskKind::i_order; }

// Returns whether the task uses temporary tensors of the dense part. The AllGather of a forward's input, and the one
// before a dense layer's feed-forward in a backward, do not: they use only kept tensors and those between layers.
bool is_dense_part_task(const Task& task) {
  if (is_row_task(task.kind)) return false;
  if (task.phase == Phase::forward) return task.kind != TaskKind::mp_allgather;
  return !sums_attention(task.kind) && task.kind != TaskKind::ffn_allgather;
}

// The time during which memory is needed, given by the first and the last task on each lane.
class Span {
 public:
  void add(const Task& task) {
    const auto lane = std::ranges::find(lanes_, task.lane, &LaneSpan::lane);
    if (lane == lanes_.end())
      lanes_.push_back({task.lane, task.id, task.id});
    else
      lane->last = task.id;
    if (first_ < 0) first_ = task.id;
    last_ = task.id;
  }
  bool empty() const { return first_ < 0; }
  int first() const { return first_; }
  int last() const { return last_; }
  bool ends_before(const Span& other, const Ancestors& ancestors) const {
    return last_ < other.first_ && std::ranges::all_of(lanes_, [&](const LaneSpan& own) {
             return std::ranges::all_of(other.lanes_,
                                        [&](const LaneSpan& next) { return ancestors.before(own.last, next.first); });
           });
  }

 private:
  struct LaneSpan {
    int lane, first, last;
  };
  std::vector<LaneSpan> lanes_;
  int first_ = -1, last_ = -1;
};

// The spans in which a pass needs some memory: one, or two if the layer repeats its forward.
using Holding = std::array<Span, 2>;
using Holdings = std::vector<EnumArray<Lifetime, Holding, kLifetimes>>;

Holdings holdings_of(const Plan& plan) {
  const auto micro_batches = static_cast<size_t>(plan.micro_batches);
  Holdings all(static_cast<size_t>(plan.layers) * micro_batches);
  const bool again = std::ranges::any_of(plan.tasks(), &Task::is_recompute);
  for (const Task& task : plan.tasks()) {
    if (!is_of_layer(task.kind)) continue;
    const bool forward = task.phase == Phase::forward;
    const size_t pass = static_cast<size_t>(task.layer) * micro_batches + static_cast<size_t>(task.micro_batch);
    const size_t time = again && task.execution_phase() == Phase::backward ? 1 : 0;
    const auto add = [&](size_t to, Lifetime lifetime, size_t when = 0) { all[to][lifetime][when].add(task); };
    if (forward || !sums_attention(task.kind)) {
      add(pass, Lifetime::kept, time);
      add(pass, Lifetime::output);
    }
    const bool dense_part = is_dense_part_task(task), moe_part = !is_attention_task(task.kind);
    if (forward && dense_part) add(pass, Lifetime::dense_forward, time);
    if (forward && moe_part) add(pass, Lifetime::moe_forward, time);
    if (forward) continue;
    if (dense_part) add(pass, Lifetime::dense_backward);
    if (moe_part) add(pass, Lifetime::moe_backward);
    const bool makes_input = is_attention_task(task.kind) && task.kind != TaskKind::attention_dw;
    if (makes_input && task.kind != TaskKind::mp_allgather) add(pass, Lifetime::input_sum);
    if (!is_attention_task(task.kind))
      add(pass, Lifetime::output_gradient);
    else if (makes_input && task.layer > 0)
      add(pass - micro_batches, Lifetime::output_gradient);
  }
  return all;
}

Lifetime shared_lifetime(Lifetime lifetime) {
  if (lifetime == Lifetime::dense_backward) return Lifetime::dense_forward;
  return lifetime == Lifetime::moe_backward ? Lifetime::moe_forward : lifetime;
}

// The slots of one MemorySlot kind.
// Invariant: the spans of a slot do not overlap, and the tasks' order guarantees it.
class Slots {
 public:
  /// Returns a slot for `next`: the first one that is free whenever `next` needs it, else the new slot `fresh`.
  int take(const Holding& next, const Ancestors& ancestors, int fresh) {
    auto slot = std::ranges::find_if(slots_, [&](const Slot& held) {
      return std::ranges::all_of(next, [&](const Span& span) { return span.empty() || held.fits(span, ancestors); });
    });
    if (slot == slots_.end()) slot = slots_.insert(slot, Slot{fresh});
    for (const Span& span : next)
      if (!span.empty()) slot->add(span);
    return slot->id;
  }

 private:
  struct Slot {
    int id;
    int first = -1, last = -1;            // first and last task of the last span
    std::vector<const Span*> spans = {};  // each ends before the next begins
    std::vector<const Span*>::const_iterator behind(const Span& span) const {
      return std::ranges::upper_bound(spans, span.first(), {}, &Span::first);
    }
    bool fits(const Span& span, const Ancestors& ancestors) const {
      if (first < span.first() && last >= span.first()) return false;  // quick test for the most frequent case
      const auto next = behind(span);
      return (next == spans.begin() || (*std::prev(next))->ends_before(span, ancestors)) &&
             (next == spans.end() || span.ends_before(**next, ancestors));
    }
    void add(const Span& span) {
      spans.insert(behind(span), &span);
      first = spans.back()->first();
      last = spans.back()->last();
    }
  };
  std::vector<Slot> slots_;
};

// A pass's memory of one lifetime, which needs a slot; `slot`: where to store its number.
struct SlotRequest {
  const Holding* by;
  MemorySlot kind;
  int* slot;
};

std::vector<SlotRequest> slot_requests(const Plan& plan, const Holdings& holdings, MemorySlots& slots) {
  std::vector<SlotRequest> all;
  const StageSplit split = plan.split();
  const int micro_batches = plan.micro_batches;
  for (int chunk = 0; chunk < split.chunks(); ++chunk) {
    const int stage = chunk % split.stages;
    const auto [first, last] = layers_of_chunk(split, chunk);
    for (int pass = first * micro_batches; pass < last * micro_batches; ++pass)
      for (size_t l = 0; l < kLifetimes; ++l) {
        const auto lifetime = static_cast<Lifetime>(l);
        const Holding& holding = holdings[pass][l];
        const int layer = pass / micro_batches;
        const bool passed_on = lifetime == Lifetime::output || lifetime == Lifetime::output_gradient;
        if (holding.front().empty() || (passed_on && layer + 1 == last)) continue;
        const bool by_kind = lifetime == Lifetime::kept || lifetime == Lifetime::output;
        const bool dense = by_kind && plan.dense.has(layer);
        all.push_back({&holding, {shared_lifetime(lifetime), stage, dense}, &slots.slots_by_pass[pass][l]});
      }
  }
  std::ranges::stable_sort(all, {}, [](const SlotRequest& wanted) { return wanted.by->front().first(); });
  return all;
}

}  // namespace

MemorySlots memory_slots(const Plan& plan) {
  MemorySlots result{plan.micro_batches, {}, {}};
  const Holdings holdings = holdings_of(plan);
  MemorySlots::PassSlots nothing;
  nothing.fill(-1);
  result.slots_by_pass.assign(holdings.size(), nothing);
  const Ancestors ancestors(plan);
  std::map<MemorySlot, Slots> kinds;
  for (const SlotRequest& wanted : slot_requests(plan, holdings, result)) {
    const int fresh = static_cast<int>(result.slots.size());
    *wanted.slot = kinds[wanted.kind].take(*wanted.by, ancestors, fresh);
    if (*wanted.slot == fresh) result.slots.push_back(wanted.kind);
  }
  return result;
}

namespace {

double real(int64_t n) { return static_cast<double>(n); }

// Counts the tensors of one pass, in elements unless a name ends in bytes.
class PassCount {
 public:
  PassCount(const LayerCase& c, Flow flow, AttentionKept attention)
      : c_(c),
        l_(c.layer),
        p_(c.parallel),
        traits_(traits_of(flow)),
        rules_(memory_rules(p_.trainer)),
        attention_(attention) {}

  PassBytes bytes() const {
    const bool attends = attention_.attends;
    const double w = bytes_of(l_.dtype);
    PassBytes pass;
    pass.output = w * output();
    if (attends) {
      pass.kept = w * attention_kept();
      pass.dense = w * attention_meanwhile();
      pass.input_sum = w * m() * (scattered() ? mp_group_tokens() : 0);
    }
    if (is_dense(c_)) {
      pass.kept += w * feed_forward_kept();
      pass.moe = w * feed_forward_meanwhile() + fp8_bytes(mp_group_tokens(), l_.shared_hidden / p_.mp);
      return pass;
    }
    pass.kept += w * (tokens_kept(attends) + rows_kept() + shared_kept()) + gate_scores();
    pass.moe = w * (tokens_meanwhile() + rows_meanwhile() + shared_meanwhile()) + wire_bytes();
    pass.moe += fp8_bytes(computed_rows(), l_.hidden / p_.esp);
    if (l_.shared_hidden > 0) pass.moe += fp8_bytes(mp_group_tokens(), l_.shared_hidden / p_.mp);
    pass.dense += gate_bytes_meanwhile();
    pass.permanent = 2 * gate_scores() + w * (mask() + dispatcher_blocks());
    return pass;
  }

 private:
  double m() const { return real(l_.model_dim); }
  double w_ratio() const { return real(bytes_of(accumulation_type(l_.dtype))) / real(bytes_of(l_.dtype)); }
  double gemms() const { return gemms_of(l_.ffn); }
  bool pre_norm() const { return l_.norm != Norm::none && !is_post_norm(l_.norm); }

  // Numbers of tokens: those of the MP group; those whose input and output the rank has; those that the rank gates.
  double mp_group_tokens() const { return real(mp_tokens(c_)); }
  double held_tokens() const { return mp_group_tokens() / (traits_.holds == Tokens::own ? p_.mp : 1); }
  double gated() const {
    if (traits_.gates == Tokens::own) return mp_group_tokens() / p_.mp;
    return mp_group_tokens() * (traits_.gates == Tokens::esp_groups ? p_.esp : 1);
  }
  bool scattered() const { return held_tokens() < mp_group_tokens(); }
  // Numbers of tokens whose gathered rows, or normed rows, are kept.
  double gathered_kept() const { return rules_.gathers_again ? 0 : mp_group_tokens(); }
  double normed_kept() const { return rules_.gathers_again ? held_tokens() : mp_group_tokens(); }
  bool gathers_gated() const { return !is_dense(c_) && !traits_.gathers_tokens() && gated() > held_tokens(); }
  double output() const { return m() * (gathers_gated() ? gated() : held_tokens()); }

  // q, k, v and the heads' output, or their gradients; k and v of whole samples, or of the rank's block of a ring.
  // Heads are those of the rank with the most.
  double projected() const {
    const HeadColumns columns = max_columns(c_);
    const int keys = p_.ring_blocks() > 0 ? 1 : p_.cp;
    return mp_group_tokens() * real(columns.query + columns.mixed + keys * (columns.key + columns.value));
  }
  // Other ranks' blocks of keys and values in a ring, at most two at a time.
  double received_keys() const {
    const HeadColumns columns = max_columns(c_);
    return p_.ring_blocks() > 0 ? std::min(2, p_.cp - 1) * mp_group_tokens() * real(columns.key + columns.value) : 0;
  }
  // Gradients that a ring's backward sends, of two blocks.
  double sent_gradients() const {
    const HeadColumns columns = max_columns(c_);
    return p_.ring_blocks() > 0 ? 2 * mp_group_tokens() * real(columns.key + columns.value) : 0;
  }
  // In a ring: for each token and head, the softmax's denominator for the backward, or the gradient's sum.
  double ring_sums() const {
    return p_.ring_blocks() > 0 ? w_ratio() * mp_group_tokens() * real(max_heads(c_).query) : 0;
  }
  // Gradients of keys and values, to which later parts add theirs.
  double keys_gradients() const {
    const HeadColumns columns = max_columns(c_);
    return l_.parts > 1 ? mp_group_tokens() * real(columns.key + columns.value) : 0;
  }
  // A CP rank's keys and values of its own tokens before a gather, or their gradients after a sum.
  double local_keys_values() const {
    const HeadColumns columns = max_columns(c_);
    return p_.cp > 1 && p_.ring_blocks() == 0 ? mp_group_tokens() * real(columns.key + columns.value) : 0;
  }
  // Latents of latent attention, normed or not, or their gradients.
  double latents() const { return mp_group_tokens() * real(l_.q_lora_rank + l_.kv_lora_rank); }
  // What attention keeps: its input, gathered and normed; its projections; the softmax of the scores; the hidden state.
  double attention_kept() const {
    const bool keeps = attention_.scores && !rules_.fused_attention && !p_.recomputes_scores();
    const double scores = keeps ? mp_group_tokens() * real(max_heads(c_).query * l_.seq) : 0;
    const bool again = scattered() && !rules_.gathers_again && (is_dense(c_) || gathers_gated());
    const double hidden = again ? 0 : held_tokens();
    return m() * ((scattered() ? gathered_kept() : 0) + (pre_norm() ? normed_kept() : 0) + hidden) + projected() +
           2 * latents() + keys_gradients() + scores + ring_sums();
  }
  // Attention's temporary tensors: this rank's part of a sum over MP, or the gradient of gathered rows; gradients of
  // the hidden state and of the projections.
  double attention_meanwhile() const {
    const double tokens = mp_group_tokens() + (scattered() ? held_tokens() : 0);
    return m() * (tokens + (gathers_gated() ? gated() : 0)) + projected() - keys_gradients() + local_keys_values() +
           latents() + received_keys() + sent_gradients() + ring_sums() + mp_group_tokens() * real(l_.qk_rope_head_dim);
  }

  double hidden_elements(double rows, int64_t hidden, int shards) const {
    return gemms() * rows * real(hidden) / shards;
  }
  double hidden_elements_meanwhile(double rows, int64_t hidden, int shards) const {
    return (gemms() - 1) * rows * real(hidden) / shards;
  }

  // Rows as FP8 numbers, at most as wide as a weight, and their scales.
  double fp8_bytes(double rows, int64_t hidden) const {
    if (!in_fp8(l_.ffn)) return 0;
    const double most = std::max(m(), real(hidden));
    return rows * (most + most / real(kFp8Block) * real(sizeof(float)));
  }

  // What a dense layer's feed-forward keeps: its input, gathered and normed; the rows between its GEMMs.
  double feed_forward_kept() const {
    const double input = (scattered() ? gathered_kept() : 0) + (l_.norm != Norm::none ? normed_kept() : 0);
    return m() * input + hidden_elements(mp_group_tokens(), l_.shared_hidden, p_.mp);
  }
  double feed_forward_meanwhile() const {
    return m() * (scattered() ? 2 * mp_group_tokens() : 0) +
           hidden_elements_meanwhile(mp_group_tokens(), l_.shared_hidden, p_.mp);
  }

  // What the MoE part keeps of tokens: the gate's input, gathered and normed; its residual sum if a norm follows it.
  double tokens_kept(bool attends) const {
    double tokens = l_.norm != Norm::none || !attends ? gated() : 0;
    if (attends && gathers_gated()) tokens += gated();
    return m() * (tokens + (is_post_norm(l_.norm) ? gated() : 0));
  }
  double tokens_meanwhile() const {
    const double gradients = (is_post_norm(l_.norm) ? gated() : 0) + (l_.hook != "none" ? gated() : 0);
    return m() * gradients + w_ratio() * gated() * choices();
  }

  double t_rank() const { return planned_rows(c_); }
  // Numbers of rows: those of one group of tokens for all experts; groups; rows that this rank sends; rows that its
  // experts compute.
  double group_rows() const { return t_rank() * real(l_.experts); }
  double groups() const { return gated() / (mp_group_tokens() / p_.mp); }
  double sent_rows() const { return group_rows() * (traits_.sends_all_groups() ? groups() : 1); }
  double computed_rows() const { return group_rows() * (traits_.sends_all_groups() ? groups() : p_.esp); }
  double gathered_home_rows() const { return traits_.gathers_rows() && p_.mp > 1 ? group_rows() * p_.mp : 0; }
  bool moved() const {
    if (traits_.fused()) return p_.ep * p_.esp > 1;
    return traits_.through_peer() ? p_.esp > 1 : p_.ep > 1;
  }

  // What the experts keep: their input and the rows between their GEMMs; the returned rows, for the gate's gradient.
  double rows_kept() const {
    double back = gathered_home_rows() > 0 ? gathered_home_rows() : sent_rows();
    if (rules_.weighs_before_combine) back = 0;
    return m() * (computed_rows() + back) + hidden_elements(computed_rows(), l_.hidden, p_.esp);
  }
  // Temporary tensors of rows: rows in transit after each exchange; an expert task's input and output; gradients
  // between the GEMMs.
  double rows_meanwhile() const {
    double stations =
        sent_rows() + gathered_home_rows() * (traits_.way == RowRoute::over_mp ? 2 : 1);  // MoNTA may copy rows
    if (traits_.fused() && p_.esp > 1) stations += sent_rows() * p_.esp;
    if (traits_.through_peer() && p_.ep > 1) stations += sent_rows();
    if (moved()) stations += computed_rows();
    return m() * (stations + 2 * computed_rows()) + hidden_elements_meanwhile(computed_rows(), l_.hidden, p_.esp);
  }
  // Send and receive buffers of one exchange, if rows are sent in another type than the layer's.
  double wire_bytes() const {
    const DType wire = wire_type(l_);
    return wire == l_.dtype ? 0 : 2 * bytes_of(wire) * m() * std::max(sent_rows(), moved() ? computed_rows() : 0);
  }

  // What the shared expert keeps: its input, if gathered from MP ranks; the rows between its GEMMs.
  bool gathers_shared() const { return p_.mp > 1 && traits_.gates == Tokens::own; }
  double shared_kept() const {
    if (l_.shared_hidden == 0) return 0;
    return m() * (gathers_shared() ? gathered_kept() : 0) + hidden_elements(mp_group_tokens(), l_.shared_hidden, p_.mp);
  }
  double shared_meanwhile() const {
    if (l_.shared_hidden == 0) return 0;
    const double gathers = gathers_shared() ? mp_group_tokens() + mp_group_tokens() / p_.mp : 0;
    return m() * (mp_group_tokens() + gathers) + hidden_elements_meanwhile(mp_group_tokens(), l_.shared_hidden, p_.mp);
  }

  // A token of a mixing gate (softmoe) has a score for each of its choices.
  bool mixes() const { return gate_of(l_).choices == Choices::rows; }
  double choices() const { return real(choices_of(c_)); }
  // Scores of 16-bit layers are in float32, and the gate's input is converted to it. Each pass keeps the gate's own
  // tensors: spread and noise, probabilities, or weights and fill (which has a gradient).
  double gate_scores() const {
    return bytes_of(accumulation_type(l_.dtype)) * gated() * (mixes() ? choices() : real(l_.experts));
  }
  double gate_bytes_meanwhile() const {
    const DType sums = accumulation_type(l_.dtype);
    return (mixes() ? 2 : 1) * gate_scores() + (sums == l_.dtype ? 0 : bytes_of(sums) * gated() * m());
  }
  // GShard's order multiplies by a mask, one element for each token of a group and row of an expert.
  double mask() const { return l_.order == "gshard" ? mp_group_tokens() / p_.mp * t_rank() : 0; }
  // Buffers in which 1dh and 2dh reorder blocks, if an EP group has several nodes and several ranks on each.
  double dispatcher_blocks() const {
    const int on_node = std::min(p_.ep, p_.ep_inside ? p_.ranks_per_node : std::max(1, p_.ranks_per_node / p_.esp));
    if (on_node == 1 || on_node == p_.ep || traits_.fused()) return 0;
    if (l_.dispatcher == "2dh") return 2 * sent_rows() * m();
    return l_.dispatcher == "1dh" ? 2 * sent_rows() * m() * on_node : 0;
  }

  const LayerCase& c_;
  const LayerShape& l_;
  const ParallelShape& p_;
  const FlowTraits& traits_;
  const MemoryRules& rules_;
  AttentionKept attention_;
};

}  // namespace

PassBytes pass_bytes(const LayerCase& shape, Flow flow, AttentionKept attention) {
  return PassCount(shape, flow, attention).bytes();
}

}  // namespace moe
