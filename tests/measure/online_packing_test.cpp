// A training that packs its experts as it runs computes what one computes whose experts stay, and packs them when
// Lina's controller says so.
#include <atomic>
#include <gtest/gtest.h>

#include "moe/measure/layers/layer_bench.h"
#include "moe/prices/profile.h"
#include "moe/search/model_search.h"
#include "moe/train/token_source.h"

namespace moe::measure {
namespace {

constexpr int kLayers = 2;
constexpr int64_t kVocabulary = 16;

// 8 experts on 4 ranks.
ModelShape model_of(int zero) {
  const LayerShape layer{.batch = 2,
                         .seq = 32,
                         .model_dim = 32,
                         .hidden = 64,
                         .heads = 4,
                         .experts = 8,
                         .top_k = 2,
                         .dtype = DType::float64};
  ParallelShape parallel{.nodes = 2, .ranks_per_node = 2, .ep = 4};
  parallel.zero = zero;
  ModelShape model{complete(layer, parallel, Rounding::ragged), kLayers, 1};
  model.step = {true, true, OptimizerKind::adamw, false};
  add_end_tasks(model, kVocabulary);
  return model;
}

// What an emulated cluster's micro-ops take.
constexpr MicroOpTimes kAlltoallsLonger{.expert_s = 0.5e-3, .alltoall_s = 2e-3};
constexpr MicroOpTimes kExpertsLonger{.expert_s = 2e-3, .alltoall_s = 0.5e-3};

PlannedRun planned(const std::string& schedule, const ModelShape& model, int packing, const MicroOpTimes& times) {
  const Profile profile = nominal_profile(model.shape);
  const LayerPricer pricer(profile, model.shape, {});
  DegreeChoice choice;
  choice.forward = choice.backward = 2;
  choice.packing = packing;
  ModelSearch search;
  PlannedRun run;
  run.plan = search.tune(find_schedule(schedule), pricer, model, choice).plan;
  for (const Task& task : run.plan.tasks()) {
    const bool is_alltoall = task.kind == TaskKind::dispatch || task.kind == TaskKind::combine;
    run.task_seconds.push_back(is_alltoall                     ? times.alltoall_s
                               : task.kind == TaskKind::expert ? times.expert_s
                                                               : 0.5e-3);
    (task.phase == Phase::forward ? run.forward_s : run.backward_s) += run.task_seconds.back();
  }
  return run;
}

// Returns a plan that may pack twice and four times as many experts a device.
PlannedRun packed_online(const ModelShape& model, const MicroOpTimes& times) {
  PlannedRun run = planned("lina-packed", model, 1, times);
  for (const int packing : {2, 4}) run.packed.push_back(planned("lina-packed", model, packing, times));
  return run;
}

struct Trained {
  std::vector<MeasuredRun> runs;
  const MeasuredRun& stays() const { return runs[0]; }
  const MeasuredRun& packs() const { return runs[1]; }
};

// Trains the model under lina and lina-packed on an emulated cluster.
Trained trained(int steps, const MicroOpTimes& times, int zero = 0, OptimizerKind optimizer = OptimizerKind::adamw) {
  const ModelShape model = model_of(zero);
  const auto text = make_markov_source({.order = 1, .alphabet = kVocabulary, .seed = 1});
  LayerBenchSettings settings;
  settings.iterations = steps;
  settings.training = {.text = text.get(),
                       .optimizer = {.kind = optimizer, .learning_rate = 0.01, .clip_norm = 1, .steps = steps},
                       .held_out_batches = 2};
  return {measure_layer({planned("lina", model, 0, times), packed_online(model, times)}, settings).runs};
}

void expect_same_training(const Trained& all) {
  const MeasuredRun &stays = all.stays(), &packs = all.packs();
  EXPECT_EQ(stays.wrong, std::nullopt);
  EXPECT_EQ(packs.wrong, std::nullopt);
  ASSERT_EQ(packs.losses.size(), stays.losses.size());
  EXPECT_LT(stays.losses.back(), stays.losses.front() - 0.1) << "it has learned, so weights matter";
  for (size_t step = 0; step < stays.losses.size(); ++step)
    EXPECT_NEAR(packs.losses[step], stays.losses[step], 1e-11 * stays.losses[step]) << "step " << step + 1;
  EXPECT_NEAR(packs.held_out_loss, stays.held_out_loss, 1e-11 * stays.held_out_loss);
  EXPECT_TRUE(stays.packings.empty());
  EXPECT_FALSE(packs.out_of_time);
}

TEST(OnlinePacking, DoublesWhileAlltoallsTakeLonger) {
  const Trained all = trained(20, kAlltoallsLonger);
  expect_same_training(all);
  const std::vector<PackedSteps>& packings = all.packs().packings;
  ASSERT_EQ(packings.size(), 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(packings[i].packing, 1 << i);
  EXPECT_EQ(packings[0].first, 1);
  EXPECT_EQ(packings[0].steps, 10);
  EXPECT_EQ(packings[1].first, 11);
  EXPECT_EQ(packings[1].steps, 4);
  EXPECT_EQ(packings[2].first, 15);
  EXPECT_EQ(packings[2].steps, 6);
  EXPECT_EQ(all.packs().plan.shape.parallel.ep, 1);
  EXPECT_EQ(all.packs().total_s.size(), 6) << "its times are those of the last packing";
  // Weights with AdamW's two moments, 8 bytes each, of the 8 experts of 64 x 128 of the cluster's four threads: rank 1,
  // which has 2 and 3, gets 4 to 7.
  const double expert = 3 * 8.0 * 2 * 64 * 128;
  EXPECT_EQ(packings[0].moved_bytes, 0);
  EXPECT_EQ(packings[1].moved_bytes, kLayers * 4 * expert);
  EXPECT_EQ(packings[2].moved_bytes, kLayers * 4 * expert) << "the other half";
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_LT(packings[i - 1].times.expert_s, packings[i - 1].times.alltoall_s);
    // Twice as many experts: their weights, gradients and moments; the buffers of smaller groups are smaller.
    const double more = packings[i].memory_bytes - packings[i - 1].memory_bytes,
                 wanted = kLayers * (1 << i) * 4 * expert / 3;
    EXPECT_NEAR(more, wanted, 0.1 * wanted);
  }
}

TEST(OnlinePacking, StaysWhereExpertsTakeLonger) {
  const Trained all = trained(12, kExpertsLonger);
  expect_same_training(all);
  ASSERT_EQ(all.packs().packings.size(), 1);
  EXPECT_EQ(all.packs().packings[0].steps, 12);
  EXPECT_GE(all.packs().packings[0].times.expert_s, all.packs().packings[0].times.alltoall_s);
  EXPECT_EQ(all.packs().plan.shape.parallel.ep, 4);
}

TEST(OnlinePacking, MovesStatesThatReplicasShare) {
  const Trained all = trained(12, kAlltoallsLonger, 1);
  expect_same_training(all);
  EXPECT_EQ(all.packs().packings.size(), 2);
}

TEST(OnlinePacking, MovesMomentum) {
  const Trained all = trained(12, kAlltoallsLonger, 0, OptimizerKind::sgd);
  expect_same_training(all);
  EXPECT_EQ(all.packs().packings.size(), 2);
}

}  // namespace
}  // namespace moe::measure
