// A torch module of a layer that is not in the CPU's memory, or not of float32 or float64: trains as the CPU's does.
// The device is the emulation of a GPU.
#include <gtest/gtest.h>
#include <mutex>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include "moe/comm/local/local_world.h"
#include "moe/schedule/schedule.h"
#include "moe/torch/moe_layer_module.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

constexpr int kSteps = 4;

struct Made {
  DType dtype = DType::float32;
  torch::ScalarType type = torch::kFloat32;
  double tolerance = 0;  // of a loss, of its size
};
void PrintTo(const Made& made, std::ostream* out) { *out << name_of(made.dtype); }

LayerCase case_of(DType dtype) {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 16, .hidden = 24, .heads = 4, .experts = 4};
  layer.dtype = dtype;
  return complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
}

torch::Tensor uniform(const TensorView& like, int seed) {
  torch::manual_seed(seed);
  return torch::rand({like.size(0), like.size(1)}, torch::kFloat64) - 0.5;
}

// The first rank's losses, step by step.
std::vector<double> losses_of(const LayerCase& shape, bool on_device, torch::ScalarType type) {
  const Schedule& row = find_schedule("fsmoe");
  const Plan plan = build_plan(row, shape, with_split(row, 2, 2, gradient_bytes(shape) / 3));
  std::vector<double> losses;
  std::mutex random;  // of torch: its generator is the process's
  LocalWorld world(shape.parallel.ranks());
  world.run([&](int rank) {
    const auto comm = world.communicator(rank);
    const auto device = on_device ? make_test_layer_device() : nullptr;
    const auto layer =
        std::make_shared<MoeLayer>(rank_shape(shape, rank, plan.structure->flow), LayerSeed{},
                                   LayerComms::split(*comm, shape.parallel), device ? *device : cpu_layer_device());
    {
      MoeLayerModule module(layer, plan, on_device ? make_test_device() : nullptr);
      torch::Tensor x, target;
      {
        const std::lock_guard lock(random);
        x = uniform(layer->input(), 2 * rank).to(type).set_requires_grad(true);
        target = uniform(layer->input(), 2 * rank + 1);
      }
      torch::optim::SGD sgd(module.parameters(), torch::optim::SGDOptions(0.2));
      for (int step = 0; step < kSteps; ++step) {
        sgd.zero_grad();
        const auto y = module.forward(x);
        EXPECT_EQ(y.scalar_type(), type);
        const auto loss = torch::nn::functional::mse_loss(y.to(torch::kFloat64), target);
        loss.backward();
        sgd.step();
        if (rank == 0) losses.push_back(loss.item<double>());
      }
      EXPECT_EQ(x.grad().scalar_type(), type);
      for (const Parameter& p : layer->parameters()) {
        const torch::Tensor& weight = module.named_parameters()[p.name];
        EXPECT_EQ(weight.data_ptr() == p.value.data(), !on_device) << p.name << ": whose memory it is";
        EXPECT_EQ(weight.element_size(), bytes_of(p.value.dtype())) << p.name;
      }
    }
    comm->barrier({*make_cpu_device()->make_stream("end")});
  });
  return losses;
}

class DeviceModuleTest : public testing::TestWithParam<Made> {};

INSTANTIATE_TEST_SUITE_P(Types, DeviceModuleTest,
                         testing::Values(Made{DType::float64, torch::kFloat64, 1e-9},
                                         Made{DType::float32, torch::kFloat32, 1e-5},
                                         Made{DType::float16, torch::kFloat16, 0.02},
                                         Made{DType::bfloat16, torch::kBFloat16, 0.1}),
                         testing::PrintToStringParamName());

TEST_P(DeviceModuleTest, TrainsAsTheCpusLayer) {
  const auto [dtype, type, tolerance] = GetParam();
  const auto found = losses_of(case_of(dtype), true, type);
  const auto expected = losses_of(case_of(DType::float64), false, torch::kFloat64);
  ASSERT_EQ(found.size(), size_t{kSteps});
  for (size_t step = 0; step < found.size(); ++step)
    EXPECT_NEAR(found[step], expected[step], tolerance * expected[step]) << "step " << step;
  EXPECT_LT(found.back(), (1 - tolerance) * found.front());
}

}  // namespace
}  // namespace moe
