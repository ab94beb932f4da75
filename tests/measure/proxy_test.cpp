// The proxy must run the nominal plan's tasks: same structure, small sizes, every chunk with rows.
#include "moe/measure/layers/proxy.h"

#include <gtest/gtest.h>

#include "moe/schedule/schedule.h"
#include "tests/layer/local_layers.h"
#include "tests/schedule/any_decision.h"

namespace moe::measure {
namespace {

struct Nominal {
  int nodes, ranks_per_node, mp, esp, ep;
  int64_t experts, model_dim, hidden;
};

LayerCase nominal_case(const Nominal& n) {
  LayerShape layer;
  layer.seq = 512;
  layer.model_dim = n.model_dim;
  layer.hidden = n.hidden;
  layer.experts = n.experts;
  ParallelShape parallel;
  parallel.nodes = n.nodes;
  parallel.ranks_per_node = n.ranks_per_node;
  parallel.mp = n.mp;
  parallel.esp = n.esp;
  parallel.ep = n.ep;
  return complete(layer, parallel, Rounding::ragged);
}

const std::vector<Nominal> kNominals{{8, 4, 4, 4, 8, 8, 1024, 4096},  {6, 8, 8, 8, 6, 6, 4096, 14336},
                                     {8, 4, 1, 1, 8, 16, 1024, 2048}, {8, 4, 4, 1, 1, 4, 1024, 4096},
                                     {1, 8, 8, 2, 4, 4, 2048, 4096},  {2, 4, 2, 4, 2, 6, 1024, 3072}};

TEST(Proxy, HasFourRanksAndTheNominalsGroups) {
  for (const Nominal& n : kNominals) {
    const LayerCase nominal = nominal_case(n), proxy = proxy_case(nominal, 3, 5);
    EXPECT_EQ(proxy.parallel.ranks(), 4);
    EXPECT_EQ(proxy.parallel.mp, n.mp > 1 ? 2 : 1);
    EXPECT_EQ(proxy.parallel.ep, n.ep > 1 ? 2 : 1);
    EXPECT_EQ(proxy.parallel.esp, n.esp > 1 ? 2 : 1);
    EXPECT_EQ(proxy.layer.experts / proxy.parallel.ep, n.experts / n.ep) << "experts a rank";
    EXPECT_EQ(proxy.layer.model_dim, 64);
    EXPECT_NEAR(static_cast<double>(proxy.layer.hidden),
                64.0 * static_cast<double>(n.hidden) / static_cast<double>(n.model_dim), 2);
  }
}

TEST(Proxy, InFp8HasWholeBlocks) {
  for (const Nominal& n : kNominals) {
    LayerShape layer = nominal_case(n).layer;
    layer.ffn = Ffn::mixtral_fp8;
    layer.shared_hidden = 1024;
    layer.kv_heads = 0;
    ParallelShape parallel = nominal_case(n).parallel;
    const LayerCase nominal = complete(layer, parallel, Rounding::ragged);
    for (const LayerCase& small : {proxy_case(nominal, 3, 5), small_case(nominal, 3, 5)}) {
      EXPECT_EQ(small.layer.model_dim, kFp8Block);
      EXPECT_EQ(small.layer.hidden % (kFp8Block * small.parallel.esp), 0);
      EXPECT_EQ(small.layer.shared_hidden % (kFp8Block * small.parallel.mp), 0);
      EXPECT_LE(small.layer.hidden, std::max(4, small.parallel.esp) * kFp8Block);
    }
  }
}

TEST(Proxy, KeepsGroupedQueries) {
  LayerCase nominal = nominal_case(kNominals.front());
  EXPECT_EQ(proxy_case(nominal, 1, 1).layer.kv_heads, 4);
  nominal.layer.kv_heads = nominal.layer.heads / 4;
  EXPECT_EQ(proxy_case(nominal, 1, 1).layer.heads, 4);
  EXPECT_EQ(proxy_case(nominal, 1, 1).layer.kv_heads, 2);
  EXPECT_EQ(proxy_case(nominal, 1, 1).layer.head_dim, 0) << "M / heads, as the nominal's";
  nominal.layer.head_dim = 2 * nominal.layer.model_dim / nominal.layer.heads;
  EXPECT_EQ(proxy_case(nominal, 1, 1).layer.head_dim, 32) << "twice 64 / 4, as the nominal's are twice M / heads";
}

TEST(Proxy, EveryChunkHasRows) {
  for (const Nominal& n : kNominals)
    for (const auto& [forward, backward] : {std::pair{1, 1}, {2, 7}, {64, 3}}) {
      const LayerCase proxy = proxy_case(nominal_case(n), forward, backward);
      EXPECT_GE(capacity_rows(proxy), std::max(forward, backward));
    }
}

double share_of_its_gradient(const Plan& plan, size_t slice) {
  const GradientSlice& s = plan.slices[slice];
  return static_cast<double>(s.bytes()) / static_cast<double>(plan.gradients[s.gradient].bytes);
}

TEST(Proxy, PlanKeepsTheStructureAndTheGradientsShares) {
  for (const Nominal& n : kNominals)
    for (const Schedule* row : any_decision::fitting(nominal_case(n))) {
      const Schedule& schedule = *row;
      const LayerCase nominal = nominal_case(n);
      const int degree = schedule.degrees == DegreePolicy::one ? 1 : 4;
      const Decision decision = with_split(schedule, degree, degree, gradient_bytes(nominal) / 4);
      const Plan plan = build_plan(schedule, nominal, decision);
      const Plan small = proxy_plan(plan, proxy_case(nominal, degree, degree));  // checks itself
      EXPECT_EQ(small.structure, plan.structure);
      ASSERT_EQ(small.slices.size(), plan.slices.size());
      for (size_t s = 0; s < plan.slices.size(); ++s)
        EXPECT_NEAR(share_of_its_gradient(small, s), share_of_its_gradient(plan, s), 1e-3) << plan.schedule;
    }
}

// A proxy has fewer EP peers than was planned; what depends on their number must still be right.
TEST(Proxy, EverySchedulesProxyAgreesWithTheReference) {
  for (const int nodes : {3, 6, 8}) {
    LayerShape layer{.batch = 2, .seq = 64, .model_dim = 1024, .hidden = 2048, .heads = 8, .experts = nodes};
    layer.dtype = DType::float64;
    const LayerCase nominal = complete(layer, {.nodes = nodes, .ranks_per_node = 4}, Rounding::ragged);
    for (const Schedule* schedule : any_decision::fitting(nominal)) {
      SCOPED_TRACE(fmt::format("{} on {} nodes", schedule->name, nodes));
      const int degree = schedule->degrees == DegreePolicy::one ? 1 : 3;
      const Plan plan =
          build_plan(*schedule, nominal, with_split(*schedule, degree, degree, gradient_bytes(nominal) / 4));
      const Plan small = proxy_plan(plan, proxy_case(plan.shape, degree, degree));
      LocalLayers layers(small.shape, {.seed = 3}, small.structure->flow);
      layers.run(small);
      EXPECT_NO_THROW(verify_layer(layers.ranks()));
    }
  }
}

}  // namespace
}  // namespace moe::measure
