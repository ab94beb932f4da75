// Proofs share their references, and measuring keeps to its time.
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/store/store.h"
#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/proof.h"
#include "moe/measure/layers/training.h"
#include "moe/measure/ops/op_bench.h"
#include "moe/schedule/model_plan.h"
#include "tests/measure/host_cluster.h"
#include "tests/schedule/any_decision.h"

namespace moe::measure {
namespace {

LayerCase case_of(int64_t batch) {
  const LayerShape layer{
      .batch = batch, .seq = 32, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 2};
  return complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
}

std::vector<PlannedRun> runs_of(const std::vector<std::string>& schedules, const LayerCase& shape) {
  std::vector<PlannedRun> runs;
  for (const std::string& name : schedules) {
    const Schedule& schedule = find_schedule(name);
    PlannedRun& run = runs.emplace_back();
    run.plan = build_plan(schedule, shape, any_decision::any_decision(schedule, shape, 1, 4));
  }
  return runs;
}

LayerBenchSettings unpaced() {
  LayerBenchSettings settings;
  settings.emulated = false;
  return settings;
}

TEST(References, SchedulesOfOneCaseShareTheirs) {
  LayerBenchSettings settings = unpaced();
  settings.check_only = true;
  const LayerMeasurement alike = measure_layer(runs_of({"ds-moe", "tutel", "fsmoe"}, case_of(2)), settings);
  EXPECT_EQ(alike.references, 1);
  for (const MeasuredRun& run : alike.runs) {
    EXPECT_EQ(run.wrong, std::nullopt);
    EXPECT_LT(run.worst_error, 2e-5);
    EXPECT_GT(run.worst_error, 0);
  }
  std::vector<PlannedRun> different = runs_of({"tutel"}, case_of(2));
  different.push_back(runs_of({"tutel"}, case_of(4)).front());
  const LayerMeasurement apart = measure_layer(different, settings);
  EXPECT_EQ(apart.references, 2);
  for (const MeasuredRun& run : apart.runs) EXPECT_EQ(run.wrong, std::nullopt);
}

// On several threads experts' products are batches (math.h).
TEST(References, ProveExpertsOnTwoThreads) {
  for (const Ffn ffn : {Ffn::gpt, Ffn::mixtral})
    for (const bool bias : {false, true}) {
      LayerCase shape = case_of(2);
      shape.layer.ffn = ffn;
      shape.layer.bias = bias;
      shape.layer.experts = 8;  // four on a rank
      shape = complete(shape.layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
      LayerBenchSettings settings = unpaced();
      settings.check_only = true;
      settings.ranks.threads = 2;
      for (const MeasuredRun& run : measure_layer(runs_of({"ds-moe", "fsmoe", "fsmoe-dw"}, shape), settings).runs) {
        EXPECT_EQ(run.wrong, std::nullopt);
        EXPECT_LT(run.worst_error, 2e-5);
      }
    }
}

TEST(References, AreTheSameInAnotherProcess) {
  const LayerCase shape = case_of(2);
  ModelReference reference;
  reference.layers.push_back({reference_layer(shape, {.seed = 3})});
  reference.loss = 0.5;
  reference.gradients["embedding"] = {1, -0.0, 3e-300};
  reference.sizes["embedding"] = 7;
  const ModelReference copy = unpack(pack(reference));
  const LayerReference &from = reference.layers.front().front(), &to = copy.layers.front().front();
  EXPECT_EQ(to.output, from.output);
  EXPECT_EQ(to.input_gradient, from.input_gradient);
  EXPECT_EQ(to.gradients, from.gradients);
  EXPECT_EQ(to.choices, from.choices);
  EXPECT_EQ(to.auxiliary, from.auxiliary);
  EXPECT_EQ(to.sizes, from.sizes);
  EXPECT_EQ(copy.loss, 0.5);
  EXPECT_EQ(copy.gradients, reference.gradients);
  EXPECT_EQ(copy.sizes, reference.sizes);
  const std::string bytes = pack(reference);
  EXPECT_THROW(unpack(bytes.substr(0, bytes.size() - 1)), WrongResult);
}

// Ranks of a world of processes, which are threads here.
TEST(References, OneProcessOfAMachineComputesThemHoweverLongItTakes) {
  constexpr int kRanks = 3;
  constexpr double kTimeoutS = 1;
  const store::Server server{{"127.0.0.1", 0}};
  std::atomic<int> calls = 0;
  const auto rank = [&](int number) {
    Launch launch;
    launch.host = server.address().host;
    launch.port = server.address().port;
    launch.served = true;
    launch.run = "references/";
    launch.rank = number;
    launch.ranks = kRanks;
    GlooWorld world(launch, {"1.0", "test"}, kTimeoutS, 30);
    References references(world, DeviceKind::cpu, kTimeoutS);
    References::Key key;
    for (const double loss : {1.5, 1.5, 2.5}) {
      key.tie = loss;
      const ModelReference& found = references.find_or_compute(key, [&] {
        ++calls;
        std::this_thread::sleep_for(std::chrono::duration<double>(2.5 * kTimeoutS));
        ModelReference reference;
        reference.loss = loss;
        return reference;
      });
      EXPECT_EQ(found.loss, loss);
    }
    EXPECT_EQ(references.computed(), 2);
  };
  {
    std::vector<std::jthread> ranks;
    for (int number = 0; number < kRanks; ++number) ranks.emplace_back(rank, number);
  }
  EXPECT_EQ(calls, 2) << "one of each key";
}

TEST(MeasuringTime, LatePassesAreFewAndSaySo) {
  LayerBenchSettings settings = unpaced();
  settings.max_timed_s = 1e-9;
  settings.fill_s = 1;
  for (const MeasuredRun& run : measure_layer(runs_of({"ds-moe", "tutel"}, case_of(2)), settings).runs) {
    EXPECT_EQ(run.total_s.size(), kMinPasses);
    EXPECT_TRUE(run.out_of_time);
    EXPECT_EQ(run.repeats, 0);
  }
  settings.max_timed_s = 0;
  settings.fill_s = 0;
  for (const MeasuredRun& run : measure_layer(runs_of({"ds-moe", "tutel"}, case_of(2)), settings).runs) {
    EXPECT_EQ(run.total_s.size(), kPasses);
    EXPECT_FALSE(run.out_of_time);
  }
}

// A training that nobody asked to stop is out of time like any other run.
TEST(MeasuringTime, LateStepsOfATrainingAreFewAndSaySo) {
  ModelShape model{case_of(2), 1, 1};
  model.step = {true, true, OptimizerKind::adamw, false};
  add_end_tasks(model, 16);
  ModelDecision decision;
  decision.backwards.resize(1);
  PlannedRun planned;
  planned.plan = build_model_plan(find_schedule("tutel"), model, decision);
  const auto text = make_markov_source({.order = 1, .alphabet = 16, .seed = 1});
  std::atomic<bool> stop = false;
  LayerBenchSettings settings = unpaced();
  settings.training = {.text = text.get(), .stop = &stop};
  settings.max_timed_s = 1e-9;
  const MeasuredRun run = measure_layer({planned}, settings).runs.front();
  EXPECT_EQ(run.losses.size(), kMinPasses);
  EXPECT_EQ(run.total_s.size(), kMinPasses);
  EXPECT_TRUE(run.out_of_time);
  stop = true;
  EXPECT_THROW(measure_layer({planned}, settings), TrainingStopped);
}

// Counts the samples of every case, and how often the sink was asked for more.
struct Sampled {
  std::vector<size_t> samples;
  int out_of_time = 0, asked = 0;
};

Sampled sampled(double max_s) {
  OpSizes sizes;
  sizes.begin = 1024;
  sizes.end = 4096;
  std::vector<OpCase> cases = real_cases(host_cluster(), "local", sizes);
  std::erase_if(cases, [](const OpCase& c) { return c.op == Op::gemm; });
  OpSettings settings;
  settings.max_s = max_s;
  std::vector<size_t> open(cases.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  Sampled found;
  const auto done = [&](const OpCase&, const OpResult& result) {
    found.samples.push_back(result.seconds.size());
    found.out_of_time += result.out_of_time;
    EXPECT_EQ(result.wrong.count, 0);
  };
  const auto again = [&](std::span<const size_t> series) {
    return ++found.asked == 1 ? std::vector<size_t>(series.begin(), series.begin() + 1) : std::vector<size_t>();
  };
  bench_ops({}, cases, settings, {done, again}, open);
  return found;
}

TEST(MeasuringTime, LateOpsHaveTheFewestSamplesAndAreNotTimedAgain) {
  const Sampled late = sampled(1e-9), any_time = sampled(0);
  EXPECT_EQ(late.samples, std::vector<size_t>(18, kMinSamples));  // four ops and two networks' sends, of three sizes
  EXPECT_EQ(late.out_of_time, 18);
  EXPECT_EQ(any_time.samples, std::vector<size_t>(19, 5));  // one of them twice
  EXPECT_EQ(any_time.out_of_time, 0);
}

}  // namespace
}  // namespace moe::measure
