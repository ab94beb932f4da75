// A layer whose rows are padded to a multiple of both degrees (Rounding::lcm), run on threads under real plans.
#include <gtest/gtest.h>

#include "moe/layer/moe_layer.h"
#include "tests/layer/local_layers.h"

namespace moe {
namespace {

LayerCase case_of(std::optional<double> factor, Rounding rounding, std::string gate) {
  LayerShape layer{.batch = 1, .seq = 24, .model_dim = 20, .hidden = 12, .heads = 10, .experts = 4, .top_k = 2};
  layer.capacity_factor = factor;
  layer.dtype = DType::float64;
  layer.gate = std::move(gate);
  return complete(layer, {.nodes = 2, .ranks_per_node = 2}, rounding);
}

std::unique_ptr<LocalLayers> ran(const LayerCase& shape, const Plan& plan) {
  auto layers = std::make_unique<LocalLayers>(plan.shape, LayerSeed{.seed = 5, .skew = 2.0}, plan.structure->flow);
  layers->poison();
  layers->run(plan);
  const LayerReference reference = reference_layer(shape, {.seed = 5, .skew = 2.0});
  for (const TensorError& e : layer_errors(layers->ranks(), reference))
    EXPECT_LE(e.error, tolerance_of(DType::float64)) << e.tensor;
  return layers;
}

TEST(Padding, ChangesNoOutputAndIsProven) {
  for (const std::string_view gate : {"gshard", "expert-choice", "softmoe"})
    for (const std::optional<double> factor : {std::optional(0.9), std::optional<double>()})
      for (const std::string_view name : {"fsmoe", "fsmoe-interleaved"})
        for (const auto& [forward, backward] : {std::pair{2, 3}, {3, 4}, {5, 1}}) {
          if (!factor && gate != "gshard") continue;  // the others have a capacity
          SCOPED_TRACE(fmt::format("{} {} r {} {}", gate, name, forward, backward));
          const LayerCase ragged = case_of(factor, Rounding::ragged, std::string(gate));
          const LayerCase lcm = case_of(factor, Rounding::lcm, std::string(gate));
          const Plan even = plan_for(lcm, name, forward, backward), plain = plan_for(ragged, name, forward, backward);
          ASSERT_EQ(even.rows % (forward * backward), 0);
          ASSERT_GE(even.rows, plain.rows);
          const auto padded = ran(lcm, even), without = ran(ragged, plain);
          EXPECT_EQ(padded->dropped(), without->dropped());
          EXPECT_GE(load_of(padded->ranks()).padding, load_of(without->ranks()).padding);
          for (size_t r = 0; r < padded->ranks().size(); ++r) {
            const TensorView a = padded->ranks()[r]->output(), b = without->ranks()[r]->output();
            ASSERT_EQ(a.elements(), b.elements());
            for (int64_t i = 0; i < a.elements(); ++i) ASSERT_NEAR(a.as<double>()[i], b.as<double>()[i], 1e-13);
          }
        }
}

}  // namespace
}  // namespace moe
