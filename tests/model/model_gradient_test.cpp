// The proof for models: loss and gradients of embedding, layers, norm and output projection under real plans, on real
// ranks, against autograd over the whole model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <set>

#include "moe/device/device.h"
#include "moe/measure/layers/proxy.h"
#include "moe/model/rank_model.h"
#include "moe/schedule/schedule.h"
#include "moe/train/token_source.h"
#include "tests/model/local_models.h"
#include "tests/stack/drawn_plan.h"

namespace moe {
namespace {

constexpr int64_t kVocabulary = 19;  // more than the text has, and its last one the mask where tokens are masked
int64_t points = 60;

struct Met {
  int64_t ran = 0, overflown = 0, staged = 0, interleaved = 0, masked = 0, post = 0, tied = 0, tied_stages = 0,
          biased = 0, shared_samples = 0;
  std::set<std::string> schedules, shapes, dense_shapes;
  double worst = 0, worst_loss = 0;
} met;

void prove(const Plan& plan, uint64_t seed) {
  measure::require_runs(plan);
  const auto text = make_markov_source({.order = 2, .alphabet = 16, .seed = seed});
  LocalModels models(plan, *text, seed);
  const double loss = models.run(2).back();  // the second pass finds what the first left
  const std::vector<RankCells> ranks = models.cells();
  const ModelReference reference = reference_model(
      ranks.front(), models.choices(), models.ranks().front()->model()->ends(), models.ranks().front()->first_step());
  if (!std::isfinite(reference.loss)) {
    ++met.overflown;
    return;
  }
  const double tolerance = tolerance_of(ranks.front());
  std::vector<TensorError> errors = stack_errors(models.cells(), reference.layers);
  for (const auto& rank : models.ranks())
    for (TensorError& e : end_errors(rank->model()->ends(), reference)) errors.push_back(std::move(e));
  for (const TensorError& e : errors) {
    EXPECT_LE(e.error, tolerance) << e.tensor;
    met.worst = std::max(met.worst, e.error);
  }
  EXPECT_NEAR(loss, reference.loss, tolerance * std::abs(reference.loss));
  met.worst_loss = std::max(met.worst_loss, std::abs(loss / reference.loss - 1));
  ++met.ran;
  const bool staged = plan.shape.parallel.pp > 1;
  met.staged += staged;
  met.interleaved += plan.virtual_stages > 1;
  met.masked += !plan.shape.layer.causal;
  met.post += is_post_norm(plan.shape.layer.norm);
  met.biased += plan.shape.layer.bias;
  met.tied += plan.step.tied;
  met.tied_stages += plan.step.tied && staged;
  met.schedules.insert(plan.schedule);
  const ParallelShape& p = plan.shape.parallel;
  const std::string groups = fmt::format("pp {} dp {} cp {} mp {} ep {} esp {}", p.pp, p.dp, p.cp, p.mp, p.ep, p.esp);
  met.shared_samples += p.cp > 1;
  met.shapes.insert(groups);
  if (!plan.dense.has_none(plan.layers)) met.dense_shapes.insert(groups);
}

TEST(Models, LossesAndGradientsAreAutograds) {
  const auto drawn = drawn_layers(static_cast<size_t>(2 * points), 11);
  int failures = 0;
  for (uint64_t i = 0; i < drawn.size() && met.ran < points; ++i) {
    SCOPED_TRACE(fmt::format("{}: {}", i, layer_space::text_of(drawn[i])));
    try {
      const Plan plan = drawn_plan(drawn[i], i + 1, kVocabulary);
      SCOPED_TRACE(fmt::format("{}: {} layers, {} micro-batches, {} stages", plan.schedule, plan.layers,
                               plan.micro_batches, plan.shape.parallel.pp));
      prove(plan, i + 1);
    } catch (const Unsupported&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (testing::Test::HasFailure() && ++failures == 6) break;
  }
  std::cout << fmt::format(
      "{} models, {} over two stages, {} of these with virtual ones, {} of masked tokens, {} post-norm, {} with "
      "biases, {} tied, {} of these over two stages, {} under context parallelism, {} overflown; {} schedules, {} "
      "parallel shapes; worst error {:.2e} of the largest value, of the loss {:.2e}\n",
      met.ran, met.staged, met.interleaved, met.masked, met.post, met.biased, met.tied, met.tied_stages,
      met.shared_samples, met.overflown, met.schedules.size(), met.shapes.size(), met.worst, met.worst_loss);
  EXPECT_GE(met.ran, points);
  if (points < 60) return;  // too few to meet them all
  EXPECT_GE(met.schedules.size(), 12U);
  EXPECT_GE(met.shapes.size(), 8U);
  EXPECT_GE(met.dense_shapes.size(), 6U);
  EXPECT_GT(met.staged, points / 5);
  for (const int64_t some : {met.interleaved, met.masked, met.post, met.biased, met.tied_stages, met.shared_samples})
    EXPECT_GT(some, points / 15);
}

TEST(Models, LossesAndGradientsUnderEveryScheduleAreAutograds) {
  const int64_t before = met.ran;
  LayerShape layer{.batch = 1, .seq = 6, .model_dim = 16, .hidden = 12, .heads = 4, .experts = 4, .top_k = 2};
  layer.dtype = DType::float64;
  for (const Schedule& schedule : schedules()) {
    if (!schedule.variants.empty()) continue;
    SCOPED_TRACE(schedule.name);
    try {
      prove(model_plan(std::string(schedule.name), model_case(layer, {.dp = 2, .mp = 2, .ep = 2, .esp = 2, .pp = 2}), 2,
                       2, kVocabulary),
            3);
    } catch (const Unsupported& error) {
      std::cout << fmt::format("{}: {}\n", schedule.name, error.what());
    }
  }
  EXPECT_GE(met.ran, before + 15);
}

// Whole iterations in one order, whose lanes mix passes (moe/search/wave.h).
TEST(Models, LossesAndGradientsOfWavesAreAutograds) {
  const int64_t before = met.ran, waves = points / 4;
  const auto drawn = drawn_layers(static_cast<size_t>(4 * waves), 12);
  for (uint64_t i = 0; i < drawn.size() && met.ran < before + waves && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("{}: {}", i, layer_space::text_of(drawn[i])));
    try {
      prove(drawn_wave(drawn[i], i + 1, kVocabulary).wave, i + 1);
    } catch (const Unsupported&) {
    }
  }
  EXPECT_GE(met.ran, before + waves);
}

// A model of one DP rank has no task that sums over DP; the proxy, of four ranks, has two.
TEST(Models, AProxySumsOverReplicasThatItsModelLacks) {
  LayerShape layer{.batch = 1, .seq = 64, .model_dim = 256, .hidden = 512, .heads = 8, .experts = 4};
  layer.dtype = DType::float64;
  const LayerCase nominal =
      complete(layer, {.nodes = 1, .ranks_per_node = 4, .mp = 4, .ep = 1, .esp = 4}, Rounding::ragged);
  ASSERT_EQ(nominal.parallel.dp, 1);
  for (const bool clips : {false, true}) {
    const Plan large = model_plan("fsmoe", nominal, 2, 2, 1000, {true, clips, OptimizerKind::adamw});
    const Plan plan = measure::proxy_plan(
        large, measure::proxy_case(nominal, large.degree_forward, large.degree_backward), kVocabulary);
    ASSERT_EQ(plan.shape.parallel.dp, 2);
    ASSERT_TRUE(std::ranges::none_of(plan.tasks(), [](const Task& t) { return t.kind == TaskKind::gradient; }));
    prove(plan, 5);
  }
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--points=")) moe::points = std::stol(argv[i] + 9);
  if (moe::models_device() == moe::DeviceKind::cuda && moe::gpu_count() == 0) {
    std::puts("found no GPU");
    return 77;  // CTest skips it
  }
  return RUN_ALL_TESTS();
}
