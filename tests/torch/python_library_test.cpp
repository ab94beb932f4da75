// The classes that Python's moetune.torch uses, as torch finds them; tests/python/torch_test.py uses them from Python.
#include <ATen/core/ivalue.h>
#include <algorithm>
#include <gtest/gtest.h>
#include <torch/custom_class.h>
#include <torch/library.h>
#include <torch/torch.h>

namespace moe {
namespace {

using c10::IValue;
using Tensors = std::vector<torch::Tensor>;

IValue call(const IValue& object, const std::string& method, std::vector<IValue> arguments = {}) {
  arguments.insert(arguments.begin(), object);
  object.toObject()->type()->getMethod(method).run(arguments);
  return arguments.empty() ? IValue() : arguments.front();
}

IValue make(const std::string& name, std::vector<IValue> arguments) {
  const auto type = torch::getCustomClass("__torch__.torch.classes.moetune." + name);
  IValue object(c10::ivalue::Object::create(c10::StrongTypePtr(nullptr, type), 1));
  call(object, "__init__", std::move(arguments));
  return object;
}

IValue alone() { return make("Ranks", {0, 1, "", "", 0, 60.0}); }

// Stands for the operators that Python implements: the gate `switch`, whose weight is the only parameter.
struct Called {
  torch::Tensor hidden, weight, weights;
} called;

std::tuple<torch::Tensor, torch::Tensor> gate_forward(int64_t, const torch::Tensor& hidden, at::TensorList parameters,
                                                      bool) {
  const torch::AutoGradMode with_graph(true);
  called.hidden = hidden.detach().requires_grad_();
  called.weight = parameters.front().detach().requires_grad_();
  const auto logits = called.hidden.mm(called.weight.t());
  const auto choices = std::get<1>(logits.topk(2));
  called.weights = logits.softmax(-1).gather(1, choices);
  return {choices, called.weights.detach()};
}

std::vector<torch::Tensor> gate_backward(int64_t, const torch::Tensor& d_weights) {
  return torch::autograd::grad({called.weights}, {called.hidden, called.weight}, {d_weights});
}

TORCH_LIBRARY_IMPL(moetune, CompositeExplicitAutograd, library) {
  library.impl("gate_forward", gate_forward);
  library.impl("gate_backward", gate_backward);
}

IValue layer_of(const std::string& options) {
  return make("Layer", {alone(), options, 0, std::vector<std::string>{}, Tensors{}, std::vector<std::string>{}});
}

constexpr auto kTiny = R"({"batch": 2, "seq": 8, "model_dim": 16, "hidden": 24, "heads": 4, "experts": 4,
                           "capacity_factor": null, "dtype": "float64", "schedule": "fsmoe", "degree_forward": 2})";

TEST(PythonLibrary, RunsALayer) {
  const IValue layer = layer_of(kTiny);
  Tensors weights = call(layer, "weights").toTensorVector();
  for (auto& weight : weights) weight.set_requires_grad(true);
  ASSERT_EQ(call(layer, "names").toList().size(), weights.size());
  const auto x = torch::randn({16, 16}, torch::kDouble).set_requires_grad(true);
  const auto y = call(layer, "forward", {x, weights, true}).toTensor();
  y.square().sum().backward();
  EXPECT_GT(x.grad().abs().sum().item<double>(), 0);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(weights[i].grad().sizes(), weights[i].sizes());
    const auto axes = call(layer, "shards", {static_cast<int64_t>(i)}).toList();
    ASSERT_EQ(axes.size(), static_cast<size_t>(weights[i].dim()));
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const std::vector<int64_t> whole{0, weights[i].size(static_cast<int64_t>(axis)),
                                       weights[i].size(static_cast<int64_t>(axis))};
      EXPECT_EQ(axes.get(axis).toIntVector(), whole);
    }
  }
  EXPECT_EQ(call(layer, "tokens").toIntVector(), (std::vector<int64_t>{0, 16, 16}));
  EXPECT_NE(call(layer, "line").toStringRef().find("fsmoe, r_f 2, r_b 1"), std::string::npos);
}

TEST(PythonLibrary, ATrainingForwardHasNoiseOfItsOwn) {
  const IValue layer = layer_of(kTiny);
  const Tensors weights = call(layer, "weights").toTensorVector();
  const auto x = torch::randn({16, 16}, torch::kDouble);
  const auto pass = [&](bool training) { return call(layer, "forward", {x, weights, training}).toTensor(); };
  EXPECT_TRUE(torch::equal(pass(false), pass(false)));
  EXPECT_FALSE(torch::equal(pass(true), pass(true)));
}

TEST(PythonLibrary, AGateOfPythonsIsTheNamedOne) {
  const std::string options = std::string(kTiny).insert(1, R"("gate": "switch", )");
  const IValue named = layer_of(options);
  Tensors weights = call(named, "weights").toTensorVector();
  const auto names = call(named, "names").to<std::vector<std::string>>();
  const auto x = torch::randn({16, 16}, torch::kDouble);
  std::vector<Tensors> gradients;
  const auto pass = [&](const IValue& layer) {
    for (auto& weight : weights) weight = weight.detach().set_requires_grad(true);
    const auto own = x.clone().set_requires_grad(true);
    const auto y = call(layer, "forward", {own, weights, true}).toTensor();
    y.square().sum().backward();
    gradients.push_back({y.detach(), own.grad()});
    for (const auto& weight : weights) gradients.back().push_back(weight.grad());
  };
  pass(named);
  const auto gate = std::ranges::find(names, "gate");
  ASSERT_NE(gate, names.end());
  const Tensors own{weights[gate - names.begin()].detach().clone()};
  const IValue layer = make(
      "Layer", {alone(), options, 1, std::vector<std::string>{"gate"}, own, std::vector<std::string>{"gate/weight"}});
  pass(layer);
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(torch::allclose(gradients[0][i], gradients[1][i], 1e-12, 1e-12)) << i;
}

// A layer whose W_o is zero has no attention either; its residuals add its input.
TEST(PythonLibrary, WithoutAttentionALayerIsTheRestOfIt) {
  const std::string options = std::string(kTiny).insert(1, R"("gate": "switch", "norm": "none", "rope_theta": 100, )");
  const IValue whole = layer_of(options);
  const IValue part = layer_of(std::string(options).insert(1, R"("attention": false, "residual": false, )"));
  Tensors weights = call(whole, "weights").toTensorVector();
  const auto names = call(whole, "names").to<std::vector<std::string>>();
  const auto own = call(part, "names").to<std::vector<std::string>>();
  EXPECT_EQ(own, (std::vector<std::string>{"gate", "w1", "w2"}));
  Tensors own_weights;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "wo") weights[i].zero_();
    if (std::ranges::find(own, names[i]) != own.end())
      own_weights.push_back(weights[i].clone().set_requires_grad(true));
    weights[i].set_requires_grad(true);
  }
  const auto x = torch::randn({2, 8, 16}, torch::kDouble).set_requires_grad(true), own_x = x.detach().clone();
  own_x.set_requires_grad(true);
  const auto expected = call(whole, "forward", {x, weights, true}).toTensor() - x;
  const auto y = call(part, "forward", {own_x, own_weights, true}).toTensor();
  EXPECT_TRUE(torch::allclose(y, expected, 1e-12, 1e-12));
  expected.square().sum().backward();
  y.square().sum().backward();
  EXPECT_TRUE(torch::allclose(own_x.grad(), x.grad(), 1e-12, 1e-12));
  for (size_t i = 0; i < own.size(); ++i) {
    const auto place = static_cast<size_t>(std::ranges::find(names, own[i]) - names.begin());
    EXPECT_TRUE(torch::allclose(own_weights[i].grad(), weights[place].grad(), 1e-12, 1e-12)) << own[i];
  }
}

// The layer's memory has the last backward's gradients alone.
TEST(PythonLibrary, GradientsThatAreKeptStayAsTheyAre) {
  Tensors first, values;
  {
    const IValue layer = layer_of(kTiny);
    Tensors weights = call(layer, "weights").toTensorVector();
    for (auto& weight : weights) weight.set_requires_grad(true);
    const auto gradients = [&](double of) {
      const auto x = torch::full({16, 16}, of, torch::kDouble) + torch::eye(16, torch::kDouble);
      const auto y = call(layer, "forward", {x, weights, false}).toTensor();
      return torch::autograd::grad({y.square().sum()}, weights, {}, false, false, true);
    };
    first = gradients(1);
    for (const auto& gradient : first) values.push_back(gradient.clone());
    const auto* const memory = first.back().data_ptr();
    const Tensors second = gradients(2);
    EXPECT_EQ(second.back().data_ptr(), memory);
    EXPECT_NE(first.back().data_ptr(), memory);
    EXPECT_FALSE(torch::equal(first.back(), second.back()));
  }
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(torch::equal(first[i], values[i])) << i;
}

TEST(PythonLibrary, RunnerTakesPartOfTheTime) {
  const IValue layer = layer_of(kTiny);
  const Tensors weights = call(layer, "weights").toTensorVector();
  const auto x = torch::randn({16, 16}, torch::kDouble).set_requires_grad(true);
  call(layer, "forward", {x, weights, false}).toTensor().sum().backward();
  const auto seconds = call(layer, "runner_seconds").toDoubleVector();
  ASSERT_EQ(seconds.size(), 2);
  EXPECT_GT(seconds[0], 0);
  EXPECT_GT(seconds[1], 0);
}

TEST(PythonLibrary, BadInputIsAValueError) {
  EXPECT_THROW(layer_of(R"({"batch": 0})"), c10::ValueError);
  EXPECT_THROW(layer_of(R"({"bach": 2})"), c10::ValueError);
  EXPECT_THROW(layer_of(R"({"dtype": "bfloat16"})"), c10::ValueError) << "the CPU's layer has no such type";
  EXPECT_THROW(layer_of(R"({"plan": "nowhere.json"})"), c10::ValueError);
  EXPECT_THROW(layer_of(R"({"plan": "a", "batch": 2})"), c10::ValueError);
  const IValue layer = layer_of(kTiny);
  Tensors weights = call(layer, "weights").toTensorVector();
  const auto x = torch::zeros({16, 16}, torch::kDouble);
  EXPECT_THROW(call(layer, "forward", {x.slice(0, 1), weights, true}), c10::ValueError);
  EXPECT_THROW(call(layer, "forward", {x.to(torch::kFloat), weights, true}), c10::TypeError);
  weights.pop_back();
  EXPECT_THROW(call(layer, "forward", {x, weights, true}), c10::ValueError);
}

TEST(PythonLibrary, LayersTakeWholeSamples) {
  try {
    layer_of(R"({"cp": 2})");
    FAIL() << "made a layer whose ranks share samples";
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("found cp = 2, expected 1: MoELayer takes whole samples"),
              std::string::npos)
        << error.what();
  }
}

TEST(PythonLibrary, RanksThatLeftMakeNoLayers) {
  const IValue ranks = alone();
  call(ranks, "close");
  EXPECT_THROW(make("Layer", {ranks, kTiny, 0, std::vector<std::string>{}, Tensors{}, std::vector<std::string>{}}),
               c10::ValueError);
}

}  // namespace
}  // namespace moe
