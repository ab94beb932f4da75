#include "tests/properties/any_model.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "tests/properties/cases.h"

namespace moe::any_model {
namespace {

class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(random_bits(seed_, stream_, index_++) % static_cast<uint64_t>(n));
  }
  double uniform() { return random_uniform(seed_, stream_ + 1, index_++); }

 private:
  uint64_t seed_, stream_, index_ = 0;
};

// A row for every op, network and group size that the profile lacks, some of them as measured curves.
void price_all(Draws& draws, Profile& profile, const LayerCase& shape, double volume) {
  for (const Op op : {Op::alltoall, Op::allgather, Op::reducescatter, Op::allreduce, Op::a2a_ep_esp, Op::sendrecv})
    for (const Network network : {Network::intra, Network::inter})
      for (int ranks = 2; ranks <= shape.parallel.ranks(); ++ranks) {
        const bool known = std::ranges::any_of(profile.comm, [&](const CommRow& row) {
          return row.op == op && row.network == network && row.ranks == ranks;
        });
        if (known) continue;
        CommRow& row = profile.comm.emplace_back();
        row.op = op;
        row.network = network;
        row.ranks = ranks;
        row.alpha_s = 1e-6 * std::pow(10.0, 3 * draws.uniform());
        row.beta_s_per_byte = 1e-5 * std::pow(10.0, 3 * draws.uniform()) / volume;
        double size = volume * 0.02, seconds = row.alpha_s;
        for (int i = 0; draws.below(3) == 0 && i < 4; ++i) {
          row.points.push_back({size, seconds});
          size += volume * draws.uniform();
          seconds += 1e-6 * std::pow(10.0, 3 * draws.uniform());
        }
        if (row.points.size() < 2) row.points.clear();
      }
}

Contention contention_of(Draws& draws) {
  Contention c;
  const bool stalls = draws.below(3) == 0;
  for (const ContentionPair& pair : contention_pairs()) {
    c.*pair.factor = 1 + static_cast<double>(draws.below(3)) * draws.uniform();
    if (stalls) pair.stall_s(c) = 1e-4 * draws.uniform();
  }
  return c;
}

// Some layers, not all, of any hidden size that MP divides.
DenseLayers dense_of(uint64_t seed, const ModelShape& model) {
  Draws draws(seed, 301);
  DenseLayers dense{{}, model.shape.parallel.mp * (8 << draws.below(6))};
  for (int layer = 0; layer < model.layers; ++layer) dense.by_layer.push_back(draws.below(2) == 0);
  dense.by_layer[draws.below(model.layers)] = false;
  return dense.first(model.layers);
}

}  // namespace

void draw_virtual_stages(uint64_t seed, ModelShape& model) {
  Draws draws(seed, 501);
  const int stages = model.shape.parallel.pp;
  if (stages == 1 || draws.below(2) == 0) return;
  model.virtual_stages = 2 + static_cast<int>(draws.below(2));
  model.layers = stages * model.virtual_stages * (1 + static_cast<int>(draws.below(2)));
  model.micro_batches = stages * (1 + static_cast<int>(draws.below(3)));
  model.order = PipelineOrder::one_f_one_b;
}

void draw_stage_layers(uint64_t seed, ModelShape& model) {
  Draws draws(seed, 701);
  const int stages = model.shape.parallel.pp, chunks = model.virtual_stages;
  if (stages == 1 || draws.below(3) > 0) return;
  const auto which = draws.below(3);  // first, last, both
  const auto count = [&] { return chunks * (1 + static_cast<int>(draws.below(4))); };
  const int first = which == 1 ? 0 : count(), last = which == 0 ? 0 : count();
  const int others = stages - (which == 2 ? 2 : 1);
  int between = others * count();
  if (chunks == 1 && others > 0) between += static_cast<int>(draws.below(others));
  model.shape.layer.first_stage_layers = first;
  model.shape.layer.last_stage_layers = last;
  model.layers = first + between + last;
}

void draw_windows(uint64_t seed, ModelShape& model) {
  Draws draws(seed, 801);
  LayerShape& layer = model.shape.layer;
  const bool possible = layer.causal && layer.seq > 2 && model.shape.parallel.ring_blocks() == 0;
  if (!possible || draws.below(3) == 0) return;
  layer.window = 1 + draws.below(layer.seq - 1);
  model.whole = whole_layers(draws.below(2) == 0 ? "10" : "0011", model.layers);
}

AnyModel any_model(uint64_t seed) {
  Draws draws(seed, 101);
  const random_layer::RandomLayer layer = conformance::full_layer(seed, draws.below(3) == 0);
  AnyModel any{layer.profile, {}, ""};
  ParallelShape parallel = layer.shape.parallel;
  parallel.pp = 1 + static_cast<int>(draws.below(3));
  parallel.nodes *= parallel.pp;
  parallel.ep_inside = draws.below(2) == 0;
  parallel.dp = parallel.edp = 0;
  if (Draws(seed, 401).below(4) == 0) parallel.recompute = Recompute::full;
  if (layer.shape.parallel.dp % 2 == 0 && Draws(seed, 601).below(3) == 0) parallel.cp = 2;
  if (parallel.cp > 1 && layer.shape.layer.window == 0 && Draws(seed, 602).below(2) == 0)
    parallel.cp_exchange = CpExchange::ring;
  any.model.shape = complete(layer.shape.layer, parallel, layer.shape.rounding);
  any.model.layers = parallel.pp * (1 + static_cast<int>(draws.below(5))) + static_cast<int>(draws.below(parallel.pp));
  any.model.micro_batches = 1 + static_cast<int>(draws.below(6));
  any.model.order = draws.below(2) == 0 ? PipelineOrder::gpipe : PipelineOrder::one_f_one_b;
  draw_virtual_stages(seed, any.model);
  draw_stage_layers(seed, any.model);
  if (seed % 2 == 0) any.model.dense = dense_of(seed, any.model);
  draw_windows(seed, any.model);
  const int64_t ends = draws.below(3) * gradient_bytes(any.model.shape);
  any.model.embedding_gradient_bytes = ends;
  any.model.head_gradient_bytes = draws.below(2) * ends;
  any.profile.nodes = parallel.nodes;
  price_all(draws, any.profile, any.model.shape, mp_bytes(any.model.shape));
  if (draws.below(2) == 0) any.profile.contention = contention_of(draws);
  if (draws.below(2) == 0)
    any.model.step = {true, draws.below(2) == 0,
                      draws.below(2) == 0 ? std::optional(OptimizerKind::adamw) : std::nullopt};
  if (any.model.step.planned && draws.below(2) == 0)
    add_end_tasks(any.model, 100 + static_cast<int64_t>(draws.below(99)));
  any.text = fmt::format(
      "{}; cp {} {}, {} stages {}, {}, {} micro-batches, {}, {}{}{}{}{}", layer.text, parallel.cp,
      name_of(parallel.cp_exchange), parallel.pp, describe_ends(any.model.split()),
      describe_layers(any.model.layers, any.model.dense, any.model.whole, any.model.shape.layer),
      any.model.micro_batches, describe_order(any.model), placement_name(parallel),
      any.profile.contention.none() ? "" : ", contention", parallel.recompute == Recompute::full ? ", run again" : "",
      any.model.step.planned ? ", with its step" : "", any.model.vocabulary > 0 ? ", with its ends" : "");
  return any;
}

ModelDecision any_model_decision(const Schedule& schedule, const ModelShape& model, uint64_t seed) {
  Draws draws(seed, 201);
  const auto degree = [&] { return 1 + static_cast<int>(draws.below(6)); };
  ModelDecision decision;
  if (schedule.degrees != DegreePolicy::one) decision.degree_forward = decision.degree_backward = degree();
  const LayerCases cases(model.shape, model.dense, model.whole);
  const int64_t element = bytes_of(model.shape.layer.dtype);
  const bool sends = groups_of(model.shape.parallel)[GroupKind::dp].size > 1;
  decision.micro_op_bytes = std::max<int64_t>(8, gradient_bytes(model.shape) / (1 + draws.below(5)));
  int64_t waiting = sends && model.shape.parallel.pp == 1 ? model.head_gradient_bytes : 0, waiting_pieces = 0;
  for (size_t place = 0; place < static_cast<size_t>(decided_layers(model)); ++place) {
    const bool dense = decides_dense(model, place);
    if (stages_decide_separately(model))
      for (int stage = 0; stage < model.shape.parallel.pp; ++stage)
        if (first_decision(model, stage) == place) waiting = waiting_pieces = 0;
    const LayerCase& made_by = dense ? cases.dense() : cases.moe();
    const auto pieces = static_cast<int64_t>(gradient_pieces(schedule, made_by, decision.micro_op_bytes).size());
    BackwardDecision& b = decision.backwards.emplace_back();
    if (!dense) b.degree = schedule.degrees == DegreePolicy::apart ? degree() : decision.degree_backward;
    const auto take = [&](int64_t& bytes) {
      if (!sends || !splits_gradients(schedule)) return;
      bytes = draws.below(waiting / element + 1) * element;
      waiting -= bytes;
    };
    if (schedule.gradients == GradientPolicy::adaptive && !dense) take(b.gar_in_moe_bytes);
    take(b.gar_beside_dense_bytes);
    if (sends && schedule.gradients == GradientPolicy::micro_ops)
      for (int64_t i = draws.below(waiting_pieces + 1); i > 0; --i) b.gaps.push_back(static_cast<int>(draws.below(12)));
    std::ranges::sort(b.gaps);
    waiting += gradient_bytes(made_by);
    waiting_pieces += pieces - static_cast<int64_t>(b.gaps.size());
  }
  return decision;
}

}  // namespace moe::any_model
