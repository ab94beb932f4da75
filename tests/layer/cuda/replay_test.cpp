// A layer's passes, replayed as CUDA graphs, leave what issued ones leave, to the bit.
#include <cstdio>
#include <cstring>
#include <gtest/gtest.h>
#include <map>

#include "moe/layer/binding.h"
#include "tests/layer/cuda/test_device.h"
#include "tests/layer/local_layers.h"

namespace moe {
namespace {

using Bytes = std::map<std::string, std::vector<std::byte>>;

LayerCase small_case(DType dtype) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 128, .hidden = 256, .heads = 4, .experts = 8, .top_k = 2};
  layer.kv_heads = 4;
  layer.capacity_factor = 1.2;
  layer.dtype = dtype;
  layer.gate = "gshard";
  layer.norm = Norm::layernorm;
  layer.residual = true;
  layer.bias = true;
  layer.aux_loss = layer.z_loss = 0.1;
  return complete(layer, {}, Rounding::ragged);
}

/// Returns outputs, dX, every gradient, and both buffers of dense gradients.
Bytes results_of(MoeLayer& layer) {
  Bytes all;
  const auto take = [&](const std::string& name, TensorView t) {
    std::vector<std::byte>& bytes = all[name];
    bytes.resize(t.bytes());
    layer.memory().to_host(t.data(), bytes.data(), t.bytes());
  };
  take("output", layer.output());
  take("input gradient", layer.input_gradient());
  for (const Parameter& p : layer.parameters()) take("gradient of " + p.name, p.gradient);
  take("dense gradients, fresh", layer.state().gradients.fresh);
  take("dense gradients, pending", layer.state().gradients.pending);
  return all;
}

void expect_same(const Bytes& issued, const Bytes& found, const std::string& what) {
  ASSERT_EQ(issued.size(), found.size());
  for (const auto& [name, bytes] : issued) {
    const std::vector<std::byte>& other = found.at(name);
    ASSERT_EQ(bytes.size(), other.size()) << name;
    size_t differ = 0, first = bytes.size();
    for (size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != other[i]) ++differ, first = std::min(first, i);
    EXPECT_EQ(differ, 0U) << what << ": " << name << ": " << differ << " of " << bytes.size()
                          << " bytes differ, the first at " << first;
  }
}

void expect_same_bits(const LayerCase& shape, const std::string& schedule, cuda::AlgorithmChoice choice) {
  const Plan plan = plan_for(shape, schedule, 2, 2);
  LocalWorld world(1);
  world.run([&](int rank) {
    const auto device = make_test_device();
    const auto on = cuda::make_layer_device(make_test_memory(), make_test_gemm(choice));
    const auto world_comm = world.communicator(rank);
    MoeLayer layer(rank_shape(shape, rank, plan.structure->flow), {.seed = 5},
                   LayerComms::split(*world_comm, shape.parallel), *on);
    LayerBinding binding(layer, plan);
    Executor executor(*device, plan.structure);
    // Passes go by two: 'i' is issued, 'r' replayed. Every gradient is made anew in each pair.
    const auto pass = [&](char way) { return (way == 'r' ? executor.replay(binding) : executor.run(binding)).pass; };
    const auto results = [&](const std::string& ways) {
      poison(layer);
      double end_s = 0;
      for (const char way : ways) end_s = pass(way).end_s;
      std::printf("%s, %s, passes %s: the last took %.1f us\n", plan.schedule.c_str(),
                  std::string(name_of(shape.layer.dtype)).c_str(), ways.c_str(), end_s * 1e6);
      return results_of(layer);
    };
    const Bytes issued = results("ii");
    expect_same(issued, results("ii"), "issued again");
    for (const Timed timed : {Timed::pass, Timed::tasks}) {
      executor.record(binding, {}, timed);
      for (const char* ways : {"rr", "ir", "ri", "rrr", "iri", "rr", "ii"}) expect_same(issued, results(ways), ways);
    }
    executor.record(binding);
    pass('i');  // the recorded turns are met the other way round
    for (const char* ways : {"rr", "ii", "rr"}) expect_same(issued, results(ways), std::string("shifted ") + ways);
    const std::vector<double> paces(plan.tasks().size(), 1e-4);
    executor.record(binding, paces, Timed::tasks);
    expect_same(issued, results("rr"), "paced rr");
    const RunTimes& times = executor.replay(binding);
    for (const Task& task : plan.tasks()) {
      const TaskTime& time = times.tasks[task.id];
      EXPECT_GE(time.end_s - time.start_s, 1e-4 - 1e-9) << task.name();
    }
  });
}

class LayerReplayTest : public testing::TestWithParam<std::tuple<std::string, DType, cuda::AlgorithmChoice>> {};

TEST_P(LayerReplayTest, LeavesTheSameBits) {
  const auto& [schedule, dtype, choice] = GetParam();
  expect_same_bits(small_case(dtype), schedule, choice);
}

TEST(LayerReplayFp8Test, LeavesTheSameBits) {
  LayerCase shape = small_case(DType::bfloat16);
  shape.layer.ffn = Ffn::mixtral_fp8;
  shape.layer.bias = false;
  shape.layer.seq = 257;  // 155 rows an expert, whose chunks are no fours
  expect_same_bits(complete(shape.layer, {}, Rounding::ragged), "fsmoe", cuda::AlgorithmChoice::first);
}

TEST(LayerReplayRefusalTest, ALayerThatDropsNothingCantBeRecorded) {
  LayerCase shape = small_case(DType::float32);
  shape.layer.capacity_factor.reset();
  shape = complete(shape.layer, {}, Rounding::ragged);
  const Plan plan = plan_for(shape, "fsmoe", 1, 1);
  LocalWorld world(1);
  world.run([&](int rank) {
    const auto device = make_test_device();
    const auto on = make_test_layer_device();
    const auto world_comm = world.communicator(rank);
    MoeLayer layer(rank_shape(shape, rank, plan.structure->flow), {.seed = 5},
                   LayerComms::split(*world_comm, shape.parallel), *on);
    LayerBinding binding(layer, plan);
    Executor executor(*device, plan.structure);
    EXPECT_THROW(executor.record(binding), Unsupported);
    EXPECT_NO_THROW(executor.run(binding));
  });
}

TEST(LayerReplayRefusalTest, RanksThatShareAGpuCantBeRecordedAndRunOn) {
  const ParallelShape two{.nodes = 1, .ranks_per_node = 2, .mp = 1, .ep = 2, .esp = 1};
  const LayerCase shape = complete(small_case(DType::float32).layer, two, Rounding::ragged);
  const Plan plan = plan_for(shape, "fsmoe", 2, 2);
  LocalWorld world(2);
  world.run([&](int rank) {
    const auto device = make_test_device();
    const auto on = make_test_layer_device();
    const auto world_comm = world.communicator(rank);
    MoeLayer layer(rank_shape(shape, rank, plan.structure->flow), {.seed = 5},
                   LayerComms::split(*world_comm, shape.parallel), *on);
    LayerBinding binding(layer, plan);
    Executor executor(*device, plan.structure);
    EXPECT_THROW(executor.record(binding), Unsupported);
    EXPECT_NO_THROW(executor.run(binding));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, LayerReplayTest,
    testing::Combine(testing::Values("fsmoe", "tutel"), testing::Values(DType::float32, DType::bfloat16),
                     testing::Values(cuda::AlgorithmChoice::first, cuda::AlgorithmChoice::by_batch)),
    [](const auto& row) {
      return std::get<0>(row.param) + "_" + std::string(name_of(std::get<1>(row.param))) +
             (std::get<2>(row.param) == cuda::AlgorithmChoice::first ? "" : "_fastest");
    });

}  // namespace
}  // namespace moe
