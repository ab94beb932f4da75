#include "tests/stack/drawn_plan.h"

#include <array>
#include <cmath>
#include <numeric>

#include "moe/base/random.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"
#include "moe/search/wave.h"
#include "tests/properties/any_model.h"

namespace moe {
namespace {

// Multiplies the nodes, so that every stage has the ranks that the layer had.
LayerCase with_stages(const LayerCase& shape, int stages) {
  LayerCase staged = shape;
  staged.parallel.pp = stages;
  staged.parallel.nodes *= stages;
  return staged;
}

// Dense layers between those with experts, in three of four models of several layers.
DenseLayers dense_of(const ModelShape& model, uint64_t seed) {
  auto draw = [&, i = uint64_t{0}](uint64_t below) mutable { return random_bits(seed, 78, i++) % below; };
  const int64_t columns = 8 + static_cast<int64_t>(draw(24)), block = block_of(model.shape.layer.ffn);
  DenseLayers dense{{}, model.shape.parallel.mp * (block > 1 ? block : columns)};
  if (model.layers == 1 || draw(4) == 0) return {};
  for (int layer = 0; layer < model.layers; ++layer) dense.by_layer.push_back(draw(2) == 0);
  dense.by_layer[draw(static_cast<uint64_t>(model.layers))] = false;
  return dense.first(model.layers);
}

// Cuts the samples of three of four models that can be cut, into 2 to 4 parts.
void cut_samples(ModelShape& model, uint64_t seed) {
  if (random_bits(seed, 83, 0) % 4 == 0 || model.virtual_stages > 1) return;
  int parts = 2 + static_cast<int>(random_bits(seed, 83, 1) % 3);
  if (model.shape.layer.seq % parts != 0) parts = 2;
  LayerCase cut = model.shape;
  cut.layer.parts = parts;
  try {
    cut = complete(cut.layer, cut.parallel, cut.rounding);
  } catch (const BadInput&) {
    return;
  }
  model.shape = cut;
  model.micro_batches = parts * (1 + static_cast<int>(random_bits(seed, 83, 2) % 2));
}

// Gives two stages different numbers of layers, by the first one's, the last one's or both.
void draw_ends(ModelShape& model, uint64_t seed) {
  const int chunks = model.virtual_stages, which = static_cast<int>(random_bits(seed, 84, 1) % 3);
  const bool long_first = random_bits(seed, 84, 2) % 2 == 0;
  const int first = long_first ? 3 * chunks : chunks, last = 4 * chunks - first;
  model.layers = first + last;
  if (which != 1) model.shape.layer.first_stage_layers = first;
  if (which != 0) model.shape.layer.last_stage_layers = last;
}

ModelShape drawn_model(const layer_space::Point& point, uint64_t seed, int stages, int64_t vocabulary) {
  auto draw = [&, i = uint64_t{1}](uint64_t below) mutable { return random_bits(seed, 77, i++) % below; };
  ModelShape model;
  model.step = {true, draw(2) == 0 && vocabulary > 0, {}};
  model.shape = with_stages(layer_space::shape_of(point), stages);
  if (random_bits(seed, 79, 0) % 3 == 0) model.shape.parallel.recompute = Recompute::full;
  // Without norms numbers grow from layer to layer, and errors with them.
  const int most = model.shape.layer.norm == Norm::none ? 2 : 4;
  model.layers = stages + static_cast<int>(draw(static_cast<uint64_t>(most + 1 - stages)));
  model.micro_batches = 1 + static_cast<int>(draw(4));
  model.order = draw(2) == 0 ? PipelineOrder::gpipe : PipelineOrder::one_f_one_b;
  if (const uint64_t chunks = random_bits(seed, 80, 0); stages > 1 && most == 4 && chunks % 2 == 0) {
    model.virtual_stages = 2;
    model.layers = chunks % 16 == 0 ? 8 : 4;
    model.micro_batches = chunks % 4 == 0 ? 2 : 4;
    model.order = PipelineOrder::one_f_one_b;
  }
  cut_samples(model, seed);
  if (stages > 1 && most == 4 && random_bits(seed, 84, 0) % 3 > 0) draw_ends(model, seed);
  model.dense = dense_of(model, seed);
  any_model::draw_windows(seed, model);
  model.step.tied = vocabulary > 0 && draw(2) == 0;
  add_end_tasks(model, vocabulary);
  return model;
}

// Prices under which any kind of task may be the longest.
Profile drawn_profile(const LayerCase& shape, uint64_t seed) {
  Profile profile = nominal_profile(shape);
  auto factor = [&, i = uint64_t{0}]() mutable { return std::pow(10.0, 2 * random_uniform(seed, 81, i++) - 1); };
  for (CommRow& row : profile.comm) {
    row.alpha_s *= factor();
    row.beta_s_per_byte *= factor();
  }
  for (ComputeRow& row : profile.compute) {
    row.alpha_s *= factor();
    row.beta_s_per_flop *= factor();
  }
  return profile;
}

}  // namespace

std::vector<layer_space::Point> drawn_layers(size_t count, uint64_t seed) {
  const auto possible = [](const layer_space::Point& point) {
    try {
      const LayerCase c = layer_space::shape_of(point);
      return c.layer.dtype == DType::float64 && c.parallel.ranks() <= 4;
    } catch (const std::exception&) {
      return false;
    }
  };
  return layer_space::covering(count, seed, possible);
}

Plan drawn_plan(const layer_space::Point& point, uint64_t seed, int64_t vocabulary) {
  const int stages = 1 + static_cast<int>(random_bits(seed, 77, 0) % 2);
  ModelShape model = drawn_model(point, seed, stages, vocabulary);
  const Schedule& schedule = find_schedule(layer_space::axes()[4].values[point[4]]);
  if (random_bits(seed, 84, 0) % 3 == 0 && !in_fp8(model.shape.layer.ffn))
    model.shape.parallel.offload = Offload::experts;
  check_shape(schedule, model.shape);
  const ModelDecision decision = any_model::any_model_decision(schedule, model, seed);
  if (model.shape.rounding == Rounding::lcm) {
    model.shape.row_multiple = std::lcm(decision.degree_forward, decision.degree_backward);
    for (const BackwardDecision& b : decision.backwards)
      model.shape.row_multiple = std::lcm(model.shape.row_multiple, b.degree);
  }
  return build_model_plan(schedule, model, decision);
}

DrawnWave drawn_wave(const layer_space::Point& point, uint64_t seed, int64_t vocabulary) {
  auto draw = [&, i = uint64_t{0}](int below) mutable {
    return static_cast<int>(random_bits(seed, 82, i++) % static_cast<uint64_t>(below));
  };
  ModelShape model = drawn_model(point, seed, 1 + static_cast<int>(random_bits(seed, 77, 0) % 2), vocabulary);
  const Profile profile = drawn_profile(model.shape, seed);
  const LayerPricer pricer(profile, model.shape);
  const int most = std::min(kMaxWaveDegree, largest_degree(pricer)), more = draw(model.layers + 1);
  const WaveDegrees degrees{1 + draw(most), 1 + draw(most), 1 + draw(most), 1 + draw(most)};
  constexpr std::array kOrders{IterationOrder::any, IterationOrder::pairs, IterationOrder::two_forwards,
                               IterationOrder::late_weights, IterationOrder::in_turn};
  const int drawn_order = std::max(0, draw(8) - 3);  // every second free
  const bool launches_alternate = model.shape.parallel.pp == 1 && model.shape.layer.parts == 1;
  const IterationOrder order = kOrders[launches_alternate ? drawn_order : size_t{0}];
  DrawnWave drawn;
  const int keep = std::max(min_kept_layers(model, IterationOrder::any) + more, min_kept_layers(model, order));
  drawn.wave = wave_plan(pricer, model, keep, degrees, {draw(4), order});
  check_plan(drawn.wave);
  model.shape = drawn.wave.shape;
  drawn.plain = build_model_plan(find_schedule("fsmoe-dw"), model, wave_decision(model, degrees));
  return drawn;
}

}  // namespace moe
