// The papers' models on their clusters: what each strategy makes of their gradients, by Algorithm 1's case times.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "moe/prices/profile.h"
#include "moe/search/algorithm1.h"
#include "moe/search/degrees.h"
#include "moe/shape/model_file.h"
#include "tests/search/partition_random.h"

namespace moe {
namespace {

using partition_random::Degree;

// Of all degrees those that are the fastest for some size of the AllReduce in them: the later, the less it adds.
std::vector<Degree> useful_degrees(const LayerPricer& pricer) {
  std::vector<Degree> all, useful;
  PhaseCosts costs = phase_costs(pricer, Phase::backward, 0);
  for (int r = 1; r <= kMaxDegree; ++r) {
    double alone = 0;  // cases 2 to 4 bind, or the AlltoAlls
    for (const int which : {1, 2, 3, 4}) alone = std::max(alone, case_seconds(which, costs, r));
    all.push_back({alone, case_seconds(1, costs, r)});
  }
  std::ranges::sort(all, {}, [](const Degree& d) { return std::pair{d.alone_s, d.beside_s}; });
  for (const Degree& d : all)
    if (useful.empty() || d.beside_s < useful.back().beside_s) useful.push_back(d);
  return useful;
}

partition_random::RandomModel of_model(const Model& model, const LayerPricer& pricer) {
  partition_random::RandomModel m;
  m.alpha_s = pricer.gradient_seconds(0);
  const int64_t made = pricer.gradient_bytes();
  m.beta_s = (pricer.gradient_seconds(made) - m.alpha_s) / static_cast<double>(made);
  partition_random::Layer layer;
  layer.degrees = useful_degrees(pricer);
  for (const TaskKind kind : {TaskKind::mp_allgather, TaskKind::attention, TaskKind::mp_reducescatter, TaskKind::gate})
    layer.dense_s += pricer.dense_seconds(kind, Phase::backward);
  m.layers.assign(model.layers, layer);
  return m;
}

TEST(PartitionModels, EachStrategy) {
  const std::pair<const char*, const char*> runs[] = {
      {"gpt2-xl@fsmoe", "testbed-a"},    {"gpt2-xl@fsmoe", "testbed-b"},     {"mixtral-7b@fsmoe", "testbed-a"},
      {"mixtral-7b@fsmoe", "testbed-b"}, {"mixtral-22b@fsmoe", "testbed-a"}, {"mixtral-22b@fsmoe", "testbed-b"}};
  for (const auto& [name, cluster] : runs) {
    const Profile profile = find_profile(cluster);
    const Model model = model_on_cluster(find_model(name), cluster);
    const ParallelShape ranks{.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node};
    const LayerPricer pricer(profile, complete(model.layer, ranks, Rounding::exact));
    partition_random::RandomModel m = of_model(model, pricer);
    PartitionLayer layer = partition_random::problem_layer(m, m.layers[0], pricer.gradient_bytes(), 4);
    layer.key = "all";
    m.problem.layers.assign(m.layers.size(), layer);
    m.problem.allreduce_seconds = [&m](int64_t bytes) { return m.allreduce_seconds(bytes); };
    const Partition none = partition_none(m.problem), first = partition_step1(m.problem);
    const Partition both = partition_step2(m.problem, first), exact = partition_exact(m.problem);
    const auto over = [&](const Partition& p) { return 100 * (p.seconds / exact.seconds - 1); };
    fmt::print(
        "{:<11} on {}: {} layers of {}; exact {:.4f} s, tail {}, in {:.0f} ms; above it: none {:.2f} %, step 1 "
        "{:.2f} %, both steps {:.2f} % in {:.0f} ms\n",
        name, cluster, model.layers, human_bytes(static_cast<double>(layer.made_bytes)), exact.seconds,
        human_bytes(static_cast<double>(exact.tail_bytes)), 1e3 * exact.search_s, over(none), over(first), over(both),
        1e3 * both.search_s);
    const double grain_s = m.beta_s * static_cast<double>(kMiB);
    for (const Partition* p : {&none, &first, &both}) EXPECT_LE(exact.seconds, p->seconds + grain_s) << name;
    EXPECT_LE(both.seconds, first.seconds) << name;
    EXPECT_LT(first.seconds, none.seconds) << name << ": nothing was hidden";
    const double shortest = static_cast<double>(model.layers) * layer.seconds(0, 0);
    EXPECT_GE(exact.seconds, shortest + m.allreduce_seconds(layer.made_bytes))
        << "the gradients of the layer visited last can't be hidden";
  }
}

}  // namespace
}  // namespace moe
