// Ranks that are torch modules: gradients are the reference's, and training lowers a loss.
#include "moe/torch/moe_layer_module.h"

#include <gtest/gtest.h>
#include <mutex>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "moe/base/check.h"
#include "moe/comm/local/local_world.h"
#include "moe/device/device.h"
#include "moe/exec/executor.h"
#include "moe/layer/binding.h"
#include "moe/layer/verify.h"
#include "moe/schedule/schedule.h"
#include "moe/tensor/tensor.h"

namespace moe {
namespace {

LayerCase case_of(ParallelShape parallel, DType dtype) {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 16, .hidden = 24, .heads = 4, .experts = 4};
  layer.dtype = dtype;
  return complete(layer, parallel, Rounding::ragged);
}

Plan plan_of(const LayerCase& shape, std::string_view schedule, int degree) {
  const Schedule& row = find_schedule(schedule);
  return build_plan(row, shape, with_split(row, degree, degree, gradient_bytes(shape) / 3));
}

torch::Tensor tensor_of(TensorView t) {
  return torch::from_blob(t.data(), {t.size(0), t.size(1)},
                          t.dtype() == DType::float64 ? torch::kFloat64 : torch::kFloat32);
}

// Every rank's module, made and used on its own thread.
void on_ranks(const LayerCase& shape, const Plan& plan, const std::function<void(int, MoeLayerModule&)>& body) {
  LocalWorld world(shape.parallel.ranks());
  world.run([&](int rank) {
    const auto comm = world.communicator(rank);
    const auto layer = std::make_shared<MoeLayer>(rank_shape(shape, rank, plan.structure->flow), LayerSeed{},
                                                  LayerComms::split(*comm, shape.parallel));
    MoeLayerModule module(layer, plan);
    body(rank, module);
    comm->barrier({*make_cpu_device()->make_stream("end")});
  });
}

struct Spread {
  ParallelShape parallel;
  std::string schedule;
};

class MoeLayerModuleTest : public testing::TestWithParam<Spread> {};

INSTANTIATE_TEST_SUITE_P(Ranks, MoeLayerModuleTest,
                         testing::Values(Spread{{}, "ds-moe"}, Spread{{.nodes = 2, .ranks_per_node = 2}, "fsmoe"},
                                         Spread{{.nodes = 2, .ranks_per_node = 2}, "tutel"},
                                         Spread{{.nodes = 2, .ranks_per_node = 2, .mp = 1, .ep = 2, .esp = 1},
                                                "fsmoe"}));

TEST_P(MoeLayerModuleTest, GradientsAreTheReferences) {
  const LayerCase shape = case_of(GetParam().parallel, DType::float64);
  const Plan plan = plan_of(shape, GetParam().schedule, GetParam().schedule == "ds-moe" ? 1 : 2);
  const auto ranks = static_cast<size_t>(shape.parallel.ranks());
  std::vector<std::shared_ptr<MoeLayer>> layers(ranks);
  LocalWorld world(static_cast<int>(ranks));
  world.run([&](int rank) {
    const auto comm = world.communicator(rank);
    auto& layer = layers[rank];
    layer = std::make_shared<MoeLayer>(rank_shape(shape, rank), LayerSeed{}, LayerComms::split(*comm, shape.parallel));
    MoeLayerModule module(layer, plan);
    const auto dy = tensor_of(layer->output_gradient()).clone();
    auto x = tensor_of(layer->input()).clone().set_requires_grad(true);
    for (int pass = 0; pass < 2; ++pass) {  // the second adds the same
      const auto y = module.forward(x);
      (y * dy).sum().backward();
    }
    EXPECT_TRUE(torch::equal(x.grad(), 2 * tensor_of(layer->input_gradient())));
    for (const Parameter& p : layer->parameters()) {
      const auto grad = module.named_parameters()[p.name].grad();
      ASSERT_TRUE(grad.defined()) << p.name;
      const auto own = torch::from_blob(p.gradient.data(), grad.sizes(), torch::kFloat64);
      EXPECT_TRUE(torch::allclose(grad, 2 * own, 1e-14, 1e-14)) << p.name;
    }
  });
  std::vector<MoeLayer*> all;
  for (const auto& layer : layers) all.push_back(layer.get());
  verify_layer(all);
}

TEST_P(MoeLayerModuleTest, TwentyStepsLowerTheLoss) {
  const LayerCase shape = case_of(GetParam().parallel, DType::float32);
  const Plan plan = plan_of(shape, GetParam().schedule, 1);
  std::mutex mutex;
  std::vector<double> first(1), last(1);
  on_ranks(shape, plan, [&](int, MoeLayerModule& module) {
    const auto x = tensor_of(module.layer().input()).clone();
    const auto target = tensor_of(module.layer().output_gradient()).clone();
    torch::optim::Adam adam(module.parameters(), torch::optim::AdamOptions(1e-2));
    double begin = 0, loss_now = 0;
    for (int step = 0; step < 20; ++step) {
      adam.zero_grad();
      const auto loss = torch::nn::functional::mse_loss(module.forward(x), target);
      loss.backward();
      adam.step();
      loss_now = loss.item<double>();
      if (step == 0) begin = loss_now;
    }
    const std::lock_guard lock(mutex);
    first[0] += begin;
    last[0] += loss_now;
  });
  EXPECT_LT(last[0], 0.6 * first[0]);
  std::cout << "loss " << first[0] << " -> " << last[0] << "\n";
}

using Gradients = std::vector<torch::Tensor>;

// The gradients of the parameters, which are zeros from then on.
Gradients taken(MoeLayerModule& module) {
  Gradients gradients;
  for (const auto& p : module.parameters()) gradients.push_back(p.grad().clone());
  module.zero_grad();
  return gradients;
}

void expect_equal(const Gradients& found, const Gradients& expected, double factor) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::allclose(found[i], factor * expected[i], 1e-12, 1e-12)) << i;
}

TEST(MoeLayerModule, ABackwardOfAnOlderForwardRunsItAgain) {
  const LayerCase shape = case_of({.nodes = 2, .ranks_per_node = 2}, DType::float64);
  on_ranks(shape, plan_of(shape, "fsmoe", 2), [&](int, MoeLayerModule& module) {
    const auto x = tensor_of(module.layer().input()).clone();
    module.begin_step(3, true);
    module.forward(x).square().sum().backward();
    const Gradients expected = taken(module);
    module.begin_step(3, true);
    const auto older = module.forward(x).square().sum();
    module.begin_step(4, true);
    const auto newer = module.forward(2 * x).square().sum();
    older.backward({}, true);
    expect_equal(taken(module), expected, 1);
    newer.backward();
    module.zero_grad();
    older.backward();
    expect_equal(taken(module), expected, 1);
    EXPECT_THROW(older.backward(), c10::Error) << "what it saved is released";
  });
}

TEST(MoeLayerModule, AWeightThatChangedHasNoBackward) {
  const LayerCase shape = case_of({}, DType::float64);
  on_ranks(shape, plan_of(shape, "ds-moe", 1), [&](int, MoeLayerModule& module) {
    const auto loss = module.forward(tensor_of(module.layer().input()).clone()).sum();
    {
      const torch::NoGradGuard no_grad;
      module.parameters().front().add_(1);
    }
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

TEST(MoeLayerModule, LossesOfRanksAreSummedOrAveraged) {
  LayerCase shape = case_of({.nodes = 2, .ranks_per_node = 2}, DType::float64);
  const Plan plan = plan_of(shape, "fsmoe", 1);
  LocalWorld world(shape.parallel.ranks());
  world.run([&](int rank) {
    const auto comm = world.communicator(rank);
    const auto comms = LayerComms::split(*comm, shape.parallel);
    Gradients summed, averaged;
    torch::Tensor d_summed, d_averaged;
    for (const RankLosses losses : {RankLosses::summed, RankLosses::averaged}) {
      const auto layer = std::make_shared<MoeLayer>(rank_shape(shape, rank, plan.structure->flow), LayerSeed{}, comms);
      MoeLayerModule module(layer, plan, nullptr, losses);
      const auto x = tensor_of(layer->input()).clone().set_requires_grad(true);
      module.forward(x).square().sum().backward();
      (losses == RankLosses::summed ? summed : averaged) = taken(module);
      (losses == RankLosses::summed ? d_summed : d_averaged) = x.grad();
    }
    expect_equal(averaged, summed, 1.0 / shape.parallel.ranks());
    EXPECT_TRUE(torch::allclose(d_averaged, d_summed, 1e-12, 1e-12)) << "its own loss's";
  });
}

TEST(MoeLayerModule, RefusesOtherTokensAndSecondDerivatives) {
  const LayerCase shape = case_of({}, DType::float32);
  on_ranks(shape, plan_of(shape, "ds-moe", 1), [&](int, MoeLayerModule& module) {
    const auto x = tensor_of(module.layer().input()).clone();
    EXPECT_THROW(module.forward(x.slice(0, 1)), BadInput);
    std::string told;
    module.on_failed_backward([&told](const std::string& line) { told = line; });
    EXPECT_THROW(module.forward(x).sum().backward({}, std::nullopt, true), Unsupported);
    EXPECT_TRUE(told.starts_with("the layer's backward: found create_graph=True")) << told;
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(module.forward(x).requires_grad());
  });
}

TEST(MoeLayerModule, WeightsThatGotOtherMemoryAreTakenOver) {
  const LayerCase shape = case_of({}, DType::float32);
  on_ranks(shape, plan_of(shape, "ds-moe", 1), [&](int, MoeLayerModule& module) {
    const torch::NoGradGuard no_grad;
    const auto x = tensor_of(module.layer().input()).clone();
    const auto before = module.forward(x);
    for (auto& p : module.parameters()) p.set_data(p.clone());
    EXPECT_TRUE(torch::equal(module.forward(x), before));
    for (auto& p : module.parameters()) p.set_data(torch::zeros_like(p));
    EXPECT_FALSE(torch::equal(module.forward(x), before));
    EXPECT_TRUE(torch::equal(module.forward(x), x)) << "residuals alone";
  });
}

TEST(MoeLayerModule, OtherWeightsLeaveItsOwn) {
  const LayerCase shape = case_of({}, DType::float32);
  on_ranks(shape, plan_of(shape, "ds-moe", 1), [&](int, MoeLayerModule& module) {
    const torch::NoGradGuard no_grad;
    const auto x = tensor_of(module.layer().input()).clone();
    const auto before = module.forward(x);
    const auto flat = torch::zeros({4 * 16 * 24});  // whose parts keep its memory
    Gradients own, zeros;
    for (const auto& p : module.parameters()) {
      own.push_back(p.clone());
      zeros.push_back(flat.slice(0, 0, p.numel()).view(p.sizes()));
    }
    EXPECT_TRUE(torch::equal(module.forward(x, zeros), x)) << "residuals alone";
    expect_equal(module.parameters(), own, 1);
    flat.fill_(0.5);
    EXPECT_FALSE(torch::equal(module.forward(x, zeros), x));
    EXPECT_TRUE(torch::equal(module.forward(x), before));
    EXPECT_TRUE(flat.eq(0.5).all().item<bool>());
  });
}

// Between forward and backward, and at its peak, a module's layer has the tensors that the runner alone has.
TEST(MoeLayerModule, KeepsWhatTheRunnerKeeps) {
  const LayerCase shape = case_of({.nodes = 1, .ranks_per_node = 1}, DType::float32);
  for (const int degree : {1, 2}) {
    const Plan plan = plan_of(shape, "fsmoe", degree);
    using Layer = std::shared_ptr<MoeLayer>;
    const auto bytes_of = [&](const std::function<void(const Layer&, const std::function<void()>& between)>& pass) {
      const int64_t before = tensor_memory.live_bytes;
      tensor_memory.peak_bytes = before;
      int64_t between = 0;
      LocalWorld world(1);
      world.run([&](int rank) {
        const auto comm = world.communicator(rank);
        pass(std::make_shared<MoeLayer>(rank_shape(shape, rank, plan.structure->flow), LayerSeed{},
                                        LayerComms::split(*comm, shape.parallel)),
             [&] { between = tensor_memory.live_bytes - before; });
      });
      return std::pair(between, tensor_memory.peak_bytes - before);
    };
    const auto runner = bytes_of([&](const Layer& layer, const std::function<void()>& between) {
      LayerBinding binding(*layer, plan);
      const auto device = make_cpu_device();
      Executor executor(*device, plan.structure);
      executor.run(binding, {}, Phase::forward);
      between();
      executor.run(binding, {}, Phase::backward);
      const auto end = device->make_stream("end");
      layer->finish_step(*end);
      end->synchronize();
    });
    const auto module = bytes_of([&](const Layer& layer, const std::function<void()>& between) {
      MoeLayerModule own(layer, plan);
      const auto y = own.forward(tensor_of(layer->input()).clone().set_requires_grad(true));
      between();
      y.sum().backward();
    });
    EXPECT_EQ(module, runner) << degree;
    EXPECT_GT(runner.first, 0) << degree;
  }
}

}  // namespace
}  // namespace moe
