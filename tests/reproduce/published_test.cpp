// Predictions of what others measured, by hand where that can be; and what their clusters price.
#include "reproduce/published.h"

#include <algorithm>
#include <bit>
#include <gtest/gtest.h>

#include "moe/base/statistics.h"
#include "moe/search/layer_search.h"

namespace moe::reproduce {
namespace {

PublishedLayer mixtral(const char* dispatcher) {
  for (const PublishedLayer& layer : published_layers())
    if (layer.model == "mixtral" && layer.dispatcher == dispatcher) return layer;
  throw BadInput("no such layer");
}

// 64 MiB is a measured size of the AlltoAll; three GEMMs of 8192 rows are the experts.
TEST(PublishedLayers, AreTheRowsOfThePreset) {
  const PublishedLayer layer = mixtral("a2a");
  const Profile h100 = find_profile(preset_of(layer));
  const LayerParts forward = predicted_parts(layer, h100, Phase::forward, LayerPrice::preset);
  const double flops = 6.0 * 8192 * 4096 * 14336, bytes = 8192.0 * 4096 * 2;
  EXPECT_NEAR(forward.exchange, 2 * 0.00022129, 1e-12);
  EXPECT_NEAR(forward.order, 2 * bytes * 2 / 3.35e12, 1e-12);
  const auto expert = std::ranges::find(h100.compute, Op::expert, &ComputeRow::op);
  ASSERT_NE(expert, h100.compute.end());
  EXPECT_NEAR(forward.experts, expert->alpha_s + flops * expert->beta_s_per_flop, 1e-12);
  const LayerParts backward = predicted_parts(layer, h100, Phase::backward, LayerPrice::preset);
  EXPECT_NEAR(backward.experts, 2 * forward.experts, 1e-12);
  EXPECT_EQ(backward.exchange, forward.exchange);
  const auto gemm = std::ranges::find(h100.compute, Op::gemm, &ComputeRow::op);
  EXPECT_NEAR(predicted_parts(layer, h100, Phase::forward, LayerPrice::gemms).experts,
              3 * gemm->alpha_s + flops * gemm->beta_s_per_flop, 1e-12);
  EXPECT_EQ(shared_expert_s(layer, h100, Phase::forward), 0);
}

// Every set of k experts in turn.
double counted_ranks(int experts, int ranks, int allowed, int top_k) {
  const int of_a_rank = experts / ranks, some = of_a_rank * allowed;
  double reached = 0, sets = 0;
  for (unsigned set = 0; set < 1u << some; ++set) {
    if (std::popcount(set) != top_k) continue;
    ++sets;
    for (int rank = 0; rank < allowed; ++rank) reached += (set >> (rank * of_a_rank) & ((1u << of_a_rank) - 1)) != 0;
  }
  return reached / sets;
}

TEST(PublishedLayers, RanksThatATokenReachesAreCounted) {
  for (const auto& [experts, ranks, allowed, top_k] :
       {std::array{8, 8, 8, 2}, {32, 8, 4, 8}, {16, 8, 8, 3}, {12, 4, 2, 5}, {16, 8, 8, 16}, {8, 8, 8, 1}})
    EXPECT_NEAR(places_reached(experts, ranks, allowed, top_k), counted_ranks(experts, ranks, allowed, top_k), 1e-9)
        << experts << " " << ranks << " " << allowed << " " << top_k;
}

TEST(PublishedLayers, WithNcclAreWithinFivePercent) {
  for (const Figure& f : published_layer_times().figures)
    if (f.labels[1] == "a2a" && f.convention == "preset") {
      EXPECT_NEAR(*f.ours / *f.paper, 1, 0.05) << f.labels[0] << " " << f.labels[2];
    }
}

std::vector<TraceTask> trace_of(double exchange_s) {
  std::vector<TraceTask> trace;
  for (const char* task : {"attention", "mlp"})
    for (const char* phase : {"forward", "backward"}) trace.push_back({task, phase, "compute", 3});
  for (const char* task : {"dispatch", "combine"})
    for (const char* phase : {"forward", "backward"}) trace.push_back({task, phase, "comm", exchange_s});
  trace.push_back({"attention_dw", "backward", "compute", 1});
  trace.push_back({"mlp_dw", "backward", "compute", 1});
  return trace;
}

TEST(PublishedTrace, IsBoundByItsComputationsOrItsExchanges) {
  EXPECT_NEAR(replayed_trace(trace_of(1e-9), 4, false), 4 * 14, 1e-6);
  // Each pair has two dependent exchanges of either micro-batch: the lane of exchanges is never idle but for the ends.
  EXPECT_NEAR(replayed_trace(trace_of(100), 4, false), 4 * 400, 60);
  EXPECT_GE(replayed_trace(trace_of(100), 4, false), 4 * 400);
}

TEST(PublishedTrace, WeightGradientsOnTheirOwnLaneRunBeside) {
  std::vector<TraceTask> trace = trace_of(1e-9);
  trace.push_back({"mlp_dw", "backward", "wgrad", 2});
  EXPECT_NEAR(replayed_trace(trace, 4, false), 4 * 16, 1e-6);
  EXPECT_NEAR(replayed_trace(trace, 4, true), 4 * 14, 1e-6);
}

TEST(PublishedTrace, IsWithinFivePercent) {
  const Figure whole = trace_times().figures.front();
  EXPECT_NEAR(*whole.ours / *whole.paper, 1, 0.05);
}

TEST(PublishedCurves, OfTheH100AreWithinFivePercentInTheMedian) {
  std::vector<PublishedCollective> h100 = published_collectives();
  std::erase_if(h100, [](const PublishedCollective& s) { return s.gpu != "h100"; });
  const std::vector<CurveErrors> errors = curve_errors(h100);
  ASSERT_EQ(errors.size(), 4u);
  for (const CurveErrors& e : errors) {
    EXPECT_EQ(e.pieces.size(), 3u * 21) << e.op;
    EXPECT_LE(median(e.pieces), 0.05) << e.op;
    EXPECT_LT(median(e.pieces), median(e.line)) << e.op;
  }
}

// Layers of half precision, with groups of any size of the node, under every schedule.
TEST(PublishedClusters, PriceEverySizeOfGroup) {
  for (const char* name : {"a100-8", "b200-8", "h100-8", "h200-8"}) {
    const Profile profile = find_profile(name);
    for (const int mp : {1, 2, 4, 8})
      for (const int esp : {1, 2, 4, 8})
        for (int ep = 1; ep * esp <= 8; ep *= 2) {
          const ParallelShape parallel{.nodes = 1, .ranks_per_node = 8, .mp = mp, .ep = ep, .esp = esp};
          const LayerShape layer{.experts = 8, .ffn = Ffn::mixtral, .dtype = DType::bfloat16};
          const LayerPricer pricer(profile, complete(layer, parallel, Rounding::ragged));
          LayerSearch search;
          for (const char* schedule : {"tutel", "fsmoe", "parm-s1", "lina"}) {
            const LayerResult tuned = search.tune(find_schedule(schedule), pricer, {});
            EXPECT_GT(tuned.total_s(), 0) << name << " " << schedule << " mp " << mp << " ep " << ep << " esp " << esp;
          }
        }
  }
}

TEST(PublishedClusters, OfSeveralNodesSpreadExpertsOverAllRanks) {
  for (const int nodes : {2, 4, 8}) {
    const Profile profile = find_profile(fmt::format("h100-deepep-{}-nodes", nodes));
    const ParallelShape parallel{.nodes = nodes, .ranks_per_node = 8, .mp = 1, .ep = 8 * nodes, .esp = 1};
    const LayerShape layer{.model_dim = 7168,
                           .hidden = 2048,
                           .heads = 56,
                           .experts = 256,
                           .top_k = 8,
                           .node_limit = 4,
                           .ffn = Ffn::mixtral,
                           .dtype = DType::float16};
    const LayerPricer pricer(profile, complete(layer, parallel, Rounding::ragged));
    LayerSearch search;
    EXPECT_GT(search.tune(find_schedule("fsmoe"), pricer, {}).total_s(), 0);
    EXPECT_TRUE(pricer.notes().empty()) << *pricer.notes().begin();
  }
}

}  // namespace
}  // namespace moe::reproduce
