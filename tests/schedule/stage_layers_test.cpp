// First and last stages with their own number of layers: which layers a stage has, how long a step takes and what it
// keeps, what is refused.
#include <gtest/gtest.h>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/plan/pipeline.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/simulator.h"

namespace moe {
namespace {

ModelShape staged_model(const StageSplit& split, int micro_batches, PipelineOrder order) {
  const LayerShape layer{.batch = 1,
                         .seq = 16,
                         .model_dim = 16,
                         .hidden = 16,
                         .heads = 1,
                         .first_stage_layers = split.first_layers,
                         .last_stage_layers = split.last_layers,
                         .experts = 1,
                         .top_k = 1};
  const ParallelShape parallel{
      .nodes = split.stages, .ranks_per_node = 1, .mp = 1, .ep = 1, .esp = 1, .pp = split.stages};
  return {complete(layer, parallel, Rounding::ragged), split.layers, micro_batches, order, split.virtual_stages};
}

Plan stage_plan(const ModelShape& model) {
  ModelDecision decision;
  decision.backwards.resize(decided_layers(model));
  return build_model_plan(find_schedule("fsmoe"), model, decision);
}

std::vector<int> counts_of(const StageSplit& split) {
  std::vector<int> counts;
  for (int stage = 0; stage < split.stages; ++stage) counts.push_back(layers_in(split, stage));
  return counts;
}

// Seconds of a step where a layer's forward takes 1, its backward 2, and all else nothing.
double step_s(const StageSplit& split, int micro_batches, PipelineOrder order) {
  const Plan plan = stage_plan(staged_model(split, micro_batches, order));
  std::vector<double> seconds;
  for (const Task& task : plan.structure->tasks)
    seconds.push_back(task.kind != TaskKind::attention ? 0 : task.phase == Phase::forward ? 1 : 2);
  return simulate(*plan.structure, seconds).makespan_s;
}

TEST(StageLayers, AreThoseOfHandMadeSplits) {
  EXPECT_EQ(counts_of({61, 8, 1, 1, 7, 6}), (std::vector{7, 8, 8, 8, 8, 8, 8, 6}));  // DeepSeek-V3
  EXPECT_EQ(counts_of({61, 16, 1, 1, 0, 1}), (std::vector{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1}));
  EXPECT_EQ(counts_of({61, 4, 1, 1, 13, 0}), (std::vector{13, 16, 16, 16}));
  EXPECT_EQ(counts_of({10, 4, 1, 1, 1, 0}), (std::vector{1, 3, 3, 3}));
  EXPECT_EQ(counts_of({10, 4, 1, 1, 2, 1}), (std::vector{2, 4, 3, 1})) << "the first of the others have one more";
  EXPECT_EQ(counts_of({10, 4}), (std::vector{3, 3, 2, 2})) << "without numbers of their own";
  EXPECT_EQ(counts_of({8, 4, 1, 1, 2, 2}), counts_of({8, 4}));
  const StageSplit chunks{14, 4, 2, 1, 4, 2};
  EXPECT_EQ(layers_of_stage(chunks, 0), (std::vector{0, 1, 7, 8}));
  EXPECT_EQ(layers_of_stage(chunks, 1), (std::vector{2, 3, 9, 10}));
  EXPECT_EQ(layers_of_stage(chunks, 3), (std::vector{6, 13}));
  EXPECT_EQ(nth_backward(chunks, 0, 1), 7);
  EXPECT_EQ(nth_backward(chunks, 0, 2), 1);
  EXPECT_EQ(nth_backward(chunks, 3, 1), 6);
  EXPECT_EQ(max_layers(chunks), 4);
  EXPECT_EQ(max_layers({10, 4, 1, 1, 1, 0}), 3);
  EXPECT_EQ(describe_ends(chunks), "first 4 last 2");
  EXPECT_EQ(describe_ends({10, 4, 1, 1, 0, 1}), "last 1");
  EXPECT_EQ(describe_ends({10, 4}), "");
}

// Every layer is on one stage, which runs the backwards of its chunks from the last layer to the first.
TEST(StageLayers, AreOnOneStageEach) {
  int uneven = 0, interleaved = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    auto below = [&, i = uint64_t{0}](int most) mutable {
      return static_cast<int>(random_bits(seed, 7, i++) % static_cast<uint64_t>(most));
    };
    auto upto = [&](int most) { return 1 + below(most); };
    StageSplit split{1, 1 + upto(8)};
    if (below(2) == 0) split.virtual_stages = 1 + upto(3);
    const int chunks = split.virtual_stages;
    split.first_layers = below(3) == 0 ? 0 : chunks * upto(5);
    split.last_layers = below(3) == 0 ? 0 : chunks * upto(5);
    const int others = split.stages - (split.first_layers > 0) - (split.last_layers > 0);
    int between = others * chunks * upto(4);
    if (chunks == 1 && others > 0) between += static_cast<int>(below(others));
    split.layers = split.first_layers + between + split.last_layers;
    ASSERT_NO_THROW(check_stages(split, PipelineOrder::one_f_one_b, split.stages)) << seed;
    std::vector<int> seen(split.layers);
    for (int stage = 0; stage < split.stages; ++stage) {
      const std::vector<int> layers = layers_of_stage(split, stage);
      ASSERT_TRUE(std::ranges::is_sorted(layers));
      ASSERT_EQ(std::ssize(layers), layers_in(split, stage));
      for (size_t n = 0; n < layers.size(); ++n) {
        ++seen.at(layers[n]);
        ASSERT_EQ(chunk_of_layer(split, layers[n]) % split.stages, stage) << seed;
        ASSERT_EQ(nth_backward(split, stage, static_cast<int>(n)), layers[layers.size() - 1 - n]) << seed;
      }
      for (int chunk = stage; chunk < split.chunks(); chunk += split.stages) {
        const auto [first, last] = layers_of_chunk(split, chunk);
        ASSERT_EQ((last - first) * chunks, layers_in(split, stage)) << "all chunks of a stage are alike";
        ASSERT_EQ(first, chunk == 0 ? 0 : layers_of_chunk(split, chunk - 1).second);
      }
    }
    ASSERT_EQ(seen, std::vector<int>(split.layers, 1)) << seed;
    if (split.first_layers > 0) {
      ASSERT_EQ(layers_in(split, 0), split.first_layers);
    }
    if (split.last_layers > 0) {
      ASSERT_EQ(layers_in(split, split.stages - 1), split.last_layers);
    }
    uneven += split.has_own_ends();
    interleaved += split.has_own_ends() && chunks > 1;
  }
  EXPECT_GT(uneven, 1000);
  EXPECT_GT(interleaved, 400);
}

// All micro-batches pass the stages like equal jobs a flow shop: the sum of its machines' times once, and the longest
// again for every other job, forward and backward. By hand for 1F1B on two stages: the short first stage waits for the
// long last one, or the last one runs dry while the first catches up.
TEST(StageLayers, LeaveTheBubbleOfTheLongestStage) {
  for (const StageSplit& split :
       {StageSplit{4, 2, 1, 1, 3, 1}, StageSplit{4, 2, 1, 1, 1, 3}, StageSplit{9, 4, 1, 1, 1, 2},
        StageSplit{12, 3, 1, 1, 7, 0}, StageSplit{12, 3, 1, 1, 0, 2}})
    for (const int micro_batches : {1, 2, 5}) {
      const std::vector<int> counts = counts_of(split);
      const int sum = std::accumulate(counts.begin(), counts.end(), 0), most = std::ranges::max(counts);
      EXPECT_DOUBLE_EQ(step_s(split, micro_batches, PipelineOrder::gpipe), 3.0 * (sum + (micro_batches - 1) * most));
    }
  EXPECT_DOUBLE_EQ(step_s({4, 2, 1, 1, 3, 1}, 2, PipelineOrder::one_f_one_b), 18);
  EXPECT_DOUBLE_EQ(step_s({4, 2, 1, 1, 1, 3}, 2, PipelineOrder::one_f_one_b), 21);
  EXPECT_DOUBLE_EQ(step_s({4, 2}, 2, PipelineOrder::one_f_one_b), 18);
}

// By hand, 1F1B with eight micro-batches on four stages: stage s has 4 - s micro-batches in flight, with virtual stages
// 2 (3 - s) + 5 passes of a chunk.
TEST(StageLayers, KeepWhatTheyHaveInFlight) {
  const StageSplit split{14, 4, 1, 1, 4, 1};
  const std::vector<int> layers{4, 5, 4, 1};
  const MemoryRequest request = memory_request(stage_plan(staged_model(split, 8, PipelineOrder::one_f_one_b)));
  const auto weights = [&](int stage) { return estimate_stage(request, stage).weights; };
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(request.slots.at(stage).kept, layers[stage] * (4 - stage));
    EXPECT_DOUBLE_EQ(weights(stage), layers[stage] * weights(3));
  }
  EXPECT_GT(estimate_stage(request, 0).activations, estimate_stage(request, 1).activations)
      << "sixteen passes; the longer second stage has fifteen";
  const MemoryRequest chunks =
      memory_request(stage_plan(staged_model({14, 4, 2, 1, 4, 2}, 8, PipelineOrder::one_f_one_b)));
  const std::vector<int> in_flight{11, 9, 7, 5}, chunk_rows{2, 2, 2, 1};
  for (int stage = 0; stage < 4; ++stage) EXPECT_EQ(chunks.slots.at(stage).kept, chunk_rows[stage] * in_flight[stage]);
}

TEST(StageLayers, DistinguishPlansByTheirHash) {
  const auto hash = [](const StageSplit& split) {
    return stage_plan(staged_model(split, 4, PipelineOrder::one_f_one_b)).hash();
  };
  EXPECT_NE(hash({8, 2, 1, 1, 3, 0}), hash({8, 2}));
  EXPECT_NE(hash({8, 2, 1, 1, 3, 0}), hash({8, 2, 1, 1, 5, 0}));
  EXPECT_NE(hash({8, 4, 1, 1, 1, 3}), hash({8, 4, 1, 1, 3, 1}));
}

std::string refusal_of_split(const StageSplit& split, int micro_batches = 4) {
  try {
    stage_plan(staged_model(split, micro_batches, PipelineOrder::one_f_one_b));
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST(StageLayers, AreRefusedWhereStagesAreLeftNone) {
  EXPECT_EQ(refusal_of_split({8, 1, 1, 1, 3, 0}),
            "first-stage-layers: found 3 on one pipeline stage, expected several stages");
  EXPECT_EQ(refusal_of_split({8, 1, 1, 1, 0, 3}),
            "last-stage-layers: found 3 on one pipeline stage, expected several stages");
  EXPECT_EQ(refusal_of_split({8, 4, 1, 1, 9, 0}),
            "first-stage-layers: found 9 of 8 layers over 4 stages, expected at least one layer on each of the others");
  EXPECT_EQ(refusal_of_split({8, 4, 1, 1, 0, 6}),
            "last-stage-layers: found 6 of 8 layers over 4 stages, expected at least one layer on each of the others");
  EXPECT_EQ(refusal_of_split({8, 4, 1, 1, 4, 3}),
            "first-stage-layers: found 4 beside last-stage-layers 3 of 8 layers over 4 "
            "stages, expected at least one layer on each of the others");
  EXPECT_EQ(refusal_of_split({8, 2, 1, 1, 4, 3}),
            "first-stage-layers: found 4 beside last-stage-layers 3 of 8 layers over 2 "
            "stages, expected all layers on the two");
  EXPECT_EQ(refusal_of_split({8, 2, 1, 1, 5, 5}),
            "first-stage-layers: found 5 beside last-stage-layers 5 of 8 layers over 2 "
            "stages, expected all layers on the two");
  EXPECT_EQ(refusal_of_split({12, 4, 2, 1, 3, 0}),
            "virtual stages: found 2 with 3 layers on stage 0, expected a multiple of 2 layers");
  EXPECT_EQ(refusal_of_split({12, 4, 2, 1, 2, 0}),
            "virtual stages: found 2 with 3 layers on stage 2, expected a multiple of 2 layers");
  EXPECT_EQ(refusal_of_split({14, 4, 2, 1, 4, 2}), "");
  EXPECT_EQ(refusal_of_split({8, 4, 1, 1, 1, 3}), "");
}

}  // namespace
}  // namespace moe
