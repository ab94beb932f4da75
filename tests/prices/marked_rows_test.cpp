// Prices by rows that their fit marks as weak, and where a measured row is unusable.
#include <algorithm>
#include <gtest/gtest.h>

#include "moe/prices/pricer.h"
#include "moe/simulator/bounds.h"
#include "tests/prices/profile_parts.h"

namespace moe {
namespace {

/// What the pricer notes, or why it has no price, once everything is looked up.
struct Priced {
  PriceNotes notes;
  std::string error;
};
Priced priced(const Profile& profile, DType dtype = DType::float32, PricingOptions options = {}, Ffn ffn = Ffn::gpt) {
  LayerShape layer{.batch = 2, .seq = 256, .model_dim = 1024, .hidden = 2048, .heads = 8, .experts = 8};
  layer.dtype = dtype;
  layer.ffn = ffn;
  const LayerPricer pricer(
      profile, complete(layer, {.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node}, Rounding::ragged),
      options);
  try {
    degree_free_bound(find_schedule("fsmoe"), pricer);  // needs every row
  } catch (const Unpriced& error) {
    return {{}, error.what()};
  }
  return {pricer.notes(), {}};
}

TEST(MarkedRows, WhatAWeakRowPricesIsLabelled) {
  Profile profile = find_profile("testbed-b");
  EXPECT_EQ(weak_rows(priced(profile).notes), "");
  row_of(profile, Op::alltoall).verdict.weak = "r^2 0.50";
  for (ModuleRow& row : profile.modules) row.verdict.weak = "held-out error 30 %";
  EXPECT_EQ(weak_rows(priced(profile).notes),
            "alltoall inter 8: r^2 0.50; attention backward 256: held-out error 30 %; attention forward 256: held-out "
            "error 30 %");
  for (CommRow& row : profile.comm) row.verdict.weak = name_of(row.op);
  for (ComputeRow& row : profile.compute) row.verdict.weak = name_of(row.op);
  const auto notes = texts_of(priced(profile).notes);
  for (const char* note : {"weak row: allgather intra 4: allgather", "weak row: allreduce inter 8: allreduce",
                           "weak row: gemm float32: gemm", "weak row: alltoall inter 8: alltoall",
                           "weak row: reducescatter intra 4: reducescatter"})
    EXPECT_TRUE(notes.contains(note)) << note;
}

TEST(MarkedRows, AnUnusableRowSaysWhyThereIsNoPrice) {
  Profile profile = find_profile("testbed-b");
  std::erase_if(profile.comm, [](const CommRow& row) { return row.op == Op::allgather; });
  profile.unusable.push_back({"allgather intra 4", "found times that shrink"});
  EXPECT_EQ(priced(profile).error,
            "profile testbed-b: no allgather row for 4 ranks on the intra network: measured, but found times that "
            "shrink");
  profile = find_profile("testbed-b");
  profile.compute.clear();
  profile.unusable.push_back({"gemm float32", "found 1 size"});
  EXPECT_EQ(priced(profile).error, "profile testbed-b: no gemm row for float32: measured, but found 1 size");
  profile.unusable.clear();
  EXPECT_EQ(priced(profile).error, "profile testbed-b: no gemm row for float32");
  EXPECT_EQ(priced(profile, DType::float32, {.lends = "take another's"}).error,
            "profile testbed-b: no gemm row for float32; take another's");
  profile = find_profile("testbed-b");
  profile.modules.clear();
  profile.unusable.push_back({"attention forward 256", "found 1 size"});
  EXPECT_TRUE(
      texts_of(priced(profile).notes).contains("priced by gemm: attention forward 256: measured, but found 1 size"));
}

TEST(MarkedRows, AnotherTypesGemmsAreScaledByItsWidthWhereThatIsAskedFor) {
  Profile profile = find_profile("testbed-b");
  EXPECT_EQ(priced(profile, DType::bfloat16, {false, "--near"}).error,
            "profile testbed-b: no gemm row for bfloat16; it has float32 (--near scales it)");
  EXPECT_EQ(priced(profile, DType::bfloat16, {true, "--near"}).error,
            "profile testbed-b: no gemm row for bfloat16; it has float32 (--near scales it)");
  EXPECT_EQ(priced(profile, DType::bfloat16).error, "profile testbed-b: no gemm row for bfloat16; it has float32");
  const std::string note = "scaled: GEMMs, no modules, of bfloat16 from float32";
  EXPECT_TRUE(texts_of(priced(profile, DType::bfloat16, {false, "", true}).notes).contains(note));
  EXPECT_FALSE(texts_of(priced(profile, DType::float32, {false, "", true}).notes).contains(note));
  const ComputeRow gemm = *std::ranges::find(profile.compute, Op::gemm, &ComputeRow::op);
  for (const auto& [dtype, ratio] : {std::pair{DType::bfloat16, 0.5}, {DType::float32, 1.0}, {DType::float64, 2.0}}) {
    LayerShape layer{.experts = 8};
    layer.dtype = dtype;
    const LayerPricer pricer(profile, complete(layer, {.nodes = 8, .ranks_per_node = 4}, Rounding::ragged),
                             {.scaled = true});
    const Work work{.op = Op::gemm, .flops = 1e12, .gemms = 3};
    EXPECT_DOUBLE_EQ(pricer.gemm_seconds(work),
                     3 * gemm.alpha_s + 1e12 * ratio * gemm.beta_s_per_flop + profile.task_overhead_s);
  }
}

TEST(MarkedRows, WhatARowOfAnotherOriginPricesIsLabelled) {
  Profile profile = find_profile("testbed-b");
  row_of(profile, Op::alltoall).verdict.origin = "from elsewhere";
  profile.compute.front().verdict.origin = "from elsewhere";
  const auto notes = texts_of(priced(profile).notes);
  for (const char* note : {"from elsewhere: alltoall inter 8", "from elsewhere: gemm float32"})
    EXPECT_TRUE(notes.contains(note)) << note;
  Profile h100 = find_profile("h100-8");
  h100.gpu->origin = "from elsewhere";
  EXPECT_TRUE(texts_of(priced(h100, DType::bfloat16).notes)
                  .contains("modelled: computations by shape, as H100 SXM (80 GB) computes them ([gpu], from "
                            "elsewhere)"));
}

// What an AlltoAll's row says of the nodes that tokens reached, beside what this layer's reach.
TEST(MarkedRows, AnAlltoAllSaysForHowManyNodesItIs) {
  Profile profile = find_profile("testbed-b");
  const auto said = [&](int64_t node_limit, int measured, int64_t top_k = 2) {
    row_of(profile, Op::alltoall).node_limit = measured;
    LayerShape layer{.batch = 2, .seq = 256, .model_dim = 1024, .hidden = 2048, .heads = 8, .experts = 8};
    layer.node_limit = node_limit;
    layer.top_k = top_k;
    const LayerCase shape = complete(layer, {.nodes = 8, .ranks_per_node = 4}, Rounding::ragged);
    const LayerPricer pricer(profile, shape);
    const Bound bound = degree_free_bound(find_schedule("fsmoe"), pricer);
    std::string notes;
    for (const std::string& note : texts_of(pricer.notes())) notes += note;
    return std::pair{notes, bound.total_s()};
  };
  const auto [none, any_s] = said(0, 0);
  EXPECT_EQ(none, "");
  EXPECT_EQ(said(2, 0), std::pair(std::string("node limit: alltoall inter 8 may not send rows once per node, "
                                              "so its price does not include the limit of 2 nodes"),
                                  any_s));
  EXPECT_EQ(said(8, 0), std::pair(std::string(), any_s)) << "as many as there are";
  EXPECT_EQ(said(4, 4).first, "");
  EXPECT_EQ(said(2, 4).first, "");
  EXPECT_EQ(said(0, 1).first,
            "node limit: alltoall inter 8 was measured with tokens that reach at most 1 nodes, so the price is too "
            "low: these "
            "reach 2.0 of 8");
  EXPECT_NE(said(6, 4, 6).first, "");
  EXPECT_NE(said(0, 4, 5).first, "");
  EXPECT_EQ(said(0, 4).first, "") << "two experts are on two nodes at most";
  EXPECT_EQ(said(0, 8, 8).first, "");
}

TEST(MarkedRows, RouterGroupsOtherThanNodesAreSaid) {
  Profile profile = find_profile("testbed-b");
  row_of(profile, Op::alltoall).sent_share = 0.5;
  const auto said = [&](int64_t groups) {
    LayerShape layer{.batch = 2, .seq = 256, .model_dim = 1024, .hidden = 2048, .heads = 8, .experts = 32};
    layer.node_limit = 2;
    layer.router_groups = groups;
    const LayerPricer pricer(profile, complete(layer, {.nodes = 8, .ranks_per_node = 4}, Rounding::ragged));
    degree_free_bound(find_schedule("fsmoe"), pricer);
    return texts_of(pricer.notes());
  };
  EXPECT_EQ(said(0), std::set<std::string>());
  EXPECT_EQ(said(8), std::set<std::string>());
  EXPECT_EQ(said(4), std::set<std::string>{"node limit: alltoall inter 8 is priced as if any experts on 4 of 8 nodes "
                                           "were chosen, not those of 2 of 4 groups"});
}

// Tokens of k of E experts on 8 nodes reach 8 (1 - C(E - E / 8, k) / C(E, k)) of them.
TEST(MarkedRows, AnAlltoAllThatSendsARowOnceANodeIsPricedByNodesReached) {
  Profile profile = find_profile("testbed-b");
  CommRow& row = row_of(profile, Op::alltoall);
  const double alpha = row.alpha_s, beta = row.beta_s_per_byte;
  for (const auto& [experts, top_k, reached] :
       {std::tuple{int64_t{8}, int64_t{2}, 2.0}, {16, 4, 8 * (1 - 1001 / 1820.0)}, {16, 1, 1.0}})
    for (const double share : {0.0, 0.5, 1.0}) {
      row.sent_share = share;
      LayerShape layer{.batch = 2, .seq = 256, .model_dim = 1024, .hidden = 2048, .heads = 8, .experts = experts};
      layer.top_k = top_k;
      const LayerPricer pricer(profile, complete(layer, {.nodes = 8, .ranks_per_node = 4}, Rounding::ragged));
      const double bytes = 4.0 * 1024 * static_cast<double>(experts) * 40;  // of 40 rows an expert
      const double sent = share > 0 ? reached / static_cast<double>(top_k) / share : 1;
      EXPECT_NEAR(pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, 40), alpha + beta * bytes * sent, 1e-12)
          << experts << ' ' << top_k << ' ' << share;
      EXPECT_TRUE(pricer.notes().empty());
    }
}

TEST(MarkedRows, ExpertsInFp8AreGemmsWhereNobodyMeasuredThem) {
  Profile profile = find_profile("testbed-b");
  const std::string note = "derived: experts in FP8 = GEMMs of float32";
  const auto notes = [&](Ffn ffn) { return texts_of(priced(profile, DType::float32, {}, ffn).notes); };
  EXPECT_FALSE(notes(Ffn::mixtral).contains(note));
  EXPECT_TRUE(notes(Ffn::mixtral_fp8).contains(note));
  ComputeRow expert{.op = Op::expert};
  expert.ffn = Ffn::mixtral_fp8;
  profile.compute.push_back(expert);
  EXPECT_FALSE(notes(Ffn::mixtral_fp8).contains(note));
}

// Testbed A has a ReduceScatter and an AllGather inside a node, over 8 ranks, and no AllReduce there.
TEST(NearestRows, AnIntraAllReduceIsDerivedFromTheNearestPair) {
  Profile profile = find_profile("testbed-a");
  LayerShape layer;
  layer.experts = 4;
  const LayerCase four =
      complete(layer, {.nodes = 1, .ranks_per_node = 4, .mp = 1, .ep = 4, .esp = 1}, Rounding::ragged);
  EXPECT_THROW(LayerPricer(profile, four).gradient_seconds(1000), Unpriced);
  const LayerPricer pricer(profile, four, {.nearest = true});
  EXPECT_NEAR(pricer.gradient_seconds(1000),
              3.3789345076e-4 + 3.95388299e-4 + 1000 * (5.86940846075e-11 + 5.542777534e-11), 1e-12);
  EXPECT_TRUE(
      texts_of(pricer.notes()).contains("derived: intra allreduce = reducescatter + allgather of the same volume"));
  for (const char* half : {"reducescatter", "allgather"})
    EXPECT_TRUE(
        texts_of(pricer.notes()).contains(fmt::format("nearest: {} over 4 ranks priced by the row of 8 ranks", half)));
  CommRow measured{.op = Op::allreduce, .network = Network::intra, .ranks = 2};
  measured.alpha_s = 1;
  profile.comm.push_back(measured);
  const LayerPricer borrowed(profile, four, {.nearest = true});
  EXPECT_GE(borrowed.gradient_seconds(1000), 1) << "an AllReduce's row comes first, be it of another size";
}

}  // namespace
}  // namespace moe
