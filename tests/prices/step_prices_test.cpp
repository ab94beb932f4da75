// Prices of a step's tasks: by rows of their own, by what other rows tell, or none and a note.
#include <gtest/gtest.h>

#include "moe/prices/pricer.h"
#include "moe/schedule/model_plan.h"
#include "moe/shape/model_file.h"

namespace moe {
namespace {

CommRow row_of(Op op, Network network, int ranks, double alpha_s, double beta) {
  CommRow row;
  row.op = op;
  row.network = network;
  row.ranks = ranks;
  row.alpha_s = alpha_s;
  row.beta_s_per_byte = beta;
  return row;
}

// Four nodes of two ranks: MP = 2 inside them, DP = 4 and EDP = 2 between them.
LayerCase four_nodes() {
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  return complete(layer, {.nodes = 4, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2}, Rounding::ragged);
}

Profile profile_of(std::vector<CommRow> rows) {
  Profile profile;
  profile.name = "four nodes";
  profile.nodes = 4;
  profile.ranks_per_node = 2;
  profile.comm = std::move(rows);
  return profile;
}

bool noted(const LayerPricer& pricer, std::string_view begins) {
  for (const PriceNote& note : pricer.notes())
    if (note.text().starts_with(begins)) return true;
  return false;
}

Work sum_of(GroupKind group, double bytes) { return {Op::allreduce, group, bytes, 0, 0}; }

TEST(StepPrices, SumsOverTheStageAreThoseInsideNodesAndBetweenThem) {
  const LayerCase shape = four_nodes();
  const Profile whole = profile_of({row_of(Op::allreduce, Network::inter, 8, 1e-4, 1e-9)});
  const LayerPricer by_row(whole, shape);
  EXPECT_DOUBLE_EQ(step_seconds(by_row, TaskKind::stage_gradient, sum_of(GroupKind::stage, 1e6)), 1e-4 + 1e-3);
  EXPECT_TRUE(by_row.notes().empty());
  const Profile parts = profile_of({row_of(Op::allreduce, Network::inter, 4, 2e-4, 2e-9),
                                    row_of(Op::reducescatter, Network::intra, 2, 3e-5, 1e-10),
                                    row_of(Op::allgather, Network::intra, 2, 4e-5, 2e-10)});
  const LayerPricer derived(parts, shape);
  const double inter_s = 2e-4 + 2e-3, intra_s = 3e-5 + 1e-4 + 4e-5 + 2e-4;
  EXPECT_DOUBLE_EQ(step_seconds(derived, TaskKind::stage_gradient, sum_of(GroupKind::stage, 1e6)), inter_s + intra_s);
  EXPECT_TRUE(noted(derived, "derived: allreduce over a stage = over mp, then over dp"));
  EXPECT_TRUE(noted(derived, "derived: intra allreduce = reducescatter + allgather"));
  EXPECT_DOUBLE_EQ(step_seconds(derived, TaskKind::expert_gradient, sum_of(GroupKind::edp, 1e6)), inter_s);
  EXPECT_TRUE(noted(derived, "derived: allreduce over edp = over dp"));
}

// What a schedule places in a backward and what is left to the step cost the same.
TEST(StepPrices, LayersAndStepsHaveOnePrice) {
  const LayerCase shape = four_nodes();
  CommRow scatter = row_of(Op::reducescatter, Network::inter, 4, 2e-4, 2e-9);
  scatter.points = {{1e5, 1e-3}, {1e6, 2e-3}, {2e6, 7e-3}};
  const Profile profile = profile_of({scatter, row_of(Op::allgather, Network::inter, 4, 1e-4, 1e-9)});
  const LayerPricer pricer(profile, shape);
  for (const auto& [bytes, scatter_s] : {std::pair{1e4, 9e-4}, {1.5e6, 4.5e-3}, {3e6, 12e-3}}) {
    const double expected = scatter_s + 1e-4 + bytes * 1e-9;
    EXPECT_DOUBLE_EQ(step_seconds(pricer, TaskKind::expert_gradient, sum_of(GroupKind::edp, bytes)), expected);
    EXPECT_DOUBLE_EQ(pricer.gradient_seconds(static_cast<int64_t>(bytes), TaskKind::expert_gradient), expected);
    EXPECT_DOUBLE_EQ(pricer.gradient_seconds(static_cast<int64_t>(bytes)), expected);
  }
  EXPECT_TRUE(noted(pricer, "derived: inter allreduce = reducescatter + allgather"));
}

TEST(StepPrices, WithoutRowsNothingIsRefused) {
  const LayerCase shape = four_nodes();
  const Profile none = profile_of({});
  const LayerPricer pricer(none, shape);
  for (const auto& [kind, group] : {std::pair{TaskKind::stage_gradient, GroupKind::stage},
                                    {TaskKind::expert_gradient, GroupKind::edp},
                                    {TaskKind::norm, GroupKind::world}}) {
    EXPECT_EQ(step_seconds(pricer, kind, sum_of(group, 8)), 0);
    EXPECT_TRUE(noted(pricer, fmt::format("not priced: {}, ", name_of(kind))));
  }
  EXPECT_EQ(step_seconds(pricer, TaskKind::optimizer, {Op::copy, GroupKind::none, 1e6, 0, 0}), 0);
  EXPECT_TRUE(noted(pricer, "not priced: optimizer, "));
  EXPECT_EQ(step_seconds(pricer, TaskKind::optimizer, {}), 0) << "weights that stay";
}

TEST(StepPrices, EndsOfAPipelineExchangeATiedEmbedding) {
  LayerCase shape = four_nodes();
  shape.parallel.pp = 4;
  shape.parallel.nodes *= 4;
  const Work work{Op::sendrecv, GroupKind::pp, 1e6, 0, 0};
  const Profile rows = profile_of({row_of(Op::sendrecv, Network::inter, 2, 3e-5, 4e-9)}), none = profile_of({});
  const LayerPricer pricer(rows, shape), without(none, shape);
  EXPECT_DOUBLE_EQ(step_seconds(pricer, TaskKind::tied_gradient, work), 3e-5 + 4e-3);
  EXPECT_EQ(step_seconds(without, TaskKind::tied_gradient, work), 0);
  EXPECT_TRUE(noted(without, "not priced: tied_gradient, "));
}

TEST(StepPrices, OptimizersCopyUnlessTheyWereMeasured) {
  const LayerCase shape = four_nodes();
  // AdamW reads 4 numbers of 4 bytes and writes 3; SGD reads 3 and writes 2. A copy reads and writes.
  const StepWeights some{.dense = 1000, .experts = 500, .replicated = 20};
  EXPECT_DOUBLE_EQ(optimizer_bytes(shape, some, OptimizerKind::adamw), 1520 * 28 / 2.0);
  EXPECT_DOUBLE_EQ(optimizer_bytes(shape, some, OptimizerKind::sgd), 1520 * 20 / 2.0);
  LayerCase shares = shape, half = shape;
  shares.parallel.zero = 1;
  EXPECT_DOUBLE_EQ(optimizer_bytes(shares, some, OptimizerKind::adamw), (1020 / 4.0 + 500 / 2.0) * 28 / 2.0);
  half.layer.dtype = DType::bfloat16;  // gradient and weight of 2 bytes, the master and two moments read and written
  EXPECT_DOUBLE_EQ(optimizer_bytes(half, some, OptimizerKind::adamw), 1520 * (2 + 2 + 6 * 4) / 2.0);
  Profile profile = profile_of({});
  ComputeRow copy;
  copy.op = Op::copy;
  copy.alpha_s = 1e-6;
  copy.beta_s_per_byte = 1e-12;
  profile.compute.push_back(copy);
  const Work work{Op::copy, GroupKind::none, 1e6, 0, 0};
  EXPECT_DOUBLE_EQ(step_seconds(LayerPricer(profile, shape), TaskKind::optimizer, work), 2e-6);
  TaskRow& row = profile.tasks.emplace_back();
  row.name = "optimizer";
  row.phase = Phase::step;
  row.dtype = shape.layer.dtype;
  row.seconds_per_term[Term::call] = 5e-6;
  row.seconds_per_term[Term::weight_byte] = 3e-12;
  EXPECT_DOUBLE_EQ(step_seconds(LayerPricer(profile, shape), TaskKind::optimizer, work), 8e-6);
}

// What runs has so many elements: tests/stack and tests/model compare them with the layers' own.
TEST(StepPrices, EveryGatesWeightsAreCounted) {
  LayerCase c = four_nodes();
  const int64_t norms = 2 * 32;
  for (const auto& [gate, elements] : {std::pair{"gshard", 2 * 4 * 32},
                                       {"switch", 4 * 32},
                                       {"sigmoid", 4 * 32},
                                       {"expert-choice", 4 * 32},
                                       {"xmoe", 16 * 32 + 4 * 16 + 1}}) {
    c.layer.gate = gate;
    EXPECT_EQ(step_weights(c).replicated, elements + norms) << gate;
  }
  c.layer.gate = "softmoe";
  EXPECT_EQ(step_weights(c).replicated, capacity_rows(c) * 4 * 32 + norms);
}

// gpt-oss-20b on one rank, by hand from the row of GEMMs: six GEMMs of attention, twelve in the backward. 12 of 24
// layers see all L tokens, as whole L x L products; 12 see a band of 128 tokens, which counts twice.
TEST(StepPrices, OfAttentionAreThoseOfEachLayersWindow) {
  const Model file = find_model("gpt-oss-20b");
  Profile profile = profile_of({});
  profile.nodes = profile.ranks_per_node = 1;
  profile.task_overhead_s = 3e-6;
  profile.compute.push_back({.op = Op::gemm, .dtype = DType::bfloat16, .alpha_s = 2e-6, .beta_s_per_flop = 1 / 400e12});
  ModelShape model{complete(file.layer, {}, Rounding::ragged), 24, 1};
  model.whole = whole_layers(file.windowed_layers, 24);
  ModelDecision decision;
  decision.backwards.resize(24);
  const Plan plan = build_model_plan(find_schedule("ds-moe"), model, decision);
  const LayerPricer pricer(profile, model.shape);
  const std::vector<double> seconds = price(pricer, plan);
  EnumArray<Phase, double, 2> attention_s{};
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::attention) attention_s[task.phase] += seconds[task.id];
  const double tokens = 4096, products = 2 * 2880.0 * 4096 + 2 * 2880.0 * 512;
  const double all = tokens * tokens, band = 128 * tokens - 128 * 127 / 2.0;
  const auto forward_s = [&](double pairs) { return (2 * tokens * products + 2 * pairs * 2 * 4096) / 400e12; };
  const double both_s = 12 * forward_s(all) + 12 * forward_s(2 * band);
  EXPECT_NEAR(attention_s[0], both_s + 24 * (6 * 2e-6 + 3e-6), 1e-12);
  EXPECT_NEAR(attention_s[1], 2 * both_s + 24 * (12 * 2e-6 + 3e-6), 1e-12);
}

}  // namespace
}  // namespace moe
