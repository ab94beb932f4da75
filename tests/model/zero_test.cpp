// ZeRO 1: optimizer states that replicas share change no loss and no weight, take a share of the memory, and go on in
// other shapes.
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

#include "moe/plan/memory.h"
#include "moe/train/token_source.h"
#include "tests/model/local_models.h"

namespace moe {
namespace {

constexpr int kSamples = 8, kSteps = 8, kLayers = 3;
constexpr int64_t kVocabulary = 16;

struct Division {
  int pp, dp, mp, ep, esp, zero;
  int micro_batches = 2;
  int64_t seq = 8;
  int cp = 1;
};

std::string text_of(const Division& d) {
  return fmt::format("pp {} dp {} mp {} ep {} esp {}, ZeRO {}, {} micro-batches", d.pp, d.dp, d.mp, d.ep, d.esp, d.zero,
                     d.micro_batches);
}

LayerCase case_of(const Division& d) {
  LayerShape layer;
  layer.batch = kSamples / (d.dp * d.micro_batches);
  layer.seq = d.seq;
  layer.model_dim = 18;  // no multiple of 4 replicas
  layer.hidden = 24;
  layer.shared_hidden = 8;
  layer.heads = layer.kv_heads = 2;
  layer.experts = 4;
  layer.capacity_factor = std::nullopt;
  layer.dtype = DType::float64;
  layer.gate = "switch";
  layer.top_k = 1;
  return model_case(layer, {.dp = d.dp, .mp = d.mp, .ep = d.ep, .esp = d.esp, .pp = d.pp, .cp = d.cp, .zero = d.zero});
}

const TokenSource& text() {
  static const std::unique_ptr<TokenSource> source = make_markov_source({.order = 2, .alphabet = 16, .seed = 5});
  return *source;
}

const OptimizerSettings kSettings{
    .learning_rate = 3e-3, .weight_decay = 0.01, .clip_norm = 0.05, .warm_up_steps = 2, .steps = kSteps};

struct Trainee {
  explicit Trainee(const Division& d, bool step_outside_pass = false, const std::string& schedule = "fsmoe")
      : plan(model_plan(schedule, case_of(d), kLayers, d.micro_batches, kVocabulary)),
        models(plan, text(), 7, step_outside_pass) {
    const int64_t before = tensor_memory.live_bytes;
    models.train(kSettings);
    states_bytes = tensor_memory.live_bytes - before;
  }
  int64_t gathering_tasks() const {
    return std::ranges::count_if(plan.tasks(), [](const Task& task) { return gathers_weights(task.kind); });
  }
  Plan plan;
  LocalModels models;
  int64_t states_bytes = 0;
};

TEST(Zero, ChangesNoBitOfLossesAndWeights) {
  for (const Division& none :
       {Division{1, 2, 1, 1, 1, 0}, Division{1, 4, 1, 2, 1, 0}, Division{1, 2, 2, 2, 1, 0}, Division{2, 2, 1, 1, 1, 0},
        Division{1, 1, 2, 2, 1, 0}, Division{1, 2, 2, 2, 1, 0, 1, 1},  // one place: the other MP rank has none
        Division{1, 2, 1, 2, 1, 0, 1, 8, 2}}) {
    Division sharded = none;
    sharded.zero = 1;
    SCOPED_TRACE(text_of(sharded));
    Trainee whole(none), shared(sharded);
    const int64_t groups = (none.dp > 1 ? 1 : 0) + (case_of(none).parallel.edp > 1 ? 1 : 0);
    const int64_t alike = none.dp > 1 ? none.pp + 2 : 0;  // gates and norms of a stage; the ends
    EXPECT_EQ(shared.gathering_tasks(), groups * kLayers + alike);
    EXPECT_EQ(whole.gathering_tasks(), 0);
    const std::vector<double> losses = whole.models.run(kSteps);
    EXPECT_LT(losses.back(), losses.front());
    EXPECT_EQ(shared.models.run(kSteps), losses);
    EXPECT_TRUE(shared.models.weights() == whole.models.weights());
    EXPECT_EQ(shared.models.held_out_loss(2), whole.models.held_out_loss(2));
  }
}

// One rank sums nothing. The others sum over DP, EDP and the stage, clip by a norm of all ranks, and share states out.
TEST(Zero, LossesAreThoseOfOneRank) {
  const std::vector<double> alone = Trainee({1, 1, 1, 1, 1, 0}).models.run(kSteps);
  for (const Division& d : {Division{1, 4, 1, 2, 1, 0}, Division{1, 4, 1, 2, 1, 1}, Division{1, 4, 1, 1, 1, 0},
                            Division{1, 4, 1, 1, 1, 1}, Division{1, 2, 2, 2, 1, 1}, Division{1, 1, 2, 2, 1, 0},
                            Division{2, 2, 1, 1, 1, 1}, Division{2, 1, 2, 1, 2, 0}}) {
    SCOPED_TRACE(text_of(d));
    const std::vector<double> losses = Trainee(d).models.run(kSteps);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i] / alone[i], 1, 1e-12) << "step " << i;
  }
}

// As on an emulated cluster, where the plan's gathers come before the step.
TEST(Zero, ChangesNoBitWhereStepsAreApart) {
  Trainee whole({1, 4, 1, 2, 1, 0}, true), shared({1, 4, 1, 2, 1, 1}, true);
  EXPECT_EQ(shared.models.run(4), whole.models.run(4));
  EXPECT_TRUE(shared.models.weights() == whole.models.weights());
}

// Lina's packed experts have sums over EDP in the plan, as well as gathers.
TEST(Zero, RunsUnderSchedulesThatSumExpertsInThePlan) {
  for (const auto& [schedule, sums] : {std::pair{"ds-moe", false}, {"lina-packed", true}}) {
    Trainee whole({1, 4, 1, 2, 1, 0}, false, schedule), shared({1, 4, 1, 2, 1, 1}, false, schedule);
    const auto is_sum = [](const Task& task) {
      return task.kind == TaskKind::expert_gradient && task.phase == Phase::backward;
    };
    EXPECT_EQ(std::any_of(shared.plan.tasks().begin(), shared.plan.tasks().end(), is_sum), sums) << schedule;
    EXPECT_EQ(shared.models.run(3), whole.models.run(3)) << schedule;
    EXPECT_TRUE(shared.models.weights() == whole.models.weights()) << schedule;
  }
}

// Each state is on one of the ranks that hold its weight alike, and all of it on one rank without ZeRO.
TEST(Zero, StatesAreSharedOutWhole) {
  for (const Division& d : {Division{1, 4, 1, 2, 1, 1}, Division{1, 2, 2, 2, 1, 1}, Division{2, 2, 1, 1, 1, 1}}) {
    SCOPED_TRACE(text_of(d));
    Division none = d;
    none.zero = 0;
    const Trainee whole(none), shared(d);
    const ParallelShape p = case_of(d).parallel;
    int64_t expected = 0, all = 0, most = 0;
    for (const auto& rank : whole.models.ranks()) {
      for (const Parameter& w : rank->model()->parameters()) {
        const int64_t bytes = 2 * w.value.bytes();  // two moments
        const int replicas = w.summed_over == SummedOver::edp ? p.edp : p.dp;
        ASSERT_EQ(bytes % replicas, 0);
        expected += bytes / replicas;
        all += bytes;
      }
    }
    EXPECT_EQ(whole.states_bytes, all);
    EXPECT_EQ(shared.states_bytes, expected);
    for (const auto& rank : shared.models.ranks()) {
      int64_t own = 0;
      for (const ShardedTensor& t : rank->model()->stored_tensors())
        own += t.name.ends_with(".moment1") || t.name.ends_with(".moment2") ? t.data.bytes() : 0;
      most = std::max(most, own);
    }
    // The estimate knows neither places nor the final norm, and rows may not divide.
    MemoryRequest request = memory_request(shared.plan), before = memory_request(whole.plan);
    const double falls = estimate_memory(request).optimizer / estimate_memory(before).optimizer;
    const double fell = static_cast<double>(shared.states_bytes) / static_cast<double>(whole.states_bytes);
    EXPECT_NEAR(fell, falls, 0.05);
    EXPECT_NEAR(static_cast<double>(most), estimate_memory(request).optimizer, 0.15 * static_cast<double>(most));
  }
}

TEST(Zero, GoesOnFromCheckpointsOfOtherShapesAndWithoutIt) {
  const std::string folder = testing::TempDir() + "/checkpoints-of-zero";
  std::filesystem::remove_all(folder);
  const std::vector<double> alone = Trainee({1, 1, 1, 1, 1, 0}).models.run(kSteps);
  const std::vector<Division> divisions{{1, 4, 1, 2, 1, 1}, {1, 4, 1, 2, 1, 1}, {1, 2, 2, 2, 1, 1}, {1, 2, 1, 1, 1, 0},
                                        {2, 2, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 0}, {1, 4, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}};
  std::vector<double> losses;
  for (const Division& d : divisions) {
    SCOPED_TRACE(text_of(d));
    Trainee trainee(d);
    if (!losses.empty()) trainee.models.read(folder);
    for (const double loss : trainee.models.run(1)) losses.push_back(loss);
    trainee.models.write(folder);
  }
  ASSERT_EQ(losses.size(), alone.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i] / alone[i], 1, 1e-8) << "step " << i;
}

}  // namespace
}  // namespace moe
