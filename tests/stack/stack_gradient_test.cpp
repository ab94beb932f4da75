// The proof for whole iterations: every layer's outputs, dX and dW of stacks under real plans, on real ranks, against
// autograd; over all that a layer can be made of (tests/layer/layer_space.h), 1 to 4 layers and micro-batches, 1 and 2
// stages, both pipeline orders, any decision that a schedule has.
#include <cmath>
#include <gtest/gtest.h>
#include <iostream>
#include <map>

#include "moe/stack/stack_errors.h"
#include "tests/stack/drawn_plan.h"
#include "tests/stack/local_stacks.h"

namespace moe {
namespace {

int64_t points = 120;

struct Met {
  int64_t ran = 0, staged = 0, interleaved = 0, uneven = 0, accumulated = 0, overflown = 0, dense = 0,
          shared_samples = 0, cut_samples = 0, offloaded = 0, windowed = 0;
  std::map<std::string, int64_t> schedules, shapes, dense_shapes, unsupported;
  std::map<std::string, int64_t> dense_schedules;
  std::map<int, int64_t> rings;  // by number of CP ranks
  double worst = 0;
} met;

// Without norms numbers may grow from layer to layer beyond what a type holds.
bool finite(const StackReference& reference) {
  for (const auto& layer : reference)
    for (const LayerReference& cell : layer)
      for (const auto& [name, gradient] : cell.gradients)
        for (const double v : gradient)
          if (!std::isfinite(v)) return false;
  return true;
}

void prove(const Plan& plan, const LayerSeed& seed) {
  require_stack_runs(plan);
  const StackShape shape = stack_shape(plan);
  LocalStacks stacks(shape, seed);
  stacks.poison();
  stacks.run(plan, 2);  // the second pass finds what the first left
  const std::vector<RankCells> ranks = stacks.cells();
  std::vector<std::vector<int32_t>> chosen;
  for (const RankCells& rank : ranks) chosen.push_back(own_choices(rank));
  const StackReference reference = reference_stack(ranks.front(), join_choices(chosen, shape));
  if (!finite(reference)) {
    ++met.overflown;
    return;
  }
  const double tolerance = tolerance_of(ranks.front());
  for (const TensorError& e : stack_errors(ranks, reference)) {
    EXPECT_LE(e.error, tolerance) << e.tensor;
    met.worst = std::max(met.worst, e.error);
  }
  ++met.ran;
  met.staged += shape.shape.parallel.pp > 1;
  met.interleaved += shape.virtual_stages > 1;
  met.uneven += shape.split().has_own_ends();
  met.accumulated += shape.micro_batches > 1;
  ++met.schedules[plan.schedule];
  const ParallelShape& p = plan.shape.parallel;
  const std::string groups = fmt::format("pp {} dp {} cp {} mp {} ep {} esp {}", p.pp, p.dp, p.cp, p.mp, p.ep, p.esp);
  met.shared_samples += p.cp > 1;
  if (p.ring_blocks() > 0) ++met.rings[p.cp];
  met.cut_samples += plan.parts() > 1;
  met.offloaded += p.offload != Offload::none;
  ++met.shapes[groups];
  met.windowed += plan.shape.layer.window > 0 && !plan.whole.has_none(plan.layers);
  if (plan.dense.has_none(plan.layers)) return;
  ++met.dense;
  ++met.dense_shapes[groups];
  ++met.dense_schedules[plan.schedule];
}

TEST(Stacks, GradientsAreAutograds) {
  const auto drawn = drawn_layers(static_cast<size_t>(2 * points), 5);
  int failures = 0;
  for (uint64_t i = 0; i < drawn.size() && met.ran < points; ++i) {
    SCOPED_TRACE(fmt::format("{}: {}", i, layer_space::text_of(drawn[i])));
    try {
      const Plan plan = drawn_plan(drawn[i], i + 1);
      SCOPED_TRACE(fmt::format("{} layers, {} micro-batches, {} stages", plan.layers, plan.micro_batches,
                               plan.shape.parallel.pp));
      prove(plan, {.seed = i + 1, .skew = i % 2 == 0 ? 0.0 : 2.0});
    } catch (const Unsupported& error) {
      ++met.unsupported[error.what()];
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (testing::Test::HasFailure() && ++failures == 6) break;
  }
  std::cout << fmt::format(
      "{} stacks, {} over two stages, {} of these with virtual ones, {} with unlike numbers of layers, {} of several "
      "micro-batches, {} under context parallelism, {} of these in rings of 2 and {} of 4, {} with samples in parts, "
      "{} with offloaded experts, {} with windows in some layers; {} schedules, {} parallel shapes; of these {} stacks "
      "with dense layers, {} schedules, {} shapes; worst error {:.2e} of the largest value\n",
      met.ran, met.staged, met.interleaved, met.uneven, met.accumulated, met.shared_samples, met.rings[2], met.rings[4],
      met.cut_samples, met.offloaded, met.windowed, met.schedules.size(), met.shapes.size(), met.dense,
      met.dense_schedules.size(), met.dense_shapes.size(), met.worst);
  for (const auto& [reason, count] : met.unsupported) std::cout << fmt::format("unsupported, {}: {}\n", count, reason);
  EXPECT_LT(met.overflown, points / 4);
  EXPECT_GE(met.ran, points);
  EXPECT_GE(met.schedules.size(), 15U);
  EXPECT_GE(met.shapes.size(), 10U);
  EXPECT_GT(met.staged, points / 4);
  EXPECT_GT(met.interleaved, points / 10);
  EXPECT_GT(met.uneven, points / 10);
  EXPECT_GT(met.shared_samples, points / 10);
  EXPECT_GT(met.rings[2], points / 30);
  EXPECT_GT(met.rings[4], points / 60);
  EXPECT_GT(met.cut_samples, points / 10);
  EXPECT_GT(met.offloaded, points / 5);
  EXPECT_GT(met.windowed, points / 5);
  EXPECT_GT(met.dense, points / 5);
  EXPECT_GE(met.dense_schedules.size(), 10U);
  EXPECT_GE(met.dense_shapes.size(), 10U);
  EXPECT_GT(met.accumulated, points / 2);
}

// Returns whether on some lane a pass begins before one of another micro-batch has ended.
bool mixes_passes(const Plan& plan) {
  for (const Lane& lane : plan.structure->lanes) {
    std::map<PassKey, std::pair<int, int>> spans;  // by pass: its first place in the queue, and its last
    for (int at = 0; at < std::ssize(lane.queue); ++at) {
      const Task& task = plan.tasks()[lane.queue[at]];
      if (is_of_layer(task.kind) && task.phase != Phase::step)
        spans.try_emplace(task.pass(), at, at).first->second.second = at;
    }
    for (const auto& [pass, span] : spans)
      for (const auto& [other, its] : spans)
        if (pass.micro_batch != other.micro_batch && its.first > span.first && its.first < span.second) return true;
  }
  return false;
}

// Every output, input's gradient and weight's gradient. What passes share of their memory shows none.
std::vector<std::vector<double>> results_of(const LocalStacks& stacks) {
  std::vector<std::vector<double>> results;
  const auto add = [&](TensorView t) { results.emplace_back(t.as<double>(), t.as<double>() + t.elements()); };
  for (const RankCells& rank : stacks.cells())
    for (const auto& layer : rank.layers) {
      for (const MoeLayer* cell : layer) {
        if (cell->ends()) add(cell->output());
        if (cell->begins()) add(cell->input_gradient());
      }
      for (const Parameter& p : layer.front()->parameters()) add(p.gradient);
    }
  return results;
}

// Whole iterations in one order, whose lanes mix passes: bit for bit what one pass after the other computes.
TEST(Waves, ComputeWhatPlainOrdersDo) {
  const int64_t waves = points / 5;
  const auto drawn = drawn_layers(static_cast<size_t>(4 * waves), 6);
  int64_t ran = 0, mixed = 0, in_stages = 0, unsupported = 0;
  for (uint64_t i = 0; i < drawn.size() && ran < waves && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("{}: {}", i, layer_space::text_of(drawn[i])));
    try {
      const DrawnWave plans = drawn_wave(drawn[i], i + 1);
      const Plan& wave = plans.wave;
      SCOPED_TRACE(fmt::format("{} layers, {} micro-batches", wave.layers, wave.micro_batches));
      const LayerSeed seed{.seed = i + 1, .skew = i % 2 == 0 ? 0.0 : 2.0};
      prove(wave, seed);
      LocalStacks stacks(stack_shape(wave), seed), plain(stack_shape(plans.plain), seed);
      stacks.poison();
      stacks.run(wave, 2);
      plain.run(plans.plain);
      EXPECT_EQ(results_of(stacks), results_of(plain));
      ++ran;
      mixed += mixes_passes(wave);
      in_stages += wave.shape.parallel.pp > 1;
    } catch (const Unsupported&) {
      ++unsupported;
    } catch (const WrongResult& error) {
      ADD_FAILURE() << error.what();
    }
  }
  std::cout << fmt::format("{} waves, {} of them mix passes, {} have stages; {} unsupported\n", ran, mixed, in_stages,
                           unsupported);
  EXPECT_GE(ran, waves);
  EXPECT_GE(mixed, waves / 3);  // in every second one turns restrict the order
  EXPECT_GE(in_stages, waves / 4);
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--points=")) moe::points = std::stol(argv[i] + 9);
  return RUN_ALL_TESTS();
}
