#include <array>

#include "moe/base/random.h"
#include "tests/simulator/rank_reference.h"

namespace moe::ranks {
namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int below(int n) { return static_cast<int>(random_bits(seed_, 17, index_++) % static_cast<uint64_t>(n)); }
  double uniform() { return random_uniform(seed_, 18, index_++); }
  int divisor(int n) {
    std::vector<int> all;
    for (int d = 1; d <= n; ++d)
      if (n % d == 0) all.push_back(d);
    return all[below(static_cast<int>(all.size()))];
  }

 private:
  uint64_t seed_, index_ = 0;
};

ParallelShape random_shape(Draws& draws) {
  ParallelShape p;
  p.nodes = 1 + draws.below(6);
  p.ranks_per_node = 1 + draws.below(8);
  p.pp = draws.below(3) == 0 ? draws.divisor(p.ranks()) : 1;
  const int stage = p.ranks() / p.pp;
  p.mp = draws.divisor(stage);
  p.dp = stage / p.mp;
  p.ep = draws.divisor(stage);
  p.esp = draws.divisor(stage / p.ep);
  p.edp = stage / p.ep / p.esp;
  return p;
}

constexpr int kLayers = 3;

RankNoise random_noise(Draws& draws, int ranks) {
  RankNoise noise;
  noise.jitter = static_cast<Jitter>(draws.below(3));
  noise.coefficient = 0.3 * draws.uniform();
  noise.seed = static_cast<uint64_t>(draws.below(1000));
  for (int rank = 0; rank < ranks; ++rank)
    if (draws.below(12) == 0) noise.stragglers.push_back({rank, 0.5 + 2 * draws.uniform()});
  const int layers = draws.below(2) == 0 ? 0 : draws.below(3) == 0 ? kLayers : 1;
  for (int i = 0; i < layers * ranks; ++i) noise.load.push_back(2 * draws.uniform());
  if (draws.below(3) == 0) noise.loaded.push_back(TaskKind::allgather);
  return noise;
}

Structure random_structure(Draws& draws, int stages, const std::vector<LaneKind>& lane_kinds) {
  constexpr std::array kGroups{GroupKind::none, GroupKind::ep,  GroupKind::esp,    GroupKind::mp,
                               GroupKind::dp,   GroupKind::edp, GroupKind::ep_esp, GroupKind::pp};
  constexpr std::array kKinds{TaskKind::dispatch, TaskKind::expert, TaskKind::combine, TaskKind::allgather,
                              TaskKind::attention};
  const auto any_of = [&](const auto& all) { return all[draws.below(static_cast<int>(all.size()))]; };
  Structure structure;
  for (int lanes = stages + draws.below(4), lane = 0; lane < lanes; ++lane)
    structure.lanes.push_back({any_of(lane_kinds), lane < stages ? lane : draws.below(stages), false, false, {}});
  const int density = 2 + draws.below(12);
  for (int id = 0, tasks = 1 + draws.below(30); id < tasks; ++id) {
    Task task;
    task.id = id;
    task.layer = id == 0 ? kLayers - 1 : draws.below(kLayers);
    task.lane = draws.below(static_cast<int>(structure.lanes.size()));
    task.kind = any_of(kKinds);
    if (draws.below(3) > 0) task.group = any_of(kGroups);
    for (int p = 0; p < id; ++p)
      if (draws.below(density) == 0) task.after.push_back(p);
    structure.lanes[task.lane].queue.push_back(id);
    structure.tasks.push_back(std::move(task));
  }
  return structure;
}

Draw draw_with(Draws& draws, const std::vector<LaneKind>& lane_kinds) {
  Draw d;
  d.parallel = random_shape(draws);
  const int stages = 1 + draws.below(std::min(3, d.parallel.pp));
  d.structure = random_structure(draws, stages, lane_kinds);
  for (size_t i = 0; i < d.structure.tasks.size(); ++i)
    d.seconds.push_back(draws.below(5) == 0 ? 0 : 0.1 + draws.uniform());
  d.noise = random_noise(draws, stages * d.parallel.ranks() / d.parallel.pp);
  return d;
}

}  // namespace

Draw random_draw(uint64_t seed) {
  Draws draws(seed);
  return draw_with(draws, {LaneKind::compute});
}

Draw random_contended_draw(uint64_t seed) {
  Draws draws(seed);
  Draw d = draw_with(draws, {LaneKind::compute, LaneKind::inter, LaneKind::intra, LaneKind::copy, LaneKind::gradient});
  for (Network& network : d.networks) network = draws.below(2) == 0 ? Network::intra : Network::inter;
  const auto factor = [&] { return draws.below(3) == 0 ? 1 : 1 + draws.uniform(); };
  for (const ContentionPair& pair : contention_pairs()) d.contention.*pair.factor = factor();
  if (draws.below(3) == 0)
    for (const ContentionPair& pair : contention_pairs()) pair.stall_s(d.contention) = 0.2 * draws.uniform();
  return d;
}

}  // namespace moe::ranks
