#include "moe/prices/pricer.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/random.h"
#include "moe/prices/modules.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/bounds.h"
#include "tests/prices/profile_parts.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using random_layer::random_layer;
using random_layer::RandomLayer;

std::string unpriced(const Profile& profile, const LayerCase& shape, PricingOptions options = {}) {
  try {
    const LayerPricer pricer(profile, shape, options);
    degree_free_bound(find_schedule("fsmoe"), pricer);  // needs every row
  } catch (const Unpriced& error) {
    return error.what();
  }
  return "priced";
}

bool has_note(const LayerPricer& pricer, std::string_view begin) {
  degree_free_bound(find_schedule("fsmoe"), pricer);  // looks everything up
  return std::ranges::any_of(pricer.notes(), [&](const PriceNote& note) { return note.text().starts_with(begin); });
}

bool has_row(const Profile& profile, Op op, const Group& group) {
  return std::ranges::any_of(profile.comm, [&](const CommRow& row) {
    return row.op == op && row.network == group.network && row.ranks == group.size;
  });
}

// alpha + beta of the work that the plan states: bytes over the group's row, FLOPs and GEMMs over gemm's.
double expected_seconds(const Profile& profile, const Plan& plan, const Work& work) {
  double seconds = profile.task_overhead_s;
  const Group& group = plan.groups[work.group];
  const bool fused = work.group == GroupKind::ep_esp;  // as the EP AlltoAll, where it has one
  const Group& priced = fused && plan.groups[1].size > 1 ? plan.groups[1] : group;
  if (work.op == Op::allreduce && group.network == Network::intra && !has_row(profile, Op::allreduce, group)) {
    for (const CommRow& row : profile.comm)
      if ((row.op == Op::reducescatter || row.op == Op::allgather) && row.network == group.network &&
          row.ranks == group.size)
        seconds += row.alpha_s + work.bytes * row.beta_s_per_byte;
    return seconds;
  }
  for (const CommRow& row : profile.comm)
    if (row.op == work.op && row.network == priced.network && row.ranks == priced.size)
      return seconds + row.alpha_s + work.bytes * row.beta_s_per_byte;
  if (work.op == Op::none || work.op == Op::copy) return seconds;
  EXPECT_TRUE(work.op == Op::gemm || work.op == Op::expert || work.op == Op::attention) << name_of(work.op);
  return seconds + work.gemms * profile.compute[0].alpha_s + work.flops * profile.compute[0].beta_s_per_flop;
}

TEST(Pricer, PricesTheWorkThatPlansState) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const Schedule& schedule : schedules()) {
      if (!any_decision::fits(schedule, layer.shape)) continue;
      const Plan plan = build_plan(schedule, layer.shape, any_decision::any_decision(schedule, layer.shape, seed));
      const std::vector<double> seconds = price(pricer, plan);
      ASSERT_EQ(seconds.size(), plan.works.size());
      for (const Task& task : plan.tasks()) {
        double expected = expected_seconds(layer.profile, plan, plan.works[task.id]);
        if (task.kind == TaskKind::exchange)  // a phase costs its share of one AlltoAll, alpha included
          expected = layer.profile.task_overhead_s +
                     (expected_seconds(layer.profile, plan,
                                       whole_work(task.kind, task.phase, plan.shape, plan.structure->flow)) -
                      layer.profile.task_overhead_s) /
                         task.chunks;
        ASSERT_NEAR(seconds[task.id], expected, 1e-12 * expected)
            << task.name() << ", " << schedule.name << ", " << layer.text;
        worst = std::max(worst, expected);
      }
    }
  }
  EXPECT_GT(worst, 0);
}

TEST(Pricer, BackwardExpertsDoubleStartsAndWork) {
  const Profile profile = small_profile();
  const LayerPricer pricer(profile, small_case());
  const auto expert = [&](Phase phase) { return pricer.chunk_seconds(TaskKind::expert, phase, 10); };
  const double flops = 2.0 * 2 * 10 * 4 * 32 * 64;  // MACs to FLOPs, two GEMMs, rows E M H
  EXPECT_NEAR(expert(Phase::forward), 2 * 5e-6 + flops * 1e-12, 1e-18);
  EXPECT_NEAR(expert(Phase::backward), 2 * expert(Phase::forward), 1e-18);
}

TEST(Pricer, AnExpertRowOfItsKindReplacesGemm) {
  Profile profile = small_profile();
  ComputeRow expert;
  expert.op = Op::expert;
  expert.ffn = Ffn::mixtral;
  expert.alpha_s = 7e-3;
  profile.compute.push_back(expert);
  const auto seconds = [&] {
    return LayerPricer(profile, small_case()).chunk_seconds(TaskKind::expert, Phase::forward, 0);
  };
  EXPECT_DOUBLE_EQ(seconds(), 2 * 5e-6) << "a row of another kind";
  profile.compute.back().ffn = Ffn::gpt;
  EXPECT_DOUBLE_EQ(seconds(), 7e-3);
  profile.compute.back().dtype = DType::bfloat16;
  EXPECT_DOUBLE_EQ(seconds(), 2 * 5e-6) << "a row of another element type";
}

// Attention as a ring's tasks: without recomputed scores, together as long as whole; a send without a row of its own is
// a step of an AllGather, by lines and by curves.
TEST(Pricer, ARingsTasksAreSharesOfAttentionAndOfAnAllGather) {
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .kv_heads = 2, .experts = 4};
  const ParallelShape whole{.nodes = 4, .ranks_per_node = 1, .mp = 1, .ep = 4, .esp = 1, .cp = 4};
  ParallelShape ring = whole;
  ring.cp_exchange = CpExchange::ring;
  Profile profile = small_profile();
  profile.modules = {
      {.name = "attention", .phase = Phase::forward, .seq = {}, .alpha_s = 3e-3, .beta_s_per_flop = 1e-9},
      {.name = "attention:selective", .phase = Phase::backward, .seq = {}, .alpha_s = 4e-3, .beta_s_per_flop = 2e-9}};
  profile.comm.push_back(
      {.op = Op::allgather, .network = Network::inter, .ranks = 4, .alpha_s = 6e-5, .beta_s_per_byte = 3e-9});
  const LayerCase shape = complete(layer, ring, Rounding::ragged);
  const LayerPricer pricer(profile, shape);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto seconds = [&](TaskKind kind) { return pricer.dense_seconds(kind, phase) - profile.task_overhead_s; };
    const double sum = seconds(TaskKind::keys_values) + seconds(TaskKind::attention) + 4 * seconds(TaskKind::heads);
    const double alphas = phase == Phase::forward ? 3e-3 : 4e-3, beta = phase == Phase::forward ? 1e-9 : 2 * 2e-9;
    // 4 GEMMs of weights and 2 of scores, which every block has
    EXPECT_NEAR(sum, alphas * (4 + 4 * 2) / 6 + beta * attention_flops(shape), 1e-12);
  }
  const double block = 4.0 * 2 * 16 * 2 * (2 * 8);  // float32 keys and values of 2 samples' 16 tokens, 2 heads 8 wide
  const auto send_s = [&] { return LayerPricer(profile, shape).dense_seconds(TaskKind::cp_send, Phase::forward); };
  EXPECT_NEAR(send_s(), (6e-5 + 3e-9 * 4 * block) / 3 + profile.task_overhead_s, 1e-15);
  EXPECT_EQ(send_s(), LayerPricer(profile, shape).dense_seconds(TaskKind::cp_gradient_send, Phase::backward));
  profile.comm.back().points = {{block, 1e-4}, {2 * block, 3e-4}, {8 * block, 3e-3}};
  EXPECT_NEAR(send_s(), (3e-4 + (3e-3 - 3e-4) / 3) / 3 + profile.task_overhead_s, 1e-15) << "4 blocks on the curve";
  profile.comm.push_back(
      {.op = Op::sendrecv, .network = Network::inter, .ranks = 2, .alpha_s = 1e-5, .beta_s_per_byte = 5e-9});
  EXPECT_NEAR(send_s(), 1e-5 + 5e-9 * block + profile.task_overhead_s, 1e-15);
}

TEST(Pricer, AttentionRowsOfTheSequenceLengthReplaceGemm) {
  Profile profile = small_profile();
  const auto seconds = [&](Phase phase) {
    return LayerPricer(profile, small_case()).dense_seconds(TaskKind::attention, phase);
  };
  const double flops = attention_flops(small_case());
  EXPECT_NEAR(seconds(Phase::forward), 6 * 5e-6 + flops * 1e-12, 1e-15);
  EXPECT_NEAR(seconds(Phase::backward), 12 * 5e-6 + 2 * flops * 1e-12, 1e-15);
  ModuleRow row{.name = "attention", .phase = Phase::forward, .seq = 64, .alpha_s = 1e-3, .beta_s_per_flop = 1e-10};
  profile.modules.push_back(row);
  EXPECT_NEAR(seconds(Phase::forward), 1e-3 + flops * 1e-10, 1e-15);
  EXPECT_NEAR(seconds(Phase::backward), 12 * 5e-6 + 2 * flops * 1e-12, 1e-15) << "no row for the backward";
  profile.modules[0].phase = Phase::backward;
  EXPECT_NEAR(seconds(Phase::backward), 1e-3 + 2 * flops * 1e-10, 1e-15) << "beta is of the backward's own FLOPs";
  profile.modules[0].seq = 128;
  EXPECT_NEAR(seconds(Phase::backward), 12 * 5e-6 + 2 * flops * 1e-12, 1e-15);
  EXPECT_TRUE(has_note(LayerPricer(profile, small_case()), "priced by gemm: attention: no row for seq 64"));
}

TEST(Pricer, ModuleRowsOfTheLayersPartsReplaceGemm) {
  Profile profile = small_profile();
  const LayerCase shape = small_case();
  const auto seconds = [&](TaskKind kind, Phase phase) {
    const LayerPricer pricer(profile, shape);
    return is_chunked(kind) ? pricer.chunk_seconds(kind, phase, 1) : pricer.dense_seconds(kind, phase);
  };
  const auto size = [&](TaskKind kind, Phase phase) { return module_size({kind, ""}, phase, shape); };
  EXPECT_EQ(seconds(TaskKind::order, Phase::forward), 0) << "no row";
  const double home = moe_volumes(shape, static_cast<double>(capacity_rows(shape))).alltoall_bytes;
  EXPECT_EQ(size(TaskKind::i_order, Phase::backward), home);
  EXPECT_EQ(module_size({TaskKind::order, ""}, Phase::forward, shape, Flow::tensor), shape.parallel.mp * home);
  EXPECT_EQ(module_size({TaskKind::order, ""}, Phase::forward, shape, Flow::dropped), home);
  EXPECT_EQ(module_size({TaskKind::i_order, ""}, Phase::forward, shape, Flow::dropped), shape.parallel.mp * home);

  const auto add = [&](std::string name, double alpha, double per_flop, double per_byte) {
    profile.modules.push_back({std::move(name), Phase::forward, {}, alpha, per_flop, per_byte});
  };
  add("gate:other", 1, 1, 0), add("order:other", 1, 0, 1), add("expert:mixtral", 1, 1, 0);
  EXPECT_LT(seconds(TaskKind::gate, Phase::forward), 1) << "a row of another gate";
  add("gate:gshard", 2e-3, 1e-10, 0), add("order:tutel", 3e-3, 0, 1e-9), add("expert:gpt", 4e-3, 1e-11, 0);
  EXPECT_NEAR(seconds(TaskKind::gate, Phase::forward), 2e-3 + 1e-10 * size(TaskKind::gate, Phase::forward), 1e-15);
  EXPECT_NEAR(seconds(TaskKind::order, Phase::forward), 3e-3 + 1e-9 * home, 1e-15);
  EXPECT_NEAR(seconds(TaskKind::i_order, Phase::forward), 3e-3 + 1e-9 * home, 1e-15) << "by the order's row";
  const double rows = static_cast<double>(capacity_rows(shape));
  EXPECT_NEAR(seconds(TaskKind::expert, Phase::forward), 4e-3 + 1e-11 * size(TaskKind::expert, Phase::forward) / rows,
              1e-15);
  EXPECT_EQ(seconds(TaskKind::order, Phase::backward), 0) << "no row of that phase";
  add("i-order:tutel", 5e-3, 0, 1e-9);
  EXPECT_NEAR(seconds(TaskKind::i_order, Phase::forward), 5e-3 + 1e-9 * home, 1e-15);
  profile.modules.back().range = Range{1e9, 2e9};
  const LayerPricer outside(profile, shape);
  outside.dense_seconds(TaskKind::i_order, Phase::forward);
  EXPECT_TRUE(has_note(outside, "outside the measured range: i-order:tutel forward"));
}

TEST(Pricer, AHooksRowAddsToEveryExchange) {
  Profile profile = small_profile();
  LayerCase shape = small_case();
  shape.layer.hook = "bf16";
  const auto seconds = [&](TaskKind kind) {
    return LayerPricer(profile, shape).chunk_seconds(kind, Phase::forward, 3);
  };
  const double dispatch = seconds(TaskKind::dispatch), gather = seconds(TaskKind::allgather);
  profile.modules.push_back({"hook:bf16", Phase::forward, {}, 1e-3, 0, 1e-9});
  const double rows = static_cast<double>(capacity_rows(shape));
  const double added = 1e-3 + 1e-9 * 3 / rows * whole_work(TaskKind::dispatch, Phase::forward, shape, {}).bytes;
  EXPECT_NEAR(seconds(TaskKind::dispatch), dispatch + added, 1e-15);
  EXPECT_NEAR(seconds(TaskKind::combine), dispatch + added, 1e-15);
  EXPECT_EQ(seconds(TaskKind::allgather), gather);
}

TEST(Pricer, AGroupSizeWithoutARowNamesTheNearest) {
  Profile profile = small_profile();
  const LayerCase wide = small_case({.nodes = 4, .ranks_per_node = 2});
  const std::string text = unpriced(profile, wide);
  for (const char* part : {"small", "alltoall", "4 ranks", "inter", "nearest has 2 ranks"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in: " << text;
  const LayerPricer borrowed(profile, wide, {.nearest = true});
  EXPECT_TRUE(has_note(borrowed, "nearest: alltoall over 4 ranks priced by the row of 2 ranks"));
  EXPECT_TRUE(has_note(borrowed, "nearest: allreduce over 4 ranks priced by the row of 2 ranks"));
  EXPECT_DOUBLE_EQ(borrowed.gradient_seconds(1000), 2e-4 + 2e-6);
  // By ratio, and of two the larger.
  CommRow row = row_of(profile, Op::alltoall);
  for (const auto& [first, second, nearest] : {std::tuple{1, 16, 16}, {16, 1, 16}, {2, 16, 2}, {2, 8, 8}, {3, 5, 5}}) {
    std::erase_if(profile.comm, [](const CommRow& r) { return r.op == Op::alltoall; });
    for (const int ranks : {first, second}) row.ranks = ranks, profile.comm.push_back(row);
    EXPECT_TRUE(has_note(LayerPricer(profile, wide, {.nearest = true}),
                         fmt::format("nearest: alltoall over 4 ranks priced by the row of {} ranks", nearest)));
  }
}

// A row holds for groups with at least its ranks per node; a row that does not state them holds for all.
TEST(Pricer, TheRowWithMostRanksPerNodeOfTheGroupIsUsed) {
  Profile profile = small_profile();
  profile.nodes = 4, profile.ranks_per_node = 4;
  const CommRow plain = row_of(profile, Op::alltoall);
  std::erase_if(profile.comm, [](const CommRow& row) { return row.op == Op::alltoall; });
  const auto seconds = [&](int ranks_per_node, const std::vector<int>& stated) {
    Profile with = profile;
    for (const int n : stated) {
      CommRow& row = with.comm.emplace_back(plain);
      row.ranks = 8, row.ranks_per_node = n, row.alpha_s = 1 + n;
    }
    const LayerCase shape = small_case();
    const CommRow* row =
        RowFinder(with, shape, {}).comm_row(Op::alltoall, {GroupKind::ep, 8, Network::inter, ranks_per_node});
    return row == nullptr ? 0 : row->alpha_s;
  };
  EXPECT_EQ(seconds(1, {4, 1, 2}), 2);
  EXPECT_EQ(seconds(2, {4, 1, 2}), 3);
  EXPECT_EQ(seconds(3, {4, 1, 2}), 3);
  EXPECT_EQ(seconds(4, {1, 4, 2}), 5);
  EXPECT_EQ(seconds(1, {4, 0, 2}), 1);
  EXPECT_EQ(seconds(1, {4, 2}), 0);

  // A group of one size in two spreads, by the layout: 8 ranks on 4 nodes, and on 2.
  for (CommRow& row : profile.comm) row.ranks = row.network == Network::inter ? 8 : 2;
  CommRow whole = plain;
  whole.ranks = 8, whole.ranks_per_node = 4;
  profile.comm.push_back(whole);
  const LayerCase wide = complete({.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 8},
                                  {.nodes = 4, .ranks_per_node = 4, .mp = 2, .ep = 8, .esp = 2}, Rounding::ragged);
  EXPECT_EQ(unpriced(profile, wide),
            "profile small: no alltoall row for 8 ranks with 2 per node on the inter network; the nearest has 8 ranks "
            "with 4 per node");
  EXPECT_TRUE(has_note(LayerPricer(profile, wide, {.nearest = true}),
                       "nearest: alltoall over 8 ranks with 2 per node priced by the row of 8 ranks with 4 per node"));
}

TEST(Pricer, RowsOfOtherNetworksAndAlgorithmsDoNotCount) {
  Profile profile = small_profile();
  row_of(profile, Op::alltoall).algorithm = "2dh";
  EXPECT_NE(unpriced(profile, small_case()).find("no alltoall row for 2 ranks on the inter network"),
            std::string::npos);
  profile = small_profile();
  row_of(profile, Op::allgather).network = Network::inter;
  EXPECT_NE(unpriced(profile, small_case()).find("no allgather row for 2 ranks on the intra network"),
            std::string::npos);
  EXPECT_TRUE(unpriced(profile, small_case(), {.nearest = true}).ends_with("any number of ranks on the intra network"));
}

TEST(Pricer, AnIntraAllReduceIsDerivedAndSaysSo) {
  Profile profile = small_profile();
  const LayerCase one_node = small_case({.nodes = 1, .ranks_per_node = 2, .mp = 1, .esp = 2});
  const LayerPricer pricer(profile, one_node);
  EXPECT_DOUBLE_EQ(pricer.gradient_seconds(1000), 7e-5 + 1000 * 7e-10);
  EXPECT_TRUE(has_note(pricer, "derived: intra allreduce"));
  const LayerPricer inter(profile, small_case());
  EXPECT_FALSE(has_note(inter, "derived")) << "nothing is derived here";
  std::erase_if(profile.comm, [](const CommRow& row) { return row.op == Op::reducescatter; });
  EXPECT_NE(unpriced(profile, one_node), "priced");
}

TEST(Pricer, SaysWhatLiesOutsideTheFittedRange) {
  Profile profile = small_profile();
  // T_rank = ceil(1.2 x 128 / (2 x 4)) = 20 rows of E M = 128 elements: 10240 bytes.
  row_of(profile, Op::alltoall).range_bytes = Range{1, 10239};
  EXPECT_TRUE(has_note(LayerPricer(profile, small_case()), "outside the measured range: alltoall"));
  row_of(profile, Op::alltoall).range_bytes = Range{1, 10240};
  EXPECT_FALSE(has_note(LayerPricer(profile, small_case()), "outside"));
}

TEST(Pricer, RefusesWhatItCannotPrice) {
  Profile profile = small_profile();
  EXPECT_EQ(unpriced(profile, small_case()), "priced");
  profile.compute[0].dtype = DType::bfloat16;
  EXPECT_NE(unpriced(profile, small_case()).find("no gemm row for float32"), std::string::npos);
  profile = small_profile();
  profile.comm.clear();
  EXPECT_NE(unpriced(profile, small_case()).find("no allgather row"), std::string::npos);
  EXPECT_EQ(unpriced(profile, small_case({.nodes = 1, .ranks_per_node = 1})), "priced") << "one rank sends nothing";
}

TEST(Pricer, OverheadIsAddedToEveryTask) {
  Profile profile = small_profile();
  const LayerPricer without(profile, small_case());
  Profile slow = small_profile();
  slow.task_overhead_s = 1;
  const LayerPricer with(slow, small_case());
  for (const TaskKind kind : {TaskKind::dispatch, TaskKind::allgather, TaskKind::expert})
    EXPECT_NEAR(with.chunk_seconds(kind, Phase::forward, 3) - without.chunk_seconds(kind, Phase::forward, 3), 1, 1e-12);
  for (const TaskKind kind : {TaskKind::attention, TaskKind::gate, TaskKind::order, TaskKind::i_order,
                              TaskKind::mp_allgather, TaskKind::mp_reducescatter})
    EXPECT_NEAR(with.dense_seconds(kind, Phase::backward) - without.dense_seconds(kind, Phase::backward), 1, 1e-12);
  EXPECT_NEAR(with.gradient_seconds(64) - without.gradient_seconds(64), 1, 1e-12);
}

// FSMoE's Table 2 on testbed B, float32, k f = 2.4: what the volumes and Fig. 5's coefficients make of it, in ms. The
// paper prints 28.3, 39.6, 40.8, 32.1 (Mixtral) and 11.2, 15.5, 15.7, 7.3 (GPT2-XL).
TEST(Pricer, Table2OfTestbedB) {
  const Profile profile = find_profile("testbed-b");
  struct Row {
    const char* model;
    LayerShape layer;
    double alltoall, allgather, reducescatter, gradients;
  };
  LayerShape mixtral{.batch = 4, .seq = 1024, .model_dim = 4096, .hidden = 14336, .heads = 32, .kv_heads = 8};
  mixtral.ffn = Ffn::mixtral;
  const LayerShape gpt2_xl{.batch = 4, .seq = 1024, .model_dim = 1600, .hidden = 6400, .heads = 25};
  // GPT2-XL's gradients: 25 heads over MP 4 leave 7 to the largest shard; an even quarter would take 6.2 ms.
  for (const Row& row :
       {Row{"Mixtral", mixtral, 25.0, 38.4, 38.2, 25.2}, {"GPT2-XL", gpt2_xl, 10.0, 15.0, 15.0, 7.0}}) {
    const LayerPricer pricer(profile, complete(row.layer, {.nodes = 8, .ranks_per_node = 4}, Rounding::exact));
    const double rows = capacity_exact(pricer.shape());
    const auto chunk = [&](TaskKind kind) { return pricer.chunk_seconds(kind, Phase::forward, rows); };
    const auto dense = [&](TaskKind kind) { return pricer.dense_seconds(kind, Phase::forward); };
    const auto ms = [&](double seconds, double expected, const char* what) {
      EXPECT_NEAR(seconds * 1e3, expected, 0.05 + 1e-9) << row.model << " " << what;
    };
    ms(chunk(TaskKind::dispatch) + chunk(TaskKind::combine), row.alltoall, "AlltoAll");
    ms(chunk(TaskKind::allgather) + dense(TaskKind::mp_allgather), row.allgather, "AllGather");
    ms(chunk(TaskKind::reducescatter) + dense(TaskKind::mp_reducescatter), row.reducescatter, "ReduceScatter");
    ms(pricer.gradient_seconds(pricer.gradient_bytes()), row.gradients, "gradients");
  }
}

}  // namespace
}  // namespace moe
