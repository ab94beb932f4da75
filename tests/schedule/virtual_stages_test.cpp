// Virtual stages: which layers and passes a stage has, how long the interleaved order takes, what it refuses.
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/check.h"
#include "moe/plan/pipeline.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/simulator.h"

namespace moe {
namespace {

constexpr PipelineOrder k1f1b = PipelineOrder::one_f_one_b;

ModelShape model_of(int stages, int chunks, int layers, int micro_batches) {
  const LayerShape layer{.batch = 1, .seq = 16, .model_dim = 16, .hidden = 16, .heads = 1, .experts = 1, .top_k = 1};
  const ParallelShape parallel{.nodes = stages, .ranks_per_node = 1, .mp = 1, .ep = 1, .esp = 1, .pp = stages};
  return {complete(layer, parallel, Rounding::ragged), layers, micro_batches, k1f1b, chunks};
}

Plan plan_of(const ModelShape& model) {
  ModelDecision decision;
  decision.backwards.resize(decided_layers(model));
  return build_model_plan(find_schedule("fsmoe"), model, decision);
}

// Returns "F0 F1 B0": the passes of a stage by micro-batch, those of its second chunk in lower case.
std::string passes_of(const StageSplit& split, int micro_batches, int stage) {
  std::string text;
  for (const PipelineStep& step : pipeline_steps(k1f1b, micro_batches, split)) {
    if (step.stage(split) != stage) continue;
    const bool forward = step.phase == Phase::forward, first = step.chunk < split.stages;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", forward ? (first ? 'F' : 'f') : (first ? 'B' : 'b'),
                        step.micro_batch);
  }
  return text;
}

// By hand, after Narayanan et al. 2021, figure 4: groups of two micro-batches pass the first chunk, then the second.
// Stage 0 runs 2 (2 - 0 - 1) + (2 - 1) 2 = 4 forwards ahead, stage 1 two.
TEST(VirtualStages, RunTheInterleavedOrder) {
  const StageSplit split{8, 2, 2};
  EXPECT_EQ(passes_of(split, 4, 0), "F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1 b2 b3 B2 B3");
  EXPECT_EQ(passes_of(split, 4, 1), "F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3");
  EXPECT_EQ(passes_of({8, 2, 2}, 2, 0), "F0 F1 f0 f1 b0 b1 B0 B1");
  EXPECT_EQ(layers_of_stage(split, 0), (std::vector{0, 1, 4, 5}));
  EXPECT_EQ(layers_of_stage(split, 1), (std::vector{2, 3, 6, 7}));
  EXPECT_EQ(passes_in_flight(k1f1b, 4, split, 0), 5);
  EXPECT_EQ(nth_backward(split, 1, 0), 7);
  EXPECT_EQ(nth_backward(split, 1, 2), 3);
}

// One chunk a stage is what there was without the field.
TEST(VirtualStages, OfOneAreStages) {
  for (const int stages : {1, 2, 4}) {
    const Plan one = plan_of(model_of(stages, 1, 8, 4));
    EXPECT_EQ(one.virtual_stages, 1);
    ModelShape without = model_of(stages, 1, 8, 4);
    without.virtual_stages = ModelShape().virtual_stages;
    EXPECT_EQ(plan_of(without).hash(), one.hash());
  }
  EXPECT_EQ(plan_of(model_of(1, 4, 8, 4)).hash(), plan_of(model_of(1, 1, 8, 4)).hash()) << "one stage has one chunk";
  EXPECT_NE(plan_of(model_of(2, 2, 8, 4)).hash(), plan_of(model_of(2, 1, 8, 4)).hash());
}

TEST(VirtualStages, RunEveryPassOnce) {
  for (int stages = 2; stages <= 6; ++stages)
    for (int chunks = 1; chunks <= 5; ++chunks)
      for (int groups = 1; groups <= 5; ++groups) {
        const StageSplit split{stages * chunks, stages, chunks};
        const int micro_batches = groups * stages;
        const auto steps = pipeline_steps(k1f1b, micro_batches, split);
        std::set<std::tuple<Phase, int, int>> seen;
        for (const PipelineStep& step : steps) {
          const auto at = [&](Phase phase, int chunk) {
            return seen.contains({phase, chunk, step.micro_batch}) || chunk < 0 || chunk == split.chunks();
          };
          const bool forward = step.phase == Phase::forward;
          ASSERT_TRUE(at(step.phase, step.chunk + (forward ? -1 : 1)));
          ASSERT_TRUE(forward || at(Phase::forward, step.chunk));
          ASSERT_TRUE(seen.insert({step.phase, step.chunk, step.micro_batch}).second);
        }
        ASSERT_EQ(std::ssize(steps), 2 * stages * chunks * micro_batches);
      }
}

// Where stages are alike and sends are free, a step takes (p - 1) / (v m) more than its passes (Narayanan et al. 2021,
// section 2.2).
TEST(VirtualStages, LeaveTheBubbleOfTheClosedFormula) {
  int cases = 0;
  for (const int stages : {2, 3, 4, 6})
    for (const int chunks : {1, 2, 3, 4})
      for (const int groups : {1, 2, 3, 5})
        for (const int layers_a_chunk : {1, 2}) {
          const int micro_batches = groups * stages;
          const ModelShape model = model_of(stages, chunks, stages * chunks * layers_a_chunk, micro_batches);
          const Plan plan = plan_of(model);
          std::vector<double> seconds;
          for (const Task& task : plan.structure->tasks)
            seconds.push_back(task.kind != TaskKind::attention ? 0 : task.phase == Phase::forward ? 1 : 2);
          const double busy = 3.0 * chunks * layers_a_chunk * micro_batches;
          const double bubble = simulate(*plan.structure, seconds).makespan_s / busy - 1;
          EXPECT_NEAR(bubble, (stages - 1.0) / (chunks * micro_batches), 1e-12)
              << stages << " stages, " << chunks << " chunks, " << micro_batches << " micro-batches";
          ++cases;
        }
  EXPECT_EQ(cases, 128);
}

std::string refusal_of(const ModelShape& model) {
  try {
    plan_of(model);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(VirtualStages, AreRefusedWhereTheyDoNotDivide) {
  EXPECT_EQ(refusal_of(model_of(4, 2, 16, 6)),
            "virtual stages: found 2 with 6 micro-batches over 4 stages, expected a multiple of 4 micro-batches");
  EXPECT_EQ(refusal_of(model_of(4, 2, 12, 8)),
            "virtual stages: found 2 with 12 layers over 4 stages, expected a multiple of 8 layers");
  ModelShape gpipe = model_of(2, 2, 4, 2);
  gpipe.order = PipelineOrder::gpipe;
  EXPECT_EQ(refusal_of(gpipe), "virtual stages: found 2 with the order gpipe, expected 1f1b");
  EXPECT_EQ(refusal_of(model_of(2, 2, 4, 2)), "");
}

}  // namespace
}  // namespace moe
