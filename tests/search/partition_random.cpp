#include "tests/search/partition_random.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <set>

#include "moe/base/random.h"

namespace moe::partition_random {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  double uniform() { return random_uniform(seed_, 7, index_++); }
  double between(double least, double most) { return least + (most - least) * uniform(); }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_bits(seed_, 8, index_++) % static_cast<uint64_t>(n)); }

 private:
  uint64_t seed_, index_ = 0;
};

// The more chunks, the longer alone (their start-up times), or the more of it hides gradients: both occur in tuned
// layers.
Layer random_layer(Draws& draws, double window_s) {
  Layer layer;
  const int64_t degrees = 1 + draws.below(4);
  double alone = 3 * window_s * draws.between(0.2, 1);
  double beside = alone - window_s * draws.between(0, 1.2);
  for (int64_t r = 0; r < degrees; ++r) {
    layer.degrees.push_back({alone, std::max(beside, 0.0)});
    alone += window_s * draws.between(0, 0.2);
    beside -= window_s * draws.between(-0.1, 0.3);
  }
  layer.dense_s = draws.below(4) == 0 ? 0 : window_s * draws.between(0, 1.2);
  return layer;
}

// Bytes of whole elements whose AllReduce takes just `seconds`, if any.
void add_bend(const RandomModel& m, double seconds, int64_t element, std::set<int64_t>& bends) {
  const double bytes = (seconds - m.alpha_s) / m.beta_s;
  if (bytes > 0) bends.insert(static_cast<int64_t>(bytes) / element * element);
}

}  // namespace

double Layer::moe_seconds(double gar_s) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Degree& d : degrees) least = std::min(least, std::max(d.alone_s, gar_s > 0 ? d.beside_s + gar_s : 0));
  return least;
}

double RandomModel::allreduce_seconds(int64_t bytes) const {
  return bytes == 0 ? 0 : alpha_s + beta_s * static_cast<double>(bytes);
}

PartitionLayer problem_layer(const RandomModel& m, const Layer& layer, int64_t made_bytes, int64_t element) {
  PartitionLayer p;
  p.made_bytes = made_bytes;
  std::set<int64_t> moe, dense;
  for (const Degree& with : layer.degrees)
    for (const Degree& without : layer.degrees) add_bend(m, without.alone_s - with.beside_s, element, moe);
  add_bend(m, layer.dense_s, element, dense);
  p.moe_breakpoints.assign(moe.begin(), moe.end());
  p.dense_breakpoints.assign(dense.begin(), dense.end());
  p.breakpoints_known = true;
  const auto& best = *std::ranges::min_element(layer.degrees, {}, &Degree::alone_s);
  p.moe_window_s = best.alone_s - best.beside_s;
  p.dense_window_s = layer.dense_s;
  p.seconds = [&m, layer](int64_t x, int64_t y) {
    return layer.moe_seconds(m.allreduce_seconds(x)) + std::max(layer.dense_s, m.allreduce_seconds(y));
  };
  return p;
}

std::shared_ptr<const RandomModel> random_model(uint64_t seed, const Sizes& sizes) {
  Draws draws(seed);
  const auto m = std::make_shared<RandomModel>();
  m->beta_s = 0.1 / static_cast<double>(sizes.made_bytes);  // a layer's gradients take up to 0.1 s
  m->alpha_s = 0.1 * std::pow(10.0, draws.between(-4, -0.5));
  const double window_s = 0.1 * std::pow(10.0, draws.between(-1, 0.3));
  m->problem.element_bytes = sizes.element_bytes;
  const auto bytes = [&] { return draws.below(sizes.made_bytes / sizes.element_bytes + 1) * sizes.element_bytes; };
  if (draws.below(3) == 0) m->problem.waiting_bytes = bytes();
  for (int i = 0; i < sizes.layers; ++i) {
    const bool again = sizes.equal_layers && i > 0;
    m->layers.push_back(again ? m->layers[0] : random_layer(draws, window_s));
    const int64_t made = sizes.fixed_made_bytes ? sizes.made_bytes : again ? m->problem.layers[0].made_bytes : bytes();
    m->problem.layers.push_back(problem_layer(*m, m->layers.back(), made, sizes.element_bytes));
    if (sizes.equal_layers) m->problem.layers.back().key = "all";
  }
  m->problem.allreduce_seconds = [model = m.get()](int64_t n) { return model->allreduce_seconds(n); };
  m->text =
      fmt::format("seed {}: {}{} layers, {} bytes in all, alpha {:.3g} s, windows of about {:.3g} s", seed,
                  sizes.layers, sizes.equal_layers ? " equal" : "", m->problem.total_bytes(), m->alpha_s, window_s);
  return m;
}

double least_of_all(const PartitionProblem& p, size_t layer, int64_t waiting) {
  if (layer == p.layers.size()) return p.allreduce_seconds(waiting);
  double least = std::numeric_limits<double>::infinity();
  for (int64_t x = 0; x <= waiting; x += p.element_bytes)
    for (int64_t y = 0; x + y <= waiting; y += p.element_bytes)
      least = std::min(least, p.layers[layer].seconds(x, y) +
                                  least_of_all(p, layer + 1, waiting - x - y + p.layers[layer].made_bytes));
  return least;
}

}  // namespace moe::partition_random
