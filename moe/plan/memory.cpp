#include "moe/plan/memory.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "moe/base/registry.h"
#include "moe/plan/volumes.h"

namespace moe {
namespace {

template <class Value>
struct NamedValue {
  std::string_view name;
  Value value;
};
constexpr std::array<NamedValue<ActivationModel>, 3> kModels{{{"printed", ActivationModel::printed},
                                                              {"corrected", ActivationModel::corrected},
                                                              {"counted", ActivationModel::counted}}};

double width(const LayerCase& c) { return bytes_of(c.layer.dtype); }

double tokens(const LayerCase& c) { return static_cast<double>(c.layer.batch * c.layer.seq); }

// Counts layers, or their activations of a micro-batch, by kind.
struct Layers {
  int moe = 0, dense = 0;
};

Layers layers_in(const MemoryRequest& r, int stage) {
  const auto [first, last] = layers_of_stage(r.layers, r.shape.parallel.pp, stage);
  const int dense = r.dense.in(first, last);
  return {last - first - dense, dense};
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
  require<BadInput>(r.layers >= r.shape.parallel.pp, "layers = {} over pp = {}: every stage needs a layer", r.layers,
                    r.shape.parallel.pp);
}

// Counts the parameters of the model's ends on one rank.
double embedding_parameters(const MemoryRequest& r) {
  const int copies = r.tied_embedding || r.shape.parallel.pp > 1 ? 1 : 2;
  return copies * static_cast<double>(r.vocabulary) * static_cast<double>(r.shape.layer.model_dim) /
         r.shape.parallel.mp;
}

// Counts the bytes of the output's probabilities: of all micro-batches as models run; else of one, and only where the
// last stage keeps as many micro-batches as the first, which else is the fullest.
double probabilities(const MemoryRequest& r) {
  const int pp = r.shape.parallel.pp;
  const bool alike = micro_batches_in_flight(r.order, r.micro_batches, pp, 0) ==
                     micro_batches_in_flight(r.order, r.micro_batches, pp, pp - 1);
  const int kept = r.keeps_logits ? r.micro_batches : alike ? 1 : 0;
  return kept * width(r.shape) * tokens(r.shape) / r.shape.parallel.mp * static_cast<double>(r.vocabulary);
}

// Counts, of a model as it runs, the bytes of its ends' rows of M: the normed ones; where a rank has the rows of its
// own tokens alone those that it gathers and adds up, of the embedding one set for both.
double end_rows(const MemoryRequest& r) {
  if (!r.keeps_logits) return 0;
  const ParallelShape& p = r.shape.parallel;
  const int apart = p.mp == 1 || !r.rows_apart ? 0 : p.pp == 1 ? 3 : 2;
  return r.micro_batches * (1 + apart) * width(r.shape) * tokens(r.shape) *
         static_cast<double>(r.shape.layer.model_dim);
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

// Counts elements that the dense part's backward reads: x; the gathered input of q, k, v; q, k, v and their result; the
// softmax of the scores; the hidden state. Heads are those of the rank that has most.
double dense_elements(const MemoryRequest& r) {
  const LayerShape& l = r.shape.layer;
  const int mp = r.shape.parallel.mp;
  const Heads most = most_heads(r.shape);
  const double model_dim = static_cast<double>(l.model_dim), head_dim = model_dim / static_cast<double>(l.heads);
  const double projected = static_cast<double>(2 * (most.query + most.key_value)) * head_dim;
  const double scores =
      r.shape.parallel.recompute != Recompute::selective ? static_cast<double>(most.query * l.seq) : 0;
  return tokens(r.shape) * (2 * model_dim / mp + model_dim + projected + scores);
}

// Counts rows of M elements that a rank sends in one dispatch.
double dispatched_rows(const MemoryRequest& r) {
  const LayerCase& c = r.shape;
  const double rows = c.rounding == Rounding::exact ? capacity_exact(c) : static_cast<double>(padded_rows(c));
  return rows * static_cast<double>(c.layer.experts) * (r.replicated ? c.parallel.mp : 1);
}

double gated_tokens(const MemoryRequest& r) { return tokens(r.shape) / (r.replicated ? 1 : r.shape.parallel.mp); }

// Counts the MoE part's elements: the gate's input; the experts' input; what lies between their GEMMs (GPT: before and
// after GELU; SwiGLU: gate, up and their product); the rows that came back, for the gate's gradient.
double moe_elements(const MemoryRequest& r) {
  const LayerCase& c = r.shape;
  const double model_dim = static_cast<double>(c.layer.model_dim), out = dispatched_rows(r);
  const double between = gemms_of(c.layer.ffn) * static_cast<double>(c.layer.hidden) / c.parallel.esp;
  return gated_tokens(r) * model_dim + out * c.parallel.esp * (model_dim + between) + out * model_dim;
}

// Counts the shared expert's elements: its input, where gathered from MP ranks; what lies between its GEMMs.
double shared_elements(const MemoryRequest& r) {
  const LayerCase& c = r.shape;
  if (c.layer.shared_hidden == 0) return 0;
  const bool gathered = c.parallel.mp > 1 && !r.replicated;
  const double between = gemms_of(c.layer.ffn) * static_cast<double>(c.layer.shared_hidden) / c.parallel.mp;
  return tokens(c) * (between + (gathered ? static_cast<double>(c.layer.model_dim) : 0));
}

// Counts logits, spread and noise: in float32 for 16-bit layers, which widen the gate's input too.
double gate_bytes(const MemoryRequest& r) {
  const LayerShape& l = r.shape.layer;
  const DType sums = sums_type(l.dtype);
  const int64_t widened = sums == l.dtype ? 0 : l.model_dim;
  return bytes_of(sums) * gated_tokens(r) * static_cast<double>(3 * l.experts + widened);
}

// Counts a dense layer's feed-forward: its gathered input, and what lies between its GEMMs.
double ffn_elements(const MemoryRequest& r) {
  const LayerShape& l = r.shape.layer;
  const double between = gemms_of(l.ffn) * static_cast<double>(l.shared_hidden) / r.shape.parallel.mp;
  return tokens(r.shape) * (static_cast<double>(l.model_dim) + between);
}

// Counts one layer and micro-batch, as the request's model does.
double activations_of(const MemoryRequest& r) {
  if (r.activations == ActivationModel::printed) return table4(r, 2, 1);
  if (r.activations == ActivationModel::corrected) return table4(r, width(r.shape), r.shape.parallel.mp);
  if (is_dense(r.shape)) return width(r.shape) * (dense_elements(r) + ffn_elements(r));
  return width(r.shape) * (moe_elements(r) + shared_elements(r) + (r.dense_part ? dense_elements(r) : 0)) +
         gate_bytes(r);
}

Layers sets_kept(const MemoryRequest& r, int stage) {
  if (r.kept) return {*r.kept - r.kept_dense, r.kept_dense};
  const Layers layers = layers_in(r, stage);
  const int flight = micro_batches_in_flight(r.order, r.micro_batches, r.shape.parallel.pp, stage);
  return {layers.moe * flight, layers.dense * flight};
}

double activations(const MemoryRequest& r, int stage) {
  const MemoryRequest dense = of_dense(r);
  const double layer = activations_of(r), dense_layer = is_dense(dense.shape) ? activations_of(dense) : 0;
  if (r.activations == ActivationModel::printed) {
    const int of_dense = r.dense.in(0, r.layers);
    return (r.layers - of_dense) * layer + of_dense * dense_layer;
  }
  const auto [moe, none] = sets_kept(r, stage);
  if (r.activations == ActivationModel::corrected) return moe * layer + none * dense_layer;
  const double ends = probabilities(r) + end_rows(r);
  if (r.shape.parallel.recompute != Recompute::full) return moe * layer + none * dense_layer + ends;
  const double input = tokens(r.shape) * static_cast<double>(r.shape.layer.model_dim) / r.shape.parallel.mp;
  return (moe + none) * width(r.shape) * input + std::max(layer, dense_layer) + ends;
}

// Says whether a rank gathers weights that so many ranks hold alike: under ZeRO 3 it has its shard alone.
bool gathers_from(const LayerCase& c, int replicas) { return c.parallel.zero == kMostZeroStage || replicas > 1; }

double gathered(const LayerCase& c, const RankParameters& layer) {
  return (gathers_from(c, c.parallel.dp) ? layer.dense : 0) + (gathers_from(c, c.parallel.edp) ? layer.experts : 0);
}

double buffers(const MemoryRequest& r) {
  const LayerCase& c = r.shape;
  const double model_dim = static_cast<double>(c.layer.model_dim), w = width(c);
  const double out = dispatched_rows(r) * model_dim, esp = c.parallel.esp, gathers = c.parallel.esp > 1 ? 1 : 0;
  // Parm's baseline gathers tokens over ESP before its gate, so that its AlltoAlls carry N_ESP times as much.
  const double moved = r.replicated ? (4 * out + gathers * tokens(c) * model_dim) * esp : (4 + 2 * gathers * esp) * out;
  if (c.parallel.zero == 0) return w * moved;
  RankParameters most = rank_parameters(r);
  if (const RankParameters dense = rank_parameters(of_dense(r)); gathered(c, dense) > gathered(c, most)) most = dense;
  return w * (moved + (gathers_from(c, c.parallel.dp) ? most.dense : 0) +
              (gathers_from(c, c.parallel.edp) ? most.experts : 0));
}

}  // namespace

std::string_view name_of(ActivationModel model) { return kModels[static_cast<size_t>(model)].name; }

RankParameters rank_parameters(const MemoryRequest& r) {
  const LayerShape& l = r.shape.layer;
  const ParallelShape& p = r.shape.parallel;
  const double model_dim = static_cast<double>(l.model_dim);
  RankParameters out;
  out.dense = 2 * static_cast<double>(l.experts) * model_dim;  // the gate: logits and their spread (GShard)
  out.dense += static_cast<double>(shared_parameters(r.shape) + dense_biases(r.shape));
  if (r.dense_part) out.dense += static_cast<double>(attention_parameters(r.shape)) + 4 * model_dim;
  out.experts =
      static_cast<double>(l.experts) / p.ep * gemms_of(l.ffn) * model_dim * static_cast<double>(l.hidden) / p.esp;
  out.experts += static_cast<double>(expert_biases(r.shape));
  return out;
}

int micro_batches_in_flight(const MemoryRequest& r) {
  return micro_batches_in_flight(r.order, r.micro_batches, r.shape.parallel.pp, 0);
}

MemoryEstimate estimate_memory(const MemoryRequest& r) {
  check(r);
  const RankParameters layer = rank_parameters(r), dense_layer = rank_parameters(of_dense(r));
  const auto of_stage = [&](int stage) {
    const Layers layers = layers_in(r, stage);
    double parameters = layers.moe * layer.dense;
    if (layers.dense > 0) parameters += layers.dense * dense_layer.dense;
    const MemoryEstimate dense = states(parameters + embedding_parameters(r), r.shape.parallel.dp, r);
    const MemoryEstimate experts = states(layers.moe * layer.experts, r.shape.parallel.edp, r);
    MemoryEstimate e;
    e.weights = dense.weights + experts.weights;
    e.gradients = dense.gradients + experts.gradients;
    e.optimizer = dense.optimizer + experts.optimizer;
    e.activations = activations(r, stage);
    e.buffers = buffers(r);
    return e;
  };
  MemoryEstimate most = of_stage(0);  // the fullest, where all layers are alike
  for (int stage = 1; stage < r.shape.parallel.pp && !r.dense.none(r.layers); ++stage)
    if (const MemoryEstimate e = of_stage(stage); e.total() > most.total()) most = e;
  return most;
}

MemoryEstimate layer_memory(const LayerCase& shape, Flow flow) {
  MemoryRequest request;
  request.shape = shape;
  request.layers = shape.parallel.pp;
  request.replicated = traits_of(flow).sends_all_groups();
  return estimate_memory(request);
}

int activations_kept(const Plan& plan) { return activations_kept(plan, 1, 1).first; }

std::pair<int, int> activations_kept(const Plan& plan, double moe_bytes, double dense_bytes) {
  const auto computes = [](const Task& task) { return is_of_layer(task.kind); };  // others outlive no activations
  const auto set_of = [&](const Task& task) {
    return static_cast<size_t>(task.layer) * static_cast<size_t>(plan.micro_batches) +
           static_cast<size_t>(task.micro_batch);
  };
  std::vector<int> last(static_cast<size_t>(plan.layers) * static_cast<size_t>(plan.micro_batches), -1);
  for (const Task& task : plan.tasks())
    if (task.phase == Phase::backward && computes(task)) last[set_of(task)] = task.id;
  std::vector<bool> begun(last.size());
  std::vector<Layers> kept(static_cast<size_t>(plan.shape.parallel.pp));
  Layers most;
  const auto bytes = [&](const Layers& sets) { return sets.moe * moe_bytes + sets.dense * dense_bytes; };
  for (const Task& task : plan.tasks()) {
    if (!computes(task)) continue;
    Layers& now = kept[static_cast<size_t>(plan.structure->lanes[static_cast<size_t>(task.lane)].stage)];
    int& of_kind = plan.dense.has(task.layer) ? now.dense : now.moe;
    if (!begun[set_of(task)] && (++of_kind, bytes(now) > bytes(most))) most = now;
    begun[set_of(task)] = true;
    if (task.id == last[set_of(task)]) --of_kind;
  }
  return {most.moe + most.dense, most.dense};
}

MemoryRequest memory_request(const Plan& plan) {
  MemoryRequest request;
  request.shape = plan.shape;
  request.layers = std::max(plan.layers, plan.shape.parallel.pp);
  request.micro_batches = plan.micro_batches;
  request.order = plan.order;
  request.replicated = traits_of(plan.structure->flow).sends_all_groups();
  request.rows_apart = traits_of(plan.structure->flow).holds == Tokens::own;
  request.dense = plan.dense;
  const bool alike = plan.dense.none(plan.layers);
  if (alike || plan.shape.parallel.pp == 1)  // else each stage has kinds of its own: by `order`
    std::tie(request.kept, request.kept_dense) =
        activations_kept(plan, alike ? 1 : activations_of(request), alike ? 1 : activations_of(of_dense(request)));
  request.vocabulary = plan.vocabulary;
  request.tied_embedding = plan.step.tied;
  request.keeps_logits = request.vocabulary > 0;
  return request;
}

std::optional<std::string> misfit(const MemoryEstimate& estimate, double capacity_bytes) {
  if (estimate.total() <= capacity_bytes) return std::nullopt;
  return fmt::format("does not fit: needs {}, a rank has {}", human_bytes(estimate.total()),
                     human_bytes(capacity_bytes));
}

}  // namespace moe
