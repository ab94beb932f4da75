// The order on each lane, as text: r = 3, two nodes of two ranks, AlltoAll between nodes and ESP inside them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include "moe/schedule/schedule.h"

namespace moe {
namespace {

// D G E S C by chunk; MP collectives by name; R: a slice of the gradients' AllReduce.
std::string label(const Task& task) {
  static const std::map<TaskKind, std::string> kLabels{
      {TaskKind::dispatch, "D"},      {TaskKind::allgather, "G"},        {TaskKind::expert, "E"},
      {TaskKind::reducescatter, "S"}, {TaskKind::combine, "C"},          {TaskKind::gradient, "R"},
      {TaskKind::mp_allgather, "ag"}, {TaskKind::mp_reducescatter, "rs"}};
  const auto found = kLabels.find(task.kind);
  if (found == kLabels.end()) return std::string(name_of(task.kind));
  return found->second + (task.chunks > 1 ? fmt::to_string(task.chunk + 1) : "");
}

// "compute: attention gate ...; comm: ..." of one phase.
std::string orders(const Plan& plan, Phase phase) {
  std::string text;
  for (const Lane& lane : plan.structure->lanes) {
    text += fmt::format("{}{}:", text.empty() ? "" : "; ", name_of(lane.kind));
    for (const int id : lane.queue) {
      const Task& task = plan.tasks()[id];
      if (task.phase == phase) text.append(" ").append(label(task));
    }
  }
  return text;
}

Plan plan_of(std::string_view schedule, Decision decision, ParallelShape parallel = {.nodes = 2, .ranks_per_node = 2}) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 2, .top_k = 1};
  return build_plan(find_schedule(schedule), complete(layer, parallel, Rounding::ragged), decision);
}

TEST(LaneOrders, DsMoe) {
  const Plan plan = plan_of("ds-moe", {1, 1, 0});
  EXPECT_EQ(orders(plan, Phase::forward), "compute: attention gate order E i_order; comm: ag rs D G S C");
  EXPECT_EQ(orders(plan, Phase::backward), "compute: i_order E order gate attention; comm: D G S C ag rs R");
}

TEST(LaneOrders, Tutel) {
  const Plan plan = plan_of("tutel", {3, 3, 0});
  EXPECT_EQ(orders(plan, Phase::forward),
            "compute: attention gate order E1 E2 E3 i_order; comm: ag rs D1 G1 D2 G2 D3 G3 S1 C1 S2 C2 S3 C3");
  EXPECT_EQ(orders(plan, Phase::backward),
            "compute: i_order E1 E2 E3 order gate attention; comm: D1 G1 D2 G2 D3 G3 S1 C1 S2 C2 S3 C3 ag rs R");
}

TEST(LaneOrders, Fsmoe) {
  const Plan plan = plan_of("fsmoe", {3, 3, 1000});
  EXPECT_EQ(orders(plan, Phase::forward),
            "compute: attention gate order E1 E2 E3 i_order; inter: D1 D2 D3 C1 C2 C3; "
            "intra: ag rs G1 G2 G3 S1 S2 S3");
  EXPECT_EQ(orders(plan, Phase::backward),
            "compute: i_order E1 E2 E3 order gate attention; inter: D1 D2 D3 R C1 C2 C3 R; "
            "intra: G1 G2 G3 S1 S2 S3 ag rs");
}

TEST(LaneOrders, FsmoeWithoutOneOfItsSlices) {
  EXPECT_EQ(orders(plan_of("fsmoe", {2, 2, 0}), Phase::backward),
            "compute: i_order E1 E2 order gate attention; inter: D1 D2 C1 C2 R; intra: G1 G2 S1 S2 ag rs");
  EXPECT_EQ(orders(plan_of("fsmoe", {2, 2, 8192}), Phase::backward),
            "compute: i_order E1 E2 order gate attention; inter: D1 D2 R C1 C2; intra: G1 G2 S1 S2 ag rs");
}

// Where AlltoAll and AllGather fall on one network, fsmoe's order is that of one communication lane.
TEST(LaneOrders, FsmoeOnOneNetwork) {
  const Plan plan = plan_of("fsmoe", {2, 2, 1000}, {.nodes = 1, .ranks_per_node = 4, .mp = 2, .ep = 2, .esp = 2});
  EXPECT_EQ(orders(plan, Phase::forward),
            "compute: attention gate order E1 E2 i_order; inter:; intra: ag rs D1 G1 D2 G2 S1 C1 S2 C2");
  EXPECT_EQ(orders(plan, Phase::backward),
            "compute: i_order E1 E2 order gate attention; inter:; intra: D1 G1 D2 G2 R S1 C1 S2 C2 ag R rs");
}

// On one lane the slice beside the dense part goes where the lane is idle: under attention.
TEST(LaneOrders, TutelImproved) {
  EXPECT_EQ(orders(plan_of("tutel-improved", {2, 2, 0, 1000}), Phase::backward),
            "compute: i_order E1 E2 order gate attention; comm: D1 G1 D2 G2 S1 C1 S2 C2 ag R rs R");
}

TEST(LaneOrders, FsmoeNoIio) {
  EXPECT_EQ(orders(plan_of("fsmoe-no-iio", {3, 2, 1000}), Phase::backward),
            "compute: i_order E1 E2 order gate attention; comm: D1 G1 D2 G2 R S1 C1 S2 C2 ag R rs");
}

TEST(LaneOrders, FsmoeNoPartition) {
  EXPECT_EQ(orders(plan_of("fsmoe-no-partition", {3, 2}), Phase::backward),
            "compute: i_order E1 E2 order gate attention; inter: D1 D2 C1 C2 R; intra: G1 G2 S1 S2 ag rs");
}

TEST(LaneOrders, GroupsOfOneRankHaveNoTasks) {
  EXPECT_EQ(orders(plan_of("fsmoe", {3, 3, 0}, {.nodes = 1, .ranks_per_node = 1}), Phase::backward),
            "compute: i_order E1 E2 E3 order gate attention; inter:; intra:");
  EXPECT_EQ(orders(plan_of("tutel", {2, 2, 0}, {.nodes = 2, .ranks_per_node = 1}), Phase::forward),
            "compute: attention gate order E1 E2 i_order; comm: D1 D2 C1 C2");
  const ParallelShape one_node{.nodes = 1, .ranks_per_node = 2},
      sharded{.nodes = 1, .ranks_per_node = 2, .mp = 2, .esp = 2};
  EXPECT_EQ(orders(plan_of("fsmoe", {2, 2, 0}, one_node), Phase::forward),
            "compute: attention gate order E1 E2 i_order; inter:; intra: D1 D2 C1 C2");
  EXPECT_EQ(orders(plan_of("fsmoe", {2, 2, 0}, sharded), Phase::forward),
            "compute: attention gate order E1 E2 i_order; inter:; intra: ag rs G1 G2 S1 S2");
}

}  // namespace
}  // namespace moe
