// Stacks on a GPU: its kernels under the emulation, on CPU streams.
#include <gtest/gtest.h>

#include "moe/plan/memory.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/wave.h"
#include "moe/stack/stack_errors.h"
#include "moe/tensor/host_copy.h"
#include "moe/tensor/tensor.h"
#include "tests/layer/cuda/test_device.h"
#include "tests/properties/any_model.h"
#include "tests/schedule/any_decision.h"
#include "tests/stack/local_stacks.h"

namespace moe {
namespace {

// A layer whose scores are most of what it keeps.
LayerCase of_scores(Recompute recompute, DType dtype) {
  LayerShape layer{.batch = 2, .seq = 24, .model_dim = 20, .hidden = 12, .heads = 10, .kv_heads = 5, .experts = 8};
  layer.dtype = dtype;
  ParallelShape parallel{.nodes = 4, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = 2};
  parallel.recompute = recompute;
  return complete(layer, parallel, Rounding::ragged);
}

std::vector<std::byte> bytes_of_results(const LocalStacks& stacks) {
  std::vector<std::byte> all;
  for (const RankCells& rank : stacks.cells())
    for (const auto& layer : rank.layers)
      for (MoeLayer* cell : layer) {
        std::vector<TensorView> results{cell->output(), cell->input_gradient()};
        for (const Parameter& p : cell->parameters()) results.push_back(p.gradient);
        for (const TensorView& t : results) {
          const HostCopy here(t, cell->memory());
          const TensorView view = here.view();
          all.insert(all.end(), view.at(0), view.at(0) + view.bytes());
        }
      }
  return all;
}

// Stages keep scores of the passes that are under way, 4 of the first and 2 of the second, or a scratch a rank.
TEST(StackOnDevice, ScoresComputedAgainChangeNoBitAndAreNotKept) {
  for (const DType dtype : {DType::float64, DType::bfloat16}) {
    std::vector<std::unique_ptr<LocalStacks>> both;
    std::vector<int64_t> bytes;
    std::vector<Plan> plans;
    for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
      ModelShape model{of_scores(recompute, dtype), 4, 3, PipelineOrder::one_f_one_b};
      model.step.planned = true;
      const Schedule& schedule = find_schedule("fsmoe");
      plans.push_back(build_model_plan(schedule, model, any_model::any_model_decision(schedule, model, 3)));
      const int64_t before = tensor_memory.live_bytes;
      both.push_back(std::make_unique<LocalStacks>(stack_shape(plans.back()), LayerSeed{.seed = 7},
                                                   LayersOn{make_test_device, make_test_layer_device}));
      bytes.push_back(tensor_memory.live_bytes - before);
    }
    for (size_t i = 0; i < 2; ++i) both[i]->run(plans[i], 2);
    EXPECT_EQ(bytes_of_results(*both[0]), bytes_of_results(*both[1])) << name_of(dtype);
    MemoryRequest kept = memory_request(plans[0]), again = memory_request(plans[1]);
    const double scores = estimate_memory(kept).activations - estimate_memory(again).activations;
    int64_t scratch = 0;  // heads of the ranks of an MP group: 3 and 2 key-value heads
    for (const int64_t kv_heads : {3, 2}) scratch += 4 * kv_heads * 24 * 24 * bytes_of(dtype);
    EXPECT_EQ(scores, 4 * 2.0 * 6 * 24 * 24 * static_cast<double>(bytes_of(dtype))) << "of the fuller rank";
    EXPECT_EQ(static_cast<double>(bytes[0] - bytes[1]),
              (1 + 2.0 / 4) * 2 * scores * (1 + 4.0 / 6) - static_cast<double>(scratch))
        << name_of(dtype);
  }
}

struct Made {
  std::string gate;
  Ffn ffn;
  double losses;
  int stages, micro_batches;
  Recompute recompute = Recompute::none;
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
  ParallelShape parallel{.nodes = 2 * made.stages, .ranks_per_node = 2, .mp = 1, .ep = 2, .esp = 2, .pp = made.stages};
  parallel.recompute = made.recompute;
  const bool dense = std::string_view(made.gate) != "gshard";  // some layers, sharded over MP
  if (dense) parallel.mp = 2;
  ModelShape model{complete(layer, parallel, Rounding::ragged), 2 * made.stages, made.micro_batches,
                   PipelineOrder::one_f_one_b};
  model.step.planned = true;
  if (dense) model.dense = DenseLayers{{{true, false, made.stages == 2}}, 24}.first(model.layers);
  const LayerSeed seed{.seed = 7};
  std::vector<Plan> plans;
  const auto fitting = any_decision::fitting(model.shape);
  for (size_t i = static_cast<size_t>(made.micro_batches); i < fitting.size(); i += 5)  // emulated kernels are slow
    plans.push_back(build_model_plan(*fitting[i], model, any_model::any_model_decision(*fitting[i], model, 3)));
  const Profile profile = nominal_profile(model.shape);
  const LayerPricer pricer(profile, model.shape);
  if (made.stages == 1) plans.push_back(wave_plan(pricer, model, model.layers + 1, {2, 2, 2, 2}));
  for (const Plan& plan : plans) {
    SCOPED_TRACE(plan.schedule);
    LocalStacks stacks(stack_shape(plan), seed, {make_test_device, make_test_layer_device});
    stacks.run(plan, 2);
    const std::vector<RankCells> ranks = stacks.cells();
    std::vector<std::vector<int32_t>> chosen;
    for (const RankCells& rank : ranks) chosen.push_back(own_choices(rank));
    const StackReference reference = reference_stack(ranks.front(), join_choices(chosen, stack_shape(plan)));
    for (const TensorError& e : stack_errors(ranks, reference)) EXPECT_LE(e.error, 1e-10) << e.tensor;
    if (testing::Test::HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Stacks, StackOnDeviceTest,
                         testing::Values(Made{"gshard", Ffn::gpt, 0, 1, 3}, Made{"switch", Ffn::mixtral, 0.1, 1, 2},
                                         Made{"sigmoid", Ffn::gpt, 0, 2, 2},
                                         Made{"gshard", Ffn::gpt, 0, 2, 2, Recompute::selective}));

}  // namespace
}  // namespace moe
