// Training on a GPU beside the CPU: losses, 16 bits, states that replicas share, checkpoints that go from one to the
// other.
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <iostream>

#include "moe/train/token_source.h"
#include "tests/base/error_of.h"
#include "tests/layer/cuda/test_device.h"
#include "tests/model/local_models.h"

namespace moe {
namespace {

constexpr int kSamples = 8, kSteps = 30, kLayers = 2;
constexpr int64_t kVocabulary = 16;

struct Division {
  int pp = 1, dp = 1, mp = 1, ep = 1, esp = 1, micro_batches = 1, zero = 0;
};

struct Trained {
  DType dtype = DType::float32;
  OptimizerKind optimizer = OptimizerKind::adamw;
  bool tied = false, encoder = false;
};

const TokenSource& text() {
  static const std::unique_ptr<TokenSource> kSource = make_markov_source({.order = 2, .alphabet = 16, .seed = 5});
  return *kSource;
}

Plan plan_of(const Trained& model, const Division& d) {
  LayerShape layer;
  layer.batch = kSamples / (d.dp * d.micro_batches);
  layer.seq = 8;
  layer.model_dim = 16;
  layer.hidden = 24;
  layer.heads = layer.kv_heads = 4;
  layer.experts = 4;
  layer.top_k = 2;
  layer.capacity_factor = std::nullopt;
  layer.dtype = model.dtype;
  layer.gate = "gshard";
  layer.causal = !model.encoder;
  layer.bias = model.encoder;
  if (model.encoder) layer.norm = Norm::post_layernorm;
  const LayerCase shape =
      model_case(layer, {.dp = d.dp, .mp = d.mp, .ep = d.ep, .esp = d.esp, .pp = d.pp, .zero = d.zero});
  return model_plan("fsmoe", shape, kLayers, d.micro_batches, kVocabulary + (model.encoder ? 1 : 0),
                    {true, true, model.optimizer, model.tied});
}

struct Trainee {
  Trainee(const Trained& model, const Division& d, DeviceKind device)
      : models(plan_of(model, d), text(), 7, false, device) {
    models.train({.kind = model.optimizer,
                  .learning_rate = model.optimizer == OptimizerKind::sgd ? 0.03 : 3e-3,
                  .weight_decay = 0.01,
                  .clip_norm = 0.5,
                  .warm_up_steps = 5,
                  .steps = kSteps});
  }
  LocalModels models;
};

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] / b[i] - 1));
  return worst;
}

TEST(ModelsOnDevice, LossesAreTheCpus) {
  const std::vector<std::pair<Trained, Division>> cases{
      {{}, {}},
      {{.tied = true}, {.dp = 2, .mp = 2, .ep = 2}},
      {{.optimizer = OptimizerKind::sgd}, {.pp = 2, .micro_batches = 2}},
      {{.encoder = true}, {.mp = 2, .esp = 2, .micro_batches = 2}},
      {{.dtype = DType::float64}, {.dp = 2, .zero = 1}}};
  for (const auto& [model, d] : cases) {
    const std::vector<double> here = Trainee(model, d, DeviceKind::cpu).models.run(kSteps);
    const int64_t launched = test_launches();
    const std::vector<double> there = Trainee(model, d, DeviceKind::cuda).models.run(kSteps);
    EXPECT_TRUE(test_gpu() || test_launches() > launched + int64_t{100} * kSteps) << "no kernels ran";
    const double difference = worst_difference(there, here);
    std::cout << fmt::format("{}, pp {} dp {} mp {}: losses from {:.4f} to {:.4f}, {:.1e} apart at most\n",
                             name_of(model.dtype), d.pp, d.dp, d.mp, here.front(), here.back(), difference);
    EXPECT_LT(here.back(), 0.99 * here.front()) << "it learns nothing";
    EXPECT_LE(difference, model.dtype == DType::float64 ? 1e-8 : 1e-4);
  }
}

// Weights have float32 masters: a step that is less than half of a 16-bit weight's last bit is not lost.
TEST(ModelsOnDevice, BrainFloatsLearnAsFloat32Does) {
  for (const Division& d : {Division{}, Division{.dp = 2, .mp = 2, .ep = 2, .micro_batches = 2, .zero = 1}}) {
    const std::vector<double> wide = Trainee({}, d, DeviceKind::cuda).models.run(kSteps);
    const std::vector<double> brain = Trainee({.dtype = DType::bfloat16}, d, DeviceKind::cuda).models.run(kSteps);
    std::cout << fmt::format("float32 from {:.4f} to {:.4f}, bfloat16 from {:.4f} to {:.4f}\n", wide.front(),
                             wide.back(), brain.front(), brain.back());
    EXPECT_NEAR(brain.front(), wide.front(), 0.01 * wide.front());
    EXPECT_NEAR(wide.front() - brain.back(), wide.front() - wide.back(), 0.1 * (wide.front() - wide.back()));
  }
}

TEST(ModelsOnDevice, StatesThatReplicasShareChangeNoBit) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    Trainee whole({.dtype = dtype}, {.dp = 2, .ep = 2, .micro_batches = 2}, DeviceKind::cuda);
    Trainee shared({.dtype = dtype}, {.dp = 2, .ep = 2, .micro_batches = 2, .zero = 1}, DeviceKind::cuda);
    EXPECT_EQ(shared.models.run(4), whole.models.run(4)) << name_of(dtype);
    EXPECT_TRUE(shared.models.weights() == whole.models.weights()) << name_of(dtype);
  }
}

TEST(ModelsOnDevice, CheckpointsGoFromOneDeviceToTheOther) {
  const std::string folder = testing::TempDir() + "/checkpoints-of-devices";
  std::filesystem::remove_all(folder);
  const std::vector<double> alone = Trainee({}, {}, DeviceKind::cpu).models.run(12);
  std::vector<double> losses;
  for (const auto& [d, device] : {std::pair{Division{.dp = 2, .ep = 2, .zero = 1}, DeviceKind::cuda},
                                  {Division{.mp = 2, .esp = 2}, DeviceKind::cpu},
                                  {Division{.pp = 2, .micro_batches = 2}, DeviceKind::cuda},
                                  {Division{}, DeviceKind::cuda}}) {
    Trainee trainee({}, d, device);
    if (!losses.empty()) trainee.models.read(folder);
    for (const double loss : trainee.models.run(3)) losses.push_back(loss);
    trainee.models.write(folder);
  }
  EXPECT_LE(worst_difference(losses, alone), 1e-4);
}

// 16-bit weights come back with their masters: the run goes on as if it had never stopped.
TEST(ModelsOnDevice, CheckpointsKeepMasters) {
  const std::string folder = testing::TempDir() + "/checkpoints-of-masters";
  std::filesystem::remove_all(folder);
  const Trained model{.dtype = DType::bfloat16};
  Trainee whole(model, {}, DeviceKind::cuda);
  const std::vector<double> before = whole.models.run(3);
  whole.models.write(folder);
  const std::vector<double> after = whole.models.run(3);
  Trainee later(model, {}, DeviceKind::cuda);
  later.models.read(folder);
  EXPECT_EQ(later.models.run(3), after);
  EXPECT_NE(before, after);
  EXPECT_TRUE(later.models.weights() == whole.models.weights());
}

TEST(ModelsOnDevice, Float16IsRefused) {
  const std::string why = error_of<BadInput>([] { Trainee({.dtype = DType::float16}, {}, DeviceKind::cuda); });
  EXPECT_TRUE(why.starts_with("dtype float16: gradients of models vanish")) << why;
}

// Gradients that are no numbers end the run.
TEST(ModelsOnDevice, ANormThatIsNotFiniteIsNoticed) {
  Trainee trainee({}, {}, DeviceKind::cuda);
  trainee.models.train({.kind = OptimizerKind::sgd, .learning_rate = 1e30, .clip_norm = 1e30});
  EXPECT_THROW(trainee.models.run(8), WrongResult);
}

}  // namespace
}  // namespace moe
