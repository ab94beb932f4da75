// Predicted steps of training: what they are made of, and rows that no plan has.
#include "commands/reproduce/training.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "commands/shared/chosen_model.h"
#include "moe/base/check.h"
#include "moe/search/model_search.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe::reproduce {
namespace {

PublishedRun small_run() {
  return {.source = "t",
          .model = "qwen3-30b-a3b",
          .gpu = "H100",
          .precision = "bf16",
          .dispatcher = "alltoall",
          .recompute = "none",
          .overlap = "none",
          .gpus = 16,
          .seq = 4096,
          .global_batch = 80,
          .micro_batch = 1,
          .pp = 2,
          .ep = 8,
          .step_s = 1};
}

TEST(KendallTau, CountsPairsThatAreNotTied) {
  const std::vector<double> measured{100, 120, 150}, same{10, 11, 12}, turned{10, 12, 11};
  EXPECT_EQ(kendall_tau(measured, same), 1);
  EXPECT_NEAR(*kendall_tau(measured, turned), 1 / 3.0, 1e-12);  // two of three pairs
  const std::vector<double> tied{100, 102, 150};
  EXPECT_EQ(kendall_tau(tied, std::vector<double>{11, 10, 12}), 1);  // 2 % apart: free
  EXPECT_EQ(kendall_tau(std::vector<double>{1}, std::vector<double>{1}), std::nullopt);
}

TEST(TrainingSteps, TokensOfAGpu) {
  PublishedRun run = small_run();
  run.global_batch = 2048;
  run.gpus = 256;
  EXPECT_NEAR(tokens_per_gpu(run, 22.42), 1461.56, 0.01);  // as XTuner prints it
}

TEST(TrainingSteps, AreWhatTheirCostsAddUpTo) {
  const PredictedStep step = predicted_step(small_run());
  ASSERT_TRUE(step.step_s) << step.reason;
  const double sum = std::accumulate(step.costs.begin(), step.costs.end(), 0.0,
                                     [](double total, const auto& cost) { return total + cost.second; });
  EXPECT_NEAR(sum, *step.step_s, 0.01 * *step.step_s);  // the sends of a stage run beside computation
  EXPECT_EQ(step.costs.size(), kStepCosts.size());
  EXPECT_GT(step.costs.at("attention"), 0);
  EXPECT_GT(step.costs.at("bubble"), 0);
}

// Returns the run's step as a plan of all of its micro-batches takes it, with so many layers and virtual stages.
double planned_whole_s(const PublishedRun& run, int layers, int virtual_stages) {
  commands::Selection selection;
  selection.cluster = "h100-8-nodes";
  selection.nodes = run.gpus / 8;
  selection.nearest = true;
  selection.layer.dp = 8, selection.layer.cp = run.cp, selection.layer.mp = 1, selection.layer.pp = 2,
  selection.layer.ep = 8;
  selection.layer.esp = 1;
  selection.layer.zero = 1;
  selection.layer.recompute = Recompute::selective;
  const Profile profile = commands::chosen_profile(selection);
  commands::ModelFlags flags;
  flags.model = run.model;
  flags.layers = layers;
  flags.micro_batches = 10;
  flags.pipeline = "1f1b";
  flags.virtual_stages = virtual_stages;
  commands::ChosenModel chosen = commands::chosen_model(flags, selection, profile);
  add_end_tasks(chosen.model, chosen.vocabulary);
  const LayerPricer pricer(profile, chosen.model.shape, commands::pricing_of(selection));
  return ModelSearch(false).tune(find_schedule("ds-moe"), pricer, chosen.model, {}).total_s();
}

// Ten micro-batches of two stages are continued from six and four.
TEST(TrainingSteps, ContinuedAreThoseReplayedWhole) {
  PublishedRun run = small_run();
  for (const int virtual_stages : {1, 4}) {
    run.vp = virtual_stages;
    const double whole_s = planned_whole_s(run, 48, virtual_stages);
    EXPECT_NEAR(*predicted_step(run).step_s, whole_s, 1e-6 * whole_s) << virtual_stages;
  }
}

// Twice the GPUs share each sample: they halve attention, and gather keys and values.
TEST(TrainingSteps, ContextParallelismIsPlanned) {
  PublishedRun run = small_run();
  const PredictedStep whole = predicted_step(run);
  run.gpus *= 2;
  run.cp = 2;
  const PredictedStep shared = predicted_step(run);
  ASSERT_TRUE(shared.step_s) << shared.reason;
  const double planned_s = planned_whole_s(run, 48, 1);
  EXPECT_NEAR(*shared.step_s, planned_s, 1e-6 * planned_s);
  EXPECT_NEAR(shared.costs.at("attention"), whole.costs.at("attention") / 2, 0.1 * whole.costs.at("attention"));
  EXPECT_EQ(whole.costs.at("tp"), 0);
  EXPECT_GT(shared.costs.at("tp"), 0);
}

// 48 layers in 8 chunks: each of the two stages waits for a quarter of what it would wait for without virtual stages,
// and for the sends between chunks.
TEST(TrainingSteps, VirtualStagesAreAPlanWithAShorterBubble) {
  PublishedRun run = small_run();
  const PredictedStep one = predicted_step(run);
  run.vp = 4;
  const PredictedStep four = predicted_step(run);
  EXPECT_NEAR(four.costs.at("bubble"), one.costs.at("bubble") / 4, 0.1 * one.costs.at("bubble"));
  EXPECT_TRUE(std::ranges::none_of(four.notes, [](const std::string& n) { return n.starts_with("virtual stages"); }));
  run.global_batch = 8 * 9;  // nine micro-batches, which two stages don't share evenly
  EXPECT_NE(predicted_step(run).reason.find("multiple of 2 micro-batches"), std::string::npos);
}

// Ten micro-batches whose pipeline is drained after each five have twice the bubble of five.
TEST(TrainingSteps, EachRunOfThePipelineHasItsBubble) {
  PublishedRun run = small_run();
  const PredictedStep at_once = predicted_step(run);
  run.pipeline_batch = 5;
  const PredictedStep drained = predicted_step(run);
  run.pipeline_batch = 0;
  run.global_batch /= 2;
  const PredictedStep half = predicted_step(run);
  EXPECT_NEAR(drained.costs.at("bubble"), 2 * half.costs.at("bubble"), 1e-9);
  EXPECT_NEAR(*drained.step_s - *at_once.step_s, drained.costs.at("bubble") - at_once.costs.at("bubble"), 1e-9);
  EXPECT_GT(drained.costs.at("bubble"), 1.5 * at_once.costs.at("bubble"));
  run.pipeline_batch = 3;
  EXPECT_NE(predicted_step(run).reason.find("pipeline_batch 3"), std::string::npos);
}

TEST(TrainingSteps, RowsNeedNoPipelineBatch) {
  const Scratch scratch;
  const std::string head =
      "source,model,gpu,gpus,precision,dispatcher,seq,global_batch,micro_batch,tp,pp,vp,cp,ep,etp,fsdp,recompute,"
      "overlap,step_s";
  const std::string row = "t,m,H100,8,bf16,deepep,4096,64,1,1,1,0,1,8,1,8,full,none,2.5";
  const auto runs = published_runs(scratch.write("runs.csv", head + '\n' + row + '\n'));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].pipeline_batch, 0);
  EXPECT_EQ(runs[0].step_s, 2.5);
  const std::string file = scratch.write("bad.csv", "source,model\nt,m\n");
  EXPECT_TRUE(error_of<BadInput>([&] { published_runs(file); }).starts_with(file + ": found no column gpu, expected"));
}

// 48 layers in 10 chunks: the bubble is that of 50 layers.
TEST(TrainingSteps, ChunksThatDontDivideTheLayersHaveTheBubbleOfMoreLayers) {
  PublishedRun run = small_run();
  const PredictedStep one = predicted_step(run);
  run.vp = 5;
  const PredictedStep five = predicted_step(run);
  EXPECT_NEAR(*five.step_s - five.costs.at("bubble"), *one.step_s - one.costs.at("bubble"), 1e-9);
  EXPECT_NEAR(five.costs.at("bubble"), one.costs.at("bubble") / 5, 0.1 * one.costs.at("bubble"));
  EXPECT_TRUE(std::ranges::any_of(five.notes, [](const std::string& n) { return n.starts_with("virtual stages"); }));
}

// Of ten micro-batches, the exchanges of nine run beside another one's computation, which hides the share of them that
// NVIDIA measured, 36.55 %.
TEST(TrainingSteps, OverlapHidesTheMeasuredShareOfExchanges) {
  for (const char* const dispatcher : {"alltoall", "deepep"}) {
    PublishedRun run = small_run();
    run.dispatcher = dispatcher;
    const PredictedStep apart = predicted_step(run);
    run.overlap = "1f1b-ep";
    const PredictedStep beside = predicted_step(run);
    EXPECT_NEAR(beside.hidden_s, 0.9 * 0.3655 * apart.costs.at("alltoall"), 1e-12) << dispatcher;
    EXPECT_NEAR(*beside.step_s, *apart.step_s - beside.hidden_s, 1e-12) << dispatcher;
  }
  PublishedRun one = small_run();
  one.global_batch = 8;  // one micro-batch, which has no other to hide behind
  one.overlap = "1f1b-ep";
  EXPECT_EQ(predicted_step(one).hidden_s, 0);
}

TEST(TrainingSteps, SayWhatNoPlanHas) {
  const auto reason = [](auto change) {
    PublishedRun run = small_run();
    change(run);
    const PredictedStep step = predicted_step(run);
    EXPECT_FALSE(step.step_s);
    return step.reason;
  };
  using R = PublishedRun;
  EXPECT_EQ(reason([](R& r) { r.precision = "fp8"; }), "no prices of fp8, only of bf16");
  EXPECT_EQ(reason([](R& r) { r.overlap = "dualpipe"; }), "no plan of overlap dualpipe");
  EXPECT_EQ(reason([](R& r) { r.dispatcher = "hybridep"; }), "no prices of dispatcher hybridep");
  EXPECT_NE(reason([](R& r) { r.global_batch = 81; }).find("no whole number"), std::string::npos);
  EXPECT_NE(reason([](R& r) { r.gpus = 10; }), "");  // no whole nodes
  EXPECT_NE(reason([](R& r) { r.gpu = "TPU"; }).find("tpu-8-nodes"), std::string::npos);
  EXPECT_NE(reason([](R& r) { r.model = "no-such-model"; }).find("no-such-model"), std::string::npos);
}

TEST(TrainingSteps, ThatArePublishedAreAllPredicted) {
  for (const PublishedRun& run : published_runs("")) {
    const PredictedStep step = predicted_step(run);
    EXPECT_TRUE(step.step_s) << run.model << " on " << run.gpus << ": " << step.reason;
  }
}

}  // namespace
}  // namespace moe::reproduce
