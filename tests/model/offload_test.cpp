// Offloaded experts: no loss, weight or checkpoint changes, whatever the window fetches and the host steps.
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

#include "moe/schedule/model_plan.h"
#include "moe/train/token_source.h"
#include "tests/model/local_models.h"
#include "tests/properties/any_model.h"

namespace moe {
namespace {

constexpr int kSteps = 4;
constexpr int64_t kVocabulary = 16;

struct Division {
  std::string schedule = "fsmoe";
  int pp = 1, dp = 1, mp = 1, ep = 1, esp = 1, zero = 0;
  int micro_batches = 2;
  Recompute recompute = Recompute::none;
  bool clips = true;
  PipelineOrder order = PipelineOrder::one_f_one_b;
  int virtual_stages = 1;
  OptimizerKind optimizer = OptimizerKind::adamw;
  DType dtype = DType::float64;
  int layers = 6;  // the second one dense, unless there are virtual stages
};

std::string text_of(const Division& d) {
  return fmt::format("{}, pp {} x {} dp {} mp {} ep {} esp {}, ZeRO {}, {} micro-batches, recompute {}, clips {}, {}",
                     d.schedule, d.pp, d.virtual_stages, d.dp, d.mp, d.ep, d.esp, d.zero, d.micro_batches,
                     name_of(d.recompute), d.clips, name_of(d.dtype));
}

Plan plan_of(const Division& d, Offload offload) {
  LayerShape layer{.batch = 8 / (d.dp * d.micro_batches),
                   .seq = 8,
                   .model_dim = 16,
                   .hidden = 24,
                   .shared_hidden = 8,
                   .heads = 2,
                   .experts = 4,
                   .top_k = 1,
                   .capacity_factor = std::nullopt,
                   .dtype = d.dtype};
  layer.gate = "switch";
  ModelShape model;
  model.shape = model_case(layer, {.dp = d.dp,
                                   .mp = d.mp,
                                   .ep = d.ep,
                                   .esp = d.esp,
                                   .pp = d.pp,
                                   .zero = d.zero,
                                   .recompute = d.recompute,
                                   .offload = offload});
  model.layers = d.layers;
  if (d.virtual_stages == 1) model.dense = DenseLayers{{{false, true}}, 24}.first(d.layers);
  model.micro_batches = d.micro_batches;
  model.order = d.order;
  model.virtual_stages = d.virtual_stages;
  model.step = {true, d.clips, d.optimizer};
  add_end_tasks(model, kVocabulary);
  const Schedule& schedule = find_schedule(d.schedule);
  return build_model_plan(schedule, model, any_model::any_model_decision(schedule, model, 3));
}

const TokenSource& text() {
  static const std::unique_ptr<TokenSource> source = make_markov_source({.order = 2, .alphabet = 16, .seed = 5});
  return *source;
}

struct Trainee {
  Trainee(const Division& d, Offload offload, bool step_outside_pass = false)
      : plan(plan_of(d, offload)), models(plan, text(), 7, step_outside_pass) {
    models.train({.kind = d.optimizer, .learning_rate = 3e-3, .weight_decay = 0.01, .clip_norm = d.clips ? 0.05 : 0});
  }
  Plan plan;
  LocalModels models;
};

const std::vector<Division>& divisions() {
  static const std::vector<Division> all{
      {.dp = 2, .ep = 2},
      {.dp = 4, .ep = 2, .micro_batches = 2, .clips = false},
      {.schedule = "lina-packed", .dp = 4, .ep = 2},
      {.schedule = "monta-o3", .dp = 2, .mp = 2, .ep = 2, .esp = 2, .clips = false},
      {.schedule = "parm-s1", .dp = 2, .mp = 2, .ep = 2, .esp = 2},
      {.schedule = "fsmoe-dw", .dp = 2, .ep = 2, .zero = 1, .recompute = Recompute::full},
      {.schedule = "tutel", .pp = 2, .dp = 1, .mp = 2, .ep = 1, .esp = 2, .micro_batches = 4},
      {.pp = 2, .dp = 1, .mp = 1, .micro_batches = 4, .clips = false, .virtual_stages = 2, .layers = 8},
      {.schedule = "ds-moe", .pp = 2, .dp = 2, .ep = 2, .order = PipelineOrder::gpipe, .optimizer = OptimizerKind::sgd},
      {.dp = 2, .ep = 2, .dtype = DType::float32}};
  return all;
}

TEST(Offload, ChangesNoBitOfLossesAndWeights) {
  for (const Division& d : divisions()) {
    SCOPED_TRACE(text_of(d));
    Trainee whole(d, Offload::none), offloaded(d, Offload::experts);
    EXPECT_EQ(std::ranges::count(whole.plan.tasks(), TaskKind::fetch, &Task::kind), 0);
    EXPECT_GT(std::ranges::count(offloaded.plan.tasks(), TaskKind::fetch, &Task::kind), 6);
    const std::vector<double> losses = whole.models.run(kSteps);
    EXPECT_NE(losses.back(), losses.front()) << "the weights change";
    EXPECT_EQ(offloaded.models.run(kSteps), losses);
    EXPECT_TRUE(offloaded.models.weights() == whole.models.weights());
    EXPECT_EQ(offloaded.models.held_out_loss(2), whole.models.held_out_loss(2));
  }
}

// As on an emulated cluster.
TEST(Offload, ChangesNoBitWhereStepsAreApart) {
  Trainee whole({.dp = 4, .ep = 2}, Offload::none, true), offloaded({.dp = 4, .ep = 2}, Offload::experts, true);
  EXPECT_EQ(offloaded.models.run(kSteps), whole.models.run(kSteps));
  EXPECT_TRUE(offloaded.models.weights() == whole.models.weights());
}

// The experts' compute with what a fetch copied: without fetches, they have zeros.
TEST(Offload, ExpertsReadTheWindow) {
  Trainee offloaded({.dp = 2, .ep = 2}, Offload::experts);
  const auto gradients = [&] {
    std::vector<double> all;
    for (const RankCells& rank : offloaded.models.cells())
      for (const auto& layer : rank.layers)
        for (const Parameter& p : layer.front()->parameters())
          if (p.summed_over == SummedOver::edp)
            all.insert(all.end(), p.gradient.as<double>(), p.gradient.as<double>() + p.gradient.elements());
    return all;
  };
  const double before = offloaded.models.run(1).front();
  EXPECT_TRUE(std::ranges::any_of(gradients(), [](double g) { return g != 0; }));
  offloaded.models.zero({".w2"});  // of the host's experts, of dense layers and shared experts
  EXPECT_NE(offloaded.models.run(1).front(), before);
}

TEST(Offload, GoesOnFromCheckpointsWithAndWithoutIt) {
  const std::string folder = testing::TempDir() + "/checkpoints-of-offload";
  std::filesystem::remove_all(folder);
  const Division d{.dp = 2, .ep = 2};
  const std::vector<double> whole = Trainee(d, Offload::none).models.run(kSteps);
  std::vector<double> losses;
  for (const Offload offload : {Offload::experts, Offload::none, Offload::experts, Offload::experts}) {
    Trainee trainee(d, offload);
    if (!losses.empty()) trainee.models.read(folder);
    losses.push_back(trainee.models.run(1).front());
    trainee.models.write(folder);
  }
  EXPECT_EQ(losses, whole);
}

}  // namespace
}  // namespace moe
