// The reference itself, against central differences of its loss.
#include "moe/layer/reference/reference.h"

#include <gtest/gtest.h>

#include "moe/layer/reference/detail/layer_graph.h"

namespace moe {
namespace {

LayerCase small_case(DType dtype = DType::float64) {
  LayerShape layer{.batch = 2, .seq = 5, .model_dim = 6, .hidden = 8, .heads = 3, .experts = 4, .top_k = 2};
  layer.dtype = dtype;
  return complete(layer, {.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2}, Rounding::ragged);
}

// Largest error over some elements of `leaf`, relative to the largest gradient.
double difference_error(const LayerCase& c, const GraphInputs& inputs, const at::Tensor& leaf,
                        const std::vector<double>& gradient) {
  constexpr double kStep = 1e-5;
  double* values = leaf.mutable_data_ptr<double>();
  double worst = 0, norm = 1e-300;
  for (const double g : gradient) norm = std::max(norm, std::abs(g));
  for (size_t i = 0; i < gradient.size(); i += 1 + gradient.size() / 40) {
    const double before = values[i];
    const auto loss = [&](double value) {
      values[i] = value;
      return run_graph(c, inputs, {}).loss.item<double>();
    };
    const double slope = (loss(before + kStep) - loss(before - kStep)) / (2 * kStep);
    values[i] = before;
    worst = std::max(worst, std::abs(slope - gradient[i]) / norm);
  }
  return worst;
}

TEST(Reference, GradientsAreCentralDifferences) {
  for (const double skew : {0.0, 1.5}) {
    const LayerCase c = small_case();
    const LayerSeed seed{.seed = 5, .layer = 1, .skew = skew};
    const LayerReference reference = reference_layer(c, seed);
    const GraphInputs inputs = graph_inputs(c, seed);
    EXPECT_LT(difference_error(c, inputs, inputs.input, reference.input_gradient), 1e-7) << "input";
    for (const auto& [name, weight] : inputs.weights)
      EXPECT_LT(difference_error(c, inputs, weight, reference.gradients.at(name)), 1e-7) << name;
  }
}

TEST(Reference, FollowsAnotherChoiceOnlyWhereItIsAsGood) {
  const LayerCase c = small_case();
  const LayerSeed seed{.seed = 5};
  const std::vector<int32_t> own = reference_layer(c, seed).choices;
  std::vector<int32_t> other = own;
  std::swap(other[0], other[1]);
  EXPECT_EQ(reference_layer(c, seed, {other, 1e-9}).choices, own) << "a clear preference";
  EXPECT_EQ(reference_layer(c, seed, {other, 10}).choices, other) << "everything ties";
  other[0] = other[1];
  EXPECT_EQ(reference_layer(c, seed, {other, 10}).choices, own) << "one expert twice";
  other[0] = 4;
  EXPECT_EQ(reference_layer(c, seed, {other, 10}).choices, own) << "no such expert";
}

TEST(Reference, RoundsItsInputsToTheElementType) {
  const GraphInputs narrow = graph_inputs(small_case(DType::float32), {}), wide = graph_inputs(small_case(), {});
  EXPECT_FALSE(narrow.input.equal(wide.input));
  EXPECT_TRUE(narrow.input.equal(wide.input.to(at::kFloat).to(at::kDouble)));
  EXPECT_TRUE(narrow.weights.at("w1").equal(wide.weights.at("w1").to(at::kFloat).to(at::kDouble)));
}

}  // namespace
}  // namespace moe
