// Stacks on a GPU: its kernels under the emulation, on CPU streams.
#include <gtest/gtest.h>

#include "moe/schedule/model_plan.h"
#include "moe/stack/stack_errors.h"
#include "tests/layer/cuda/test_device.h"
#include "tests/properties/any_model.h"
#include "tests/schedule/any_decision.h"
#include "tests/stack/local_stacks.h"

namespace moe {
namespace {

struct Made {
  std::string gate;
  Ffn ffn;
  double losses;
  int stages, micro_batches;
};

class StackOnDeviceTest : public testing::TestWithParam<Made> {};

TEST_P(StackOnDeviceTest, GradientsAreAutograds) {
  const Made& made = GetParam();
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 20, .hidden = 12, .heads = 10, .experts = 8, .top_k = 2};
  layer.capacity_factor = 1.2;
  layer.dtype = DType::float64;
  layer.gate = made.gate;
  layer.ffn = made.ffn;
  layer.aux_loss = layer.z_loss = made.losses;
  const ParallelShape parallel{
      .nodes = 2 * made.stages, .ranks_per_node = 2, .mp = 1, .ep = 2, .esp = 2, .pp = made.stages};
  ModelShape model{complete(layer, parallel, Rounding::ragged), 2 * made.stages, made.micro_batches,
                   PipelineOrder::one_f_one_b};
  const LayerSeed seed{.seed = 7};
  const auto fitting = any_decision::fitting(model.shape);
  for (size_t i = static_cast<size_t>(made.micro_batches); i < fitting.size(); i += 5) {  // emulated kernels are slow
    const Schedule* schedule = fitting[i];
    SCOPED_TRACE(schedule->name);
    const Plan plan = build_model_plan(*schedule, model, any_model::any_model_decision(*schedule, model, 3));
    LocalStacks stacks(stack_shape(plan), seed, {make_test_device, make_test_layer_device});
    stacks.run(plan, 2);
    const std::vector<RankCells> ranks = stacks.cells();
    std::vector<std::vector<int32_t>> chosen;
    for (const RankCells& rank : ranks) chosen.push_back(own_choices(rank));
    const StackReference reference =
        reference_stack(ranks.front().front(), join_choices(chosen, plan.layers, plan.micro_batches, made.stages));
    for (const TensorError& e : stack_errors(ranks, reference)) EXPECT_LE(e.error, 1e-10) << e.tensor;
    if (testing::Test::HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Stacks, StackOnDeviceTest,
                         testing::Values(Made{"gshard", Ffn::gpt, 0, 1, 3}, Made{"switch", Ffn::mixtral, 0.1, 1, 2},
                                         Made{"sigmoid", Ffn::gpt, 0, 2, 2}));

}  // namespace
}  // namespace moe
