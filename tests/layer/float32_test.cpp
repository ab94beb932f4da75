// Random float32 layers: none is called wrong, and an error of a thousandth of one element is found in every tensor.
//
// `--layers=N` runs N of them.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <iostream>
#include <map>

#include "moe/base/random.h"
#include "moe/layer/gates/gate.h"
#include "moe/tensor/element.h"
#include "tests/base/error_of.h"
#include "tests/layer/layer_space.h"
#include "tests/layer/local_layers.h"

namespace moe {
namespace {

int layers_to_run = 2000;
constexpr uint64_t kSeed = 11;
constexpr int kMaxRanks = 4;
constexpr float kPlanted = 1e-3F;
constexpr std::string_view kGradientOf = "gradient of ";

template <class T, size_t N>
T any_of(const T (&values)[N], uint64_t layer, uint64_t index) {
  return values[random_bits(kSeed, 3 + index, layer) % N];
}

// Returns the point's layer in float32 with other numbers of samples and tokens and other widths. Throws BadInput where
// they don't go together.
LayerCase resized(const layer_space::Point& point, uint64_t layer) {
  LayerCase c = layer_space::shape_of(point);
  require<BadInput>(c.parallel.ranks() <= kMaxRanks, "{} ranks", c.parallel.ranks());
  LayerShape& l = c.layer;
  l.dtype = DType::float32;
  l.batch = any_of<int64_t>({1, 2, 3, 8}, layer, 0);
  l.seq = any_of<int64_t>({1, 2, 4, 12, 24, 48}, layer, 1);
  if (block_of(l.ffn) == 1) {
    l.model_dim = l.heads * any_of<int64_t>({2, 4, 8}, layer, 2);
    l.hidden = 24 * any_of<int64_t>({1, 2, 6}, layer, 3);
  }
  c = complete(l, c.parallel, c.rounding);
  make_routing(rank_shape(c, 0));
  return c;
}

layer_space::DrawnLayer any_layer(uint64_t layer, uint64_t& draws) {
  for (;;) try {
      const layer_space::Point point = layer_space::any_point(kSeed, draws);
      return layer_space::make_case(point, resized(point, layer), layer + 1);
    } catch (const BadInput&) {  // its parts don't go together
    }
}

// Where errors are planted: every tensor that is compared.
std::map<std::string, TensorView> compared(MoeLayer& rank) {
  std::map<std::string, TensorView> all{{"output", rank.output()}, {kInputGradient, rank.input_gradient()}};
  for (const Parameter& p : rank.parameters()) all[std::string(kGradientOf) + p.name] = p.gradient;
  return all;
}

double largest_of(const LayerReference& reference, const std::string& name) {
  const std::vector<double>& whole = name == "output"         ? reference.output
                                     : name == kInputGradient ? reference.input_gradient
                                                              : reference.gradients.at(name.substr(kGradientOf.size()));
  double largest = 0;
  for (const double v : whole) largest = std::max(largest, std::abs(v));
  return largest;
}

struct Found {
  int64_t planted = 0, found = 0, vanishing = 0;
};

// Plants an error into one of the tensor's elements that are no smaller than their root mean square, nor than a
// fortieth of the largest one of all ranks. Counts tensors apart of which a thousandth is no more than the roundings of
// their terms, and parts that have no such element.
void plant(LocalLayers& layers, const LayerReference& reference, const std::string& name, TensorView tensor,
           uint64_t layer, Found& all) {
  const std::span<float> values(tensor.as<float>(), static_cast<size_t>(tensor.elements()));
  double squares = 0, largest = 0;
  for (const float v : values) {
    squares += double{v} * v;
    largest = std::max(largest, std::abs(double{v}));
  }
  if (largest == 0) return;
  const double least = largest_of(reference, name) / 40;
  const double mean = std::sqrt(squares / static_cast<double>(values.size()));
  const auto size = reference.sizes.find(name.substr(name.starts_with(kGradientOf) ? kGradientOf.size() : 0));
  const bool rounds = size != reference.sizes.end() && kPlanted * mean < 64 * 0x1p-24 * size->second;
  if (rounds || largest < least) {
    ++all.vanishing;
    return;
  }
  size_t at = random_bits(kSeed, 2, layer) % values.size();
  while (std::abs(values[at]) < std::max(mean * (1 - 1e-6), least)) at = (at + 1) % values.size();
  const float before = values[at];
  values[at] *= 1 + kPlanted;
  const std::vector<TensorError> errors = layer_errors(layers.ranks(), reference);
  values[at] = before;
  const bool found =
      std::ranges::find(errors, name, &TensorError::tensor)->error > tolerance_of(*layers.ranks().front());
  EXPECT_TRUE(found) << name;
  ++all.planted;
  all.found += found ? 1 : 0;
}

struct Results {
  std::map<std::string, double> worst;  // error by tensor
  Found found;
};

void prove(const layer_space::DrawnLayer& c, uint64_t layer, Results& all) {
  LocalLayers layers(c.shape, c.seed, c.plan.structure->flow);
  layers.run(c.plan);
  const std::vector<int32_t> choices = choices_of(layers.ranks());
  const LayerReference reference = reference_layer(c.shape, c.seed, {choices, tolerance_of(DType::float32), false});
  EXPECT_EQ(error_of<WrongResult>([&] { verify_layer(layers.ranks(), reference); }), "none");
  if (in_fp8(c.shape.layer.ffn)) return;  // a thousandth is less than what an FP8 number rounded the other way makes
  for (const TensorError& e : layer_errors(layers.ranks(), reference))
    all.worst[e.tensor] = std::max(all.worst[e.tensor], e.error);
  MoeLayer& rank = *layers.ranks()[random_bits(kSeed, 1, layer) % layers.ranks().size()];
  for (const auto& [name, tensor] : compared(rank)) plant(layers, reference, name, tensor, layer, all.found);
}

TEST(Float32, NoRightLayerIsCalledWrongAndPlantedErrorsAreFound) {
  uint64_t draws = 0;
  Results all;
  int ran = 0;
  for (uint64_t layer = 0; ran < layers_to_run; ++layer) try {
      const layer_space::DrawnLayer c = any_layer(layer, draws);
      SCOPED_TRACE(fmt::format("layer {}: {}, gate {}, {} on {} ranks", layer, describe(c.shape.layer),
                               c.shape.layer.gate, c.plan.schedule, c.shape.parallel.ranks()));
      prove(c, layer, all);
      ++ran;
    } catch (const Unsupported&) {  // by a part
    }
  for (const auto& [name, error] : all.worst) std::cout << fmt::format("{}: worst error {:.2e}\n", name, error);
  const Found& f = all.found;
  std::cout << fmt::format("{} planted, {} found; {} tensors vanish\n", f.planted, f.found, f.vanishing);
  EXPECT_GT(f.planted, 10 * ran);
  EXPECT_LT(f.vanishing, f.planted / 5);
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--layers=")) moe::layers_to_run = std::stoi(argv[i] + 9);
  return RUN_ALL_TESTS();
}
