// The proof of ../gradient_test.cpp for the layer on a GPU: its kernels under the emulation, on CPU streams.
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <memory>

#include "tests/layer/cuda/test_device.h"
#include "tests/layer/local_layers.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

struct Made {
  std::string name, gate;
  Ffn ffn = Ffn::gpt;
  Norm norm = Norm::none;
  std::string hook = "none";
  int64_t top_k = 2, kv_heads = 10;
  double rope_theta = 0;
  int64_t head_dim = 0, window = 0, kv_rank = 0;
  double losses = 0, skew = 0;
  ParallelShape parallel;
  DType dtype = DType::float64;
};

struct Met {
  int64_t plans = 0;
  std::map<DType, double> worst;  // without a hook that rounds
} met;

LayerCase case_of(const Made& m) {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 20, .hidden = 12, .heads = 10, .experts = 8, .top_k = m.top_k};
  layer.kv_heads = m.kv_heads;
  if (in_fp8(m.ffn)) layer.model_dim = kFp8Block, layer.hidden = 2 * kFp8Block, layer.heads = layer.kv_heads = 8;
  layer.rope_theta = m.rope_theta;
  layer.head_dim = m.head_dim;
  layer.window = m.window;
  if (m.kv_rank > 0) {
    layer.kv_lora_rank = m.kv_rank;
    layer.q_lora_rank = 9;
    layer.qk_nope_head_dim = 3;
    layer.qk_rope_head_dim = layer.v_head_dim = 4;
  }
  layer.capacity_factor = m.skew > 0 ? 0.8 : 1.2;
  layer.dtype = m.dtype;
  layer.gate = m.gate;
  layer.ffn = m.ffn;
  layer.norm = m.norm;
  layer.residual = m.norm != Norm::none;
  layer.hook = m.hook;
  layer.aux_loss = layer.z_loss = m.losses;
  return complete(layer, m.parallel, Rounding::ragged);
}

void PrintTo(const Made& m, std::ostream* out) { *out << m.name; }

class LayerOnDeviceTest : public testing::TestWithParam<Made> {
 protected:
  static void TearDownTestSuite() {
    std::cout << fmt::format("{} plans, {} kernels launched", met.plans, test_launches());
    for (const auto& [dtype, error] : met.worst) std::cout << fmt::format("; {} off by {:.2e}", name_of(dtype), error);
    std::cout << '\n';
  }
};

TEST_P(LayerOnDeviceTest, EverySchedulesGradientsAreAutograds) {
  const LayerCase shape = case_of(GetParam());
  const LayerSeed seed{.seed = 11, .layer = 2, .skew = GetParam().skew};
  const bool narrow = bytes_of(shape.layer.dtype) == 2;
  LayerReference reference = reference_layer(shape, seed);
  std::map<Flow, std::unique_ptr<LocalLayers>> by_flow;
  int degree = 1;
  for (const Schedule* schedule : any_decision::fitting(shape)) {
    auto& layers = by_flow[schedule->flow];
    if (!layers)
      layers = std::make_unique<LocalLayers>(shape, seed, schedule->flow,
                                             LayersOn{make_test_device, make_test_layer_device});
    degree = degree % 3 + 1;
    const int forward = schedule->degrees == DegreePolicy::one ? 1 : degree;
    const int backward = schedule->degrees == DegreePolicy::apart ? degree % 3 + 1 : forward;
    const Plan plan = plan_for(shape, schedule->name, forward, backward);
    SCOPED_TRACE(fmt::format("{} r_f {} r_b {}", plan.schedule, plan.degree_forward, plan.degree_backward));
    layers->poison();
    layers->run(plan);
    finish_test_device();
    ++met.plans;
    if (narrow)  // near-ties of experts may be decided either way
      reference = reference_layer(shape, seed, {choices_of(layers->ranks()), tolerance_of(shape.layer.dtype)});
    for (const TensorError& e : layer_errors(layers->ranks(), reference)) {
      EXPECT_LE(e.error, tolerance_of(*layers->ranks().front())) << e.tensor;
      double& worst = met.worst[shape.layer.dtype];
      if (narrow || GetParam().hook == "none") worst = std::max(worst, e.error);
    }
    EXPECT_NEAR(layers->ranks().front()->auxiliary_loss(), reference.auxiliary,
                (narrow ? 0.02 : 1e-4) * reference.auxiliary);
  }
  if (GetParam().skew > 0) {
    EXPECT_GT(by_flow.begin()->second->dropped(), 0);
    EXPECT_GT(by_flow.begin()->second->idle_experts(), 0);
  }
}

constexpr ParallelShape one{}, four{.nodes = 2, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2},
    replicas{.nodes = 2, .ranks_per_node = 2, .mp = 1, .ep = 2, .esp = 1},
    sharded{.nodes = 1, .ranks_per_node = 4, .mp = 4, .ep = 1, .esp = 2};

INSTANTIATE_TEST_SUITE_P(
    Parts, LayerOnDeviceTest,
    testing::Values(
        Made{.name = "gshard_one_rank", .gate = "gshard", .parallel = one},
        Made{.name = "gshard_norm_losses", .gate = "gshard", .norm = Norm::layernorm, .losses = 0.1, .parallel = four},
        Made{.name = "switch_mixtral",
             .gate = "switch",
             .ffn = Ffn::mixtral,
             .losses = 0.2,
             .skew = 4,
             .parallel = four},
        Made{.name = "sigmoid_rmsnorm", .gate = "sigmoid", .norm = Norm::rmsnorm, .top_k = 3, .parallel = replicas},
        Made{.name = "switch_fp8", .gate = "switch", .ffn = Ffn::mixtral_fp8, .skew = 4, .parallel = four},
        Made{.name = "switch_fp8_bfloat16",
             .gate = "switch",
             .ffn = Ffn::mixtral_fp8,
             .norm = Norm::rmsnorm,
             .parallel = replicas,
             .dtype = DType::bfloat16},
        Made{.name = "gshard_bf16_hook", .gate = "gshard", .hook = "bf16", .parallel = replicas},
        Made{.name = "switch_grouped_queries", .gate = "switch", .top_k = 1, .kv_heads = 5, .parallel = sharded},
        Made{.name = "switch_rotary", .gate = "switch", .kv_heads = 5, .rope_theta = 100, .parallel = four},
        Made{.name = "switch_wide_heads",
             .gate = "switch",
             .kv_heads = 5,
             .rope_theta = 100,
             .head_dim = 6,
             .parallel = four},
        Made{
            .name = "switch_window", .gate = "switch", .kv_heads = 5, .rope_theta = 100, .window = 3, .parallel = four},
        Made{.name = "switch_latent", .gate = "switch", .rope_theta = 100, .kv_rank = 7, .parallel = four},
        Made{.name = "gshard_float32",
             .gate = "gshard",
             .norm = Norm::rmsnorm,
             .parallel = four,
             .dtype = DType::float32},
        Made{.name = "gshard_bfloat16",
             .gate = "gshard",
             .norm = Norm::layernorm,
             .losses = 0.1,
             .parallel = four,
             .dtype = DType::bfloat16},
        Made{.name = "switch_mixtral_float16",
             .gate = "switch",
             .ffn = Ffn::mixtral,
             .norm = Norm::rmsnorm,
             .hook = "bf16",  // changes nothing
             .parallel = replicas,
             .dtype = DType::float16}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace moe
