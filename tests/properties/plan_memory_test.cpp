// Memory counted from plans: what they keep alive, when, is what the verbs say of the model.
#include <gtest/gtest.h>

#include "moe/plan/memory.h"
#include "tests/properties/any_model.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::fits;
using any_model::any_model;
using any_model::any_model_decision;
using any_model::AnyModel;

TEST(PlanMemory, IsWhatTheModelsOrderSays) {
  int plans = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const AnyModel any = any_model(seed);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, any.model.shape)) continue;
      const Plan plan = build_model_plan(schedule, any.model, any_model_decision(schedule, any.model, seed));
      MemoryRequest of_plan = memory_request(plan),
                    of_model = memory_request(any.model, any.model.shape, schedule.flow);
      of_plan.vocabulary = of_model.vocabulary = seed % 2 == 0 ? 1000 : 0;
      EXPECT_GE(estimate_memory(of_plan).total(), estimate_memory(of_model).total()) << "some hold several at once";
      for (StageSlots& stage : of_plan.slots) stage.parts = {};
      // A forward may begin before the half of a backward ends that no other task waits for.
      if (any.model.shape.parallel.recompute == Recompute::full || schedule.halves_backward) of_plan.slots.clear();
      const MemoryEstimate counted = estimate_memory(of_plan), said = estimate_memory(of_model);
      ASSERT_DOUBLE_EQ(counted.activations, said.activations) << schedule.name << ", " << any.text;
      ASSERT_DOUBLE_EQ(counted.total(), said.total()) << schedule.name << ", " << any.text;
      ++plans;
    }
  }
  EXPECT_GT(plans, 2000);
}

// By hand: gpipe keeps all micro-batches of its layers, on one stage too; 1F1B as many as stages follow.
TEST(PlanMemory, KeepsWhatItsBackwardsWaitFor) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  for (const int pp : {1, 2, 4})
    for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
      const ParallelShape parallel{.nodes = 2 * pp, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = pp};
      const ModelShape model{complete(layer, parallel, Rounding::ragged), 5, 9, order};
      const Schedule& schedule = find_schedule("fsmoe");
      const Plan plan = build_model_plan(schedule, model, any_model_decision(schedule, model, 7));
      const std::vector<StageSlots> slots = memory_request(plan).slots;
      ASSERT_EQ(std::ssize(slots), pp);
      for (int stage = 0; stage < pp; ++stage) {
        EXPECT_EQ(slots[stage].kept, layers_in({5, pp, 1}, stage) * (order == PipelineOrder::gpipe ? 9 : pp - stage))
            << pp << " stages, " << name_of(order);
      }
    }
}

// By hand, 1F1B with two chunks of two layers on each of four stages and eight micro-batches: stage s runs
// 2 (3 - s) + 4 forwards ahead, and then one with each backward.
TEST(PlanMemory, KeepsWhatVirtualStagesHaveInFlight) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  const ParallelShape parallel{.nodes = 8, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = 4};
  const ModelShape model{complete(layer, parallel, Rounding::ragged), 16, 8, PipelineOrder::one_f_one_b, 2};
  const Schedule& schedule = find_schedule("fsmoe");
  const MemoryRequest request =
      memory_request(build_model_plan(schedule, model, any_model_decision(schedule, model, 7)));
  const std::vector<int> in_flight{11, 9, 7, 5};
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(request.slots.at(stage).kept, 2 * in_flight[stage]);
    EXPECT_DOUBLE_EQ(micro_batches_in_flight(request, stage), in_flight[stage] / 2.0);
  }
  const auto activations = [&](int stage) { return estimate_stage(request, stage).activations; };
  EXPECT_NEAR(activations(0) / activations(3), 11.0 / 5, 1e-9);
  MemoryRequest before_plan = memory_request(model, model.shape, Flow::sharded);
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_LE(estimate_stage(before_plan, stage).total(), estimate_stage(request, stage).total() * (1 + 1e-12));
  before_plan.virtual_stages = 1;  // four micro-batches of all four layers
  EXPECT_NEAR(estimate_stage(before_plan, 0).activations / activations(0), 4 * 4.0 / (11 * 2), 1e-9);
}

// Two experts' places a device: half the EP group, twice the experts' weights.
TEST(PlanMemory, CountsPackedExperts) {
  const Schedule& schedule = find_schedule("lina-packed");
  const LayerCase shape =
      complete({.experts = 8}, {.nodes = 8, .ranks_per_node = 1, .mp = 1, .ep = 8}, Rounding::ragged);
  Decision decision;
  decision.packing = 4;
  const MemoryEstimate packed = estimate_memory(memory_request(build_plan(schedule, shape, decision)));
  const MemoryEstimate by_hand =
      layer_memory(complete({.experts = 8}, {.nodes = 8, .ranks_per_node = 1, .mp = 1, .ep = 2}, Rounding::ragged));
  EXPECT_DOUBLE_EQ(packed.total(), by_hand.total());
  MemoryRequest alone;
  alone.shape = shape;
  const double expert_bytes = 4 * rank_parameters(alone).experts;
  EXPECT_NEAR(packed.weights - layer_memory(shape).weights, 3 * expert_bytes, 1e-6 * expert_bytes);
}

}  // namespace
}  // namespace moe
