// Predictions of what others measured, by hand where that can be; and what their clusters price.
#include "commands/reproduce/published.h"

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

// 64 MiB is a measured size of the AlltoAll; 8192 rows are written of 4096 tokens, or the other way round. Experts are
// (8192, 4096) x (4096, 28672), 64 x 224 tiles in 109 waves of 132, and (8192, 14336) x (14336, 4096), 64 x 32 in 16.
TEST(PublishedLayers, AreTheRowsOfThePresetAndItsModel) {
  const PublishedLayer layer = mixtral("a2a");
  const Profile h100 = find_profile(preset_of(layer));
  const GpuModel& gpu = *h100.gpu;
  const LayerParts forward = predicted_parts(layer, h100, Phase::forward);
  const double memory = gpu.memory_bytes_per_s * gpu.memory_share;
  EXPECT_NEAR(forward.exchange, 2 * 0.00022129, 1e-12);
  EXPECT_NEAR(forward.order, 2 * (8192.0 + 4096) * 4096 * 2 / memory, 1e-12);
  const auto wave = [&](double k) {
    return 2.0 * 128 * 128 * k * 132 / (gpu.tensor_flops_per_s * gpu.grouped_share) + gpu.grouped_tile_s;
  };
  EXPECT_NEAR(forward.experts, 109 * wave(4096) + 16 * wave(14336) + 8192.0 * 14336 * 3 * 2 / memory, 1e-9);
  const LayerParts backward = predicted_parts(layer, h100, Phase::backward);
  // Backwards, by their waves: 64 x 112 tiles by k 4096, 64 x 32 by 28672; weights 112 x 32 and 32 x 224 by k 8192.
  EXPECT_NEAR(backward.experts,
              55 * wave(4096) + 16 * wave(28672) + (28 + 55) * wave(8192) + 8192.0 * 14336 * 5 * 2 / memory, 1e-9);
  EXPECT_EQ(backward.exchange, forward.exchange);
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
    ASSERT_EQ(pricer.notes().size(), 1u);
    EXPECT_EQ(pricer.notes().begin()->kind, PriceNote::Kind::modelled);
  }
}

}  // namespace
}  // namespace moe::reproduce
