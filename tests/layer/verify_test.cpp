// Verification must be able to fail: each tensor corrupted once, on each rank; steps left out; plans of other layers.
#include "moe/layer/verify.h"

#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include "moe/layer/binding.h"
#include "tests/base/error_of.h"
#include "tests/layer/local_layers.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

LayerCase case_of(DType dtype = DType::float64, int64_t model_dim = 12, int64_t seq = 8) {
  LayerShape layer{.batch = 2, .seq = seq, .model_dim = model_dim, .hidden = 2 * model_dim, .heads = 3};
  layer.experts = 4;
  layer.dtype = dtype;
  const ParallelShape parallel{.nodes = 4, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2};
  return complete(layer, parallel, Rounding::ragged);
}

#define EXPECT_COMPLAINT(text, about) EXPECT_NE((text).find(about), std::string::npos) << (text)

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() : layers_(shape_, seed_), reference_(reference_layer(shape_, seed_)) {}
  std::string verify() {
    return error_of<WrongResult>([&] { verify_layer(layers_.ranks(), reference_); });
  }
  // Adds `by` to one element and takes it back.
  std::string verify_with(TensorView tensor, int64_t element, double by) {
    double& value = tensor.as<double>()[element];
    const double before = value;
    value += by;
    std::string text = verify();
    value = before;
    return text;
  }

  LayerCase shape_ = case_of();
  LayerSeed seed_{.seed = 21};
  LocalLayers layers_;
  LayerReference reference_;
};

TEST_F(VerifyTest, AcceptsTheLayerAndFindsEveryCorruptedTensorOnEveryRank) {
  layers_.run(plan_for(shape_, "fsmoe", 2, 3));
  ASSERT_EQ(verify(), "none");
  for (MoeLayer* rank : layers_.ranks()) {
    EXPECT_COMPLAINT(verify_with(rank->output(), 3, 1e-7), "output is off by");
    EXPECT_COMPLAINT(verify_with(rank->input_gradient(), 3, 1e-7), "input gradient is off by");
    for (const Parameter& p : rank->parameters())
      for (const int64_t element : {int64_t{0}, p.gradient.elements() - 1}) {
        EXPECT_COMPLAINT(verify_with(p.gradient, element, -1e-7), "gradient of " + p.name + " is off by");
        EXPECT_COMPLAINT(verify_with(p.gradient, element, std::numeric_limits<double>::quiet_NaN()),
                         "gradient of " + p.name + " is off by nan");
      }
  }
  EXPECT_EQ(verify(), "none");
}

TEST_F(VerifyTest, FindsStepsThatWereLeftOut) {
  const Plan plan = plan_for(shape_, "tutel", 2, 2);
  layers_.run(plan, 1);
  const std::string once = verify();
  for (const auto name : {kWq, kWk, kWv, kWo})
    EXPECT_COMPLAINT(once, fmt::format("gradient of {} is off by 1.00e+00", name));
  EXPECT_EQ(once.find("gate"), std::string::npos) << once;
  layers_.pass(plan, 1);
  const std::string unfinished = verify();
  for (const auto name : {kGateWeight, kGateNoise, kW1, kW2})
    EXPECT_COMPLAINT(unfinished, fmt::format("gradient of {} is", name));
  EXPECT_EQ(unfinished.find("wq"), std::string::npos) << unfinished;
  layers_.run(plan, 1);
  EXPECT_EQ(verify(), "none");
}

TEST_F(VerifyTest, FindsOtherWeightsAndOtherChoices) {
  const Plan plan = plan_for(shape_, "ds-moe", 1, 1);
  MoeLayer* rank = layers_.ranks()[5];
  for (const Parameter& p : rank->parameters())
    if (p.name == kW1) p.value.as<double>()[7] += 1e-6;
  layers_.run(plan);
  EXPECT_COMPLAINT(verify(), "output is off by");
  for (const Parameter& p : rank->parameters())
    if (p.name == kGateWeight)
      for (int64_t i = 0; i < p.value.elements(); ++i) p.value.as<double>()[i] *= -1;
  layers_.run(plan);
  EXPECT_COMPLAINT(verify(), "expert");
  EXPECT_COMPLAINT(verify(), "of token");
  EXPECT_COMPLAINT(error_of<WrongResult>([&] { verify_layer(layers_.ranks()); }), "of token");
}

TEST_F(VerifyTest, RefusesPlansOfOtherLayers) {
  LayerCase other = shape_;
  other.layer.hidden *= 2;
  MoeLayer& rank = *layers_.ranks().front();
  EXPECT_COMPLAINT(error_of<WrongResult>([&] { LayerBinding(rank, plan_for(other, "tutel", 1, 1)); }),
                   "the plan is for");
  Plan plan = plan_for(shape_, "tutel", 2, 2);
  plan.layers = 2;
  EXPECT_THROW(LayerBinding(rank, plan), Unsupported);
  EXPECT_COMPLAINT(error_of<WrongResult>([&] { LayerBinding(rank, plan_for(shape_, "parm-s1", 1, 1)); }),
                   "the plan's flow is fused");
  plan = plan_for(shape_, "tutel", 2, 2);
  plan.gradients.front().bytes += 8;
  EXPECT_COMPLAINT(error_of<WrongResult>([&] { LayerBinding(rank, plan); }), "gradient bytes");
}

// The softmax over one key is 1, whatever the scores: no gradient of queries and keys is left but roundings.
TEST(VerifyFloat32, GradientsThatCancelAreComparedWithTheirTerms) {
  const LayerCase shape = case_of(DType::float32, 48, 1);
  LocalLayers layers(shape, {.seed = 4});
  layers.run(plan_for(shape, "fsmoe", 1, 1));
  const LayerReference reference = reference_layer(shape, {.seed = 4});
  EXPECT_EQ(error_of<WrongResult>([&] { verify_layer(layers.ranks(), reference); }), "none");
  for (const Parameter& p : layers.ranks().front()->parameters()) {
    if (p.name != kWq && p.name != kWk) continue;
    for (const double v : reference.gradients.at(p.name)) EXPECT_NEAR(v, 0, 1e-12);
    const double size = reference.sizes.at(p.name);
    EXPECT_GT(size, 0.1) << p.name;
    float& element = p.gradient.as<float>()[5];
    const float before = element;
    element += static_cast<float>(1e-5 * size);
    EXPECT_COMPLAINT(error_of<WrongResult>([&] { verify_layer(layers.ranks(), reference); }),
                     "gradient of " + p.name + " is off by");
    element = before;
  }
}

TEST(VerifyFloat32, HoldsOnceASchedule) {
  const LayerCase shape = case_of(DType::float32, 48, 32);
  const LayerSeed seed{.seed = 4, .skew = 0.3};
  double worst = 0;
  for (const Schedule* row : any_decision::fitting(shape)) {
    const Schedule& schedule = *row;
    SCOPED_TRACE(schedule.name);
    LocalLayers layers(shape, seed, schedule.flow);
    const bool one = schedule.degrees == DegreePolicy::one;
    layers.run(plan_for(shape, schedule.name, one ? 1 : 3, one ? 1 : schedule.degrees == DegreePolicy::apart ? 2 : 3));
    EXPECT_EQ(error_of<WrongResult>([&] { verify_layer(layers.ranks()); }), "none");
    const LayerReference reference = reference_layer(shape, layers.ranks().front()->seed());
    for (const TensorError& e : layer_errors(layers.ranks(), reference)) worst = std::max(worst, e.error);
  }
  std::cout << fmt::format("float32: worst error {:.2e} of the largest value\n", worst);
}

}  // namespace
}  // namespace moe
