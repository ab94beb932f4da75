#include "moe/plan/memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "moe/base/registry.h"
#include "moe/plan/lifetimes.h"
#include "moe/plan/pass_memory.h"
#include "moe/plan/step.h"
#include "moe/plan/volumes.h"

namespace moe {
namespace {

constexpr std::array<Named<ActivationModel>, 3> kModels{{{"printed", ActivationModel::printed},
                                                         {"corrected", ActivationModel::corrected},
                                                         {"counted", ActivationModel::counted}}};
static_assert(in_enum_order(kModels, &Named<ActivationModel>::value));

double width(const LayerCase& c) { return bytes_of(c.layer.dtype); }

double tokens(const LayerCase& c) { return static_cast<double>(c.layer.batch * c.layer.seq); }

// Counts layers, or their activations of a micro-batch, by kind.
struct Layers {
  int moe = 0, dense = 0;
};

Layers layers_of(const MemoryRequest& r, int chunk) {
  const auto [first, last] = layers_of_chunk(r.split(), chunk);
  const int dense = r.dense.in(first, last);
  return {last - first - dense, dense};
}

Layers layers_in(const MemoryRequest& r, int stage) {
  Layers all;
  for (int chunk = stage; chunk < r.split().chunks(); chunk += r.split().stages) {
    const Layers more = layers_of(r, chunk);
    all.moe += more.moe, all.dense += more.dense;
  }
  return all;
}

// Asks the same of a model whose layers are all as the dense ones.
MemoryRequest of_dense(MemoryRequest r) {
  if (r.dense.hidden > 0) r.shape = dense_case(r.shape, r.dense.hidden);
  return r;
}

void check(const MemoryRequest& r) {
  require<BadInput>(r.layers >= 1, "layers: found {}, expected a whole number >= 1", r.layers);
  require<BadInput>(r.micro_batches >= 1, "micro-batches: found {}, expected a whole number >= 1", r.micro_batches);
  require<BadInput>(r.shape.parallel.zero >= 0 && r.shape.parallel.zero <= kMostZeroStage,
                    "zero: found {}, expected 0 to {}", r.shape.parallel.zero, kMostZeroStage);
  require<WrongResult>(r.slots.empty() || std::ssize(r.slots) == r.shape.parallel.pp,
                       "memory: found the slots of {} stages, expected pp = {}", r.slots.size(), r.shape.parallel.pp);
  require<BadInput>(r.layers >= r.shape.parallel.pp, "layers = {} over pp = {}: every stage needs a layer", r.layers,
                    r.shape.parallel.pp);
}

// Says which of a model's ends a stage has.
struct Ends {
  Ends(const MemoryRequest& r, int stage)
      : embedding(r.vocabulary > 0 && stage == 0), head(r.vocabulary > 0 && stage == r.shape.parallel.pp - 1) {}
  bool embedding, head;
};

// Returns the words of a vocabulary on the rank that has most.
double words(const MemoryRequest& r) { return static_cast<double>(shared_out(r.vocabulary, r.shape.parallel.mp)); }

// Counts the parameters of the model's ends on one rank.
double end_parameters(const MemoryRequest& r, Ends ends) {
  StepWeights all;
  if (ends.embedding) all += embedding_weights(r.shape, r.vocabulary);
  if (ends.head) all += head_weights(r.shape, r.vocabulary, r.tied_embedding);
  return static_cast<double>(all.dense + all.alike);
}

// Counts the bytes of the head's probabilities: of all micro-batches as models run, else of one.
double probabilities(const MemoryRequest& r, Ends ends) {
  return ends.head ? (r.keeps_ends ? r.micro_batches : 1) * width(r.shape) * tokens(r.shape) * words(r) : 0;
}

// Counts, of a model as it runs, the bytes of its ends' rows of M: the normed ones; where a rank has the rows of its
// own tokens alone those that it gathers and adds up, of the embedding one set for both.
double end_rows(const MemoryRequest& r, Ends ends) {
  if (!r.keeps_ends) return 0;
  const bool apart = r.shape.parallel.mp > 1 && traits_of(r.flow).holds == Tokens::own;
  const int sets = (ends.head ? 1 : 0) + (apart ? ends.embedding + 2 * ends.head : 0);
  return r.micro_batches * sets * width(r.shape) * tokens(r.shape) * static_cast<double>(r.shape.layer.model_dim);
}

// Counts weights, gradients and optimizer states of `parameters` that `replicas` ranks hold alike.
MemoryEstimate states(double parameters, int replicas, const MemoryRequest& r) {
  const double w = width(r.shape);
  const auto shard = [&](int stage) { return r.shape.parallel.zero >= stage ? replicas : 1; };
  MemoryEstimate e;
  e.weights = parameters * w / shard(3);
  e.gradients = parameters * w / shard(2);
  e.optimizer = parameters * (w == 2 ? 12 : 2 * w) / shard(1);
  return e;
}

// Counts the bytes of both orientations of one layer's weights that experts have as FP8 numbers.
double fp8_bytes(const MemoryRequest& r) {
  const LayerShape& l = r.shape.layer;
  const ParallelShape& p = r.shape.parallel;
  if (!in_fp8(l.ffn)) return 0;
  const double hidden = static_cast<double>(l.experts) / p.ep * static_cast<double>(l.hidden) / p.esp +
                        static_cast<double>(l.shared_hidden) / p.mp;
  const double scale = sizeof(float) / static_cast<double>(kFp8Block * kFp8Block);  // a number's share
  return 2 * gemms_of(l.ffn) * static_cast<double>(l.model_dim) * hidden * (1 + scale);
}

// Counts one layer and micro-batch by MoNTA, Table 4; `w`: bytes an element, `scores_t`: what divides the scores.
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

// Counts one layer and micro-batch, as the request's model does.
double activations_of(const MemoryRequest& r) {
  if (r.activations == ActivationModel::printed) return table4(r, 2, 1);
  if (r.activations == ActivationModel::corrected) return table4(r, width(r.shape), r.shape.parallel.mp);
  return pass_of(r).kept;
}

enum class Which { all, last, others };  // of a chunk's layers

Layers layers_of(const MemoryRequest& r, int chunk, Which which) {
  const auto [first, last] = layers_of_chunk(r.split(), chunk);
  const Layers ends = r.dense.has(last - 1) ? Layers{0, 1} : Layers{1, 0};
  if (which == Which::last) return ends;
  const Layers all = layers_of(r, chunk);
  return which == Which::all ? all : Layers{all.moe - ends.moe, all.dense - ends.dense};
}

// Counts layers' passes in flight: the most of each kind that the stage holds at any time.
Layers passes(const MemoryRequest& r, int stage, Which which = Which::all) {
  if (r.virtual_stages == 1 || r.dense.none(r.layers)) {  // all of a stage's chunks are alike
    const int held = passes_in_flight(r.order, r.micro_batches, r.split(), stage);
    const Layers each = layers_of(r, stage, which);
    return {each.moe * held, each.dense * held};
  }
  Layers now, most;
  for (const PipelineStep& step : steps_of_stage(r.order, r.micro_batches, r.split(), stage)) {
    const Layers each = layers_of(r, step.chunk, which);
    const int sign = step.phase == Phase::forward ? 1 : -1;
    now.moe += sign * each.moe, now.dense += sign * each.dense;
    most = {std::max(most.moe, now.moe), std::max(most.dense, now.dense)};
  }
  return most;
}

// Counts passes of which all is kept that their backward reads.
Layers sets_kept(const MemoryRequest& r, int stage) {
  if (!r.slots.empty()) {
    const StageSlots& slots = r.slots[static_cast<size_t>(stage)];
    return {slots.kept - slots.kept_dense, slots.kept_dense};
  }
  if (r.shape.parallel.recompute != Recompute::full) return passes(r, stage);
  const Layers layers = layers_in(r, stage);  // layers that differ in kind don't keep in the same
  return {std::min(1, layers.moe), std::min(1, layers.dense)};
}

// Counts outputs of layers: a plan's slots have all but those of chunks' last layers.
Layers outputs_kept(const MemoryRequest& r, int stage) {
  const Layers last = passes(r, stage, Which::last);
  if (r.slots.empty()) {
    const Layers others = passes(r, stage, Which::others);
    return {others.moe + last.moe, others.dense + last.dense};
  }
  const StageSlots& slots = r.slots[static_cast<size_t>(stage)];
  return {slots.outputs - slots.outputs_dense + last.moe, slots.outputs_dense + last.dense};
}

double activations(const MemoryRequest& r, int stage) {
  const MemoryRequest dense = of_dense(r);
  const double layer = activations_of(r), dense_layer = is_dense(dense.shape) ? activations_of(dense) : 0;
  if (r.activations == ActivationModel::printed) {
    const int of_dense = r.dense.in(0, r.layers);
    return (r.layers - of_dense) * layer + of_dense * dense_layer;
  }
  const auto sum = [](Layers count, double moe, double of_dense) { return count.moe * moe + count.dense * of_dense; };
  if (r.activations == ActivationModel::corrected) return sum(passes(r, stage), layer, dense_layer);
  const double outputs = r.dense_part ? sum(outputs_kept(r, stage), pass_of(r).output, pass_of(dense).output) : 0;
  return sum(sets_kept(r, stage), layer, dense_layer) + outputs + probabilities(r, {r, stage}) +
         end_rows(r, {r, stage});
}

// Says whether a rank gathers weights that so many ranks hold alike: under ZeRO 3 it has its shard alone.
bool gathers_from(const LayerCase& c, int replicas) { return c.parallel.zero == kMostZeroStage || replicas > 1; }

// Counts the parameters of a layer that are gathered at once.
double gathered(const LayerCase& c, const RankParameters& layer) {
  return (gathers_from(c, c.parallel.dp) ? layer.dense : 0) + (gathers_from(c, c.parallel.edp) ? layer.experts : 0);
}

// Counts what enters and leaves a stage, and both gradients: as they run of every chunk and micro-batch, of which the
// activations have an output of those in flight.
double stage_ends(const MemoryRequest& r, const PassBytes& pass, int stage) {
  const int passes = r.virtual_stages * r.micro_batches;
  return pass.output * (r.keeps_ends ? 4 * passes - passes_in_flight(r.order, r.micro_batches, r.split(), stage) : 3);
}

double buffers(const MemoryRequest& r, int stage) {
  const MemoryRequest dense = of_dense(r);
  PassBytes pass = pass_of(r);
  if (is_dense(dense.shape)) pass.moe += pass_of(dense).moe;
  const int moe_layers = layers_in(r, stage).moe;
  const auto [first, last] = layers_of_chunk(r.split(), stage);
  const PartSlots slots = r.slots.empty() ? PartSlots() : r.slots[static_cast<size_t>(stage)].parts;
  double bytes = slots.dense * pass.dense + slots.moe * pass.moe + slots.input_sums * pass.input_sum;
  bytes += moe_layers * r.micro_batches * pass.apart + stage_ends(r, pass, stage);
  if (last - first > 1) bytes += slots.output_gradients * pass.output;
  if (r.shape.parallel.zero == 0) return bytes;
  RankParameters most = rank_parameters(r);
  if (const RankParameters other = rank_parameters(dense); gathered(r.shape, other) > gathered(r.shape, most))
    most = other;
  return bytes + width(r.shape) * gathered(r.shape, most);
}

std::vector<StageSlots> by_stage(const MemorySlots& slots, int stages) {
  std::vector<StageSlots> all(static_cast<size_t>(stages), StageSlots{.parts = {0, 0, 0, 0}});
  for (const MemorySlot& slot : slots.slots) {
    StageSlots& at = all[static_cast<size_t>(slot.stage)];
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
        break;  // the slots of forwards
    }
  }
  return all;
}

}  // namespace

std::string_view name_of(ActivationModel model) { return kModels[static_cast<size_t>(model)].name; }

RankParameters rank_parameters(const MemoryRequest& r) {
  const LayerCase& c = r.shape;
  const StepWeights all = step_weights(c);
  int64_t dense = all.dense + all.alike;
  if (!r.dense_part) dense -= attention_parameters(c) + attention_biases(c) + 2 * norm_parameters(c.layer);
  return {static_cast<double>(dense), static_cast<double>(all.experts)};
}

double micro_batches_in_flight(const MemoryRequest& r, int stage) {
  return static_cast<double>(passes_in_flight(r.order, r.micro_batches, r.split(), stage)) / r.virtual_stages;
}

MemoryEstimate estimate_stage(const MemoryRequest& r, int stage) {
  check(r);
  const RankParameters layer = rank_parameters(r), dense_layer = rank_parameters(of_dense(r));
  const Layers layers = layers_in(r, stage);
  double parameters = layers.moe * layer.dense + end_parameters(r, {r, stage});
  if (layers.dense > 0) parameters += layers.dense * dense_layer.dense;
  const MemoryEstimate dense = states(parameters, r.shape.parallel.dp, r);
  const MemoryEstimate experts = states(layers.moe * layer.experts, r.shape.parallel.edp, r);
  MemoryEstimate e;
  e.weights = dense.weights + experts.weights + layers.moe * fp8_bytes(r);
  if (layers.dense > 0) e.weights += layers.dense * fp8_bytes(of_dense(r));
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

MemoryRequest memory_request(const Plan& plan) {
  MemoryRequest request;
  request.shape = plan.shape;
  request.layers = std::max(plan.layers, plan.shape.parallel.pp);
  request.micro_batches = plan.micro_batches;
  request.order = plan.order;
  request.virtual_stages = plan.virtual_stages;
  request.flow = plan.structure->flow;
  request.dense = plan.dense;
  request.slots = by_stage(memory_slots(plan), plan.shape.parallel.pp);
  request.vocabulary = plan.vocabulary;
  request.tied_embedding = plan.step.tied;
  request.keeps_ends = request.vocabulary > 0;
  return request;
}

std::optional<std::string> misfit(const MemoryEstimate& estimate, double capacity_bytes) {
  if (estimate.total() <= capacity_bytes) return std::nullopt;
  return fmt::format("does not fit: needs {}, a rank has {}", human_bytes(estimate.total()),
                     human_bytes(capacity_bytes));
}

}  // namespace moe
