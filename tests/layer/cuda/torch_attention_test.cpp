// A layer whose attention LibTorch computes, on a GPU, against autograd.
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/tensor/attention_heads.h"
#include "tests/layer/cuda/test_device.h"
#include "tests/layer/local_layers.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

// Opens the CUDA half before any test asks LibTorch for GPUs: those of autograd do, and it remembers the answer.
class WithTorchCuda : public testing::Environment {
  void SetUp() override {
    try {
      open_torch_cuda();
    } catch (const NoHardware&) {  // the tests that need it skip
    }
  }
};
[[maybe_unused]] const testing::Environment* const kOpened = testing::AddGlobalTestEnvironment(new WithTorchCuda);

class TorchAttentionTest : public testing::TestWithParam<DType> {};

TEST_P(TorchAttentionTest, GradientsAreAutograds) {
  try {
    open_torch_cuda();
  } catch (const NoHardware& e) {
    GTEST_SKIP() << e.what();
  }
  LayerShape layer{.batch = 2, .seq = 16, .model_dim = 64, .hidden = 32, .heads = 4, .experts = 4, .top_k = 2};
  layer.kv_heads = 2;
  layer.capacity_factor = 1.2;
  layer.dtype = GetParam();
  layer.gate = "switch";
  const LayerCase shape =
      complete(layer, {.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2}, Rounding::ragged);
  const LayerSeed seed{.seed = 11, .layer = 2};
  const auto by_torch = [] { return make_cuda_layer_device({.attention = AttentionBy::torch}); };
  LocalLayers layers(shape, seed, Flow::sharded, LayersOn{make_test_device, by_torch});
  layers.poison();
  layers.run(plan_for(shape, "fsmoe", 2, 2));
  finish_test_device();
  const LayerReference reference =
      bytes_of(layer.dtype) == 2 ? reference_layer(shape, seed, {choices_of(layers.ranks()), tolerance_of(layer.dtype)})
                                 : reference_layer(shape, seed);
  for (const TensorError& e : layer_errors(layers.ranks(), reference))
    EXPECT_LE(e.error, tolerance_of(*layers.ranks().front())) << e.tensor;
}

INSTANTIATE_TEST_SUITE_P(Types, TorchAttentionTest,
                         testing::Values(DType::float64, DType::float32, DType::bfloat16, DType::float16),
                         [](const auto& row) { return std::string(name_of(row.param)); });

}  // namespace
}  // namespace moe
