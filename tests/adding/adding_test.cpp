// The parts of docs/adding.md do what the page says that they do.
#include <gtest/gtest.h>
#include <sstream>

#include "moe/comm/local/local_world.h"
#include "moe/measure/modules/module_run.h"
#include "moe/prices/pricer.h"
#include "tests/adding/parts.h"
#include "tests/base/error_of.h"
#include "tests/layer/local_layers.h"

namespace moe {
namespace {

LayerCase case_of(DType dtype) {
  LayerCase shape = measure::small_module_case();
  shape.layer.dtype = dtype;
  return shape;
}

TEST(Adding, AGate) {
  const auto run = measure::make_gate_run({.name = "relu", .make = make_relu_gate}, case_of(DType::float64));
  EXPECT_EQ(measure::slope_error(*run), "");
}

TEST(Adding, AnOrder) {
  const OrderRow row{"rowwise", make_rowwise_order};
  for (const bool is_unpermute : {false, true}) {
    EXPECT_EQ(measure::slope_error(*measure::make_order_run(row, is_unpermute, case_of(DType::float64))), "");
    const auto mine = measure::make_order_run(row, is_unpermute, case_of(DType::float32));
    const auto known =
        measure::make_module_run(is_unpermute ? "i-order:tutel" : "order:tutel", case_of(DType::float32));
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      for (measure::ModuleRun* run : {mine.get(), known.get()}) run->prepare(phase), run->run(phase);
      const bool forward = phase == Phase::forward;
      const TensorView a = forward ? mine->outputs()[0].first : mine->input_gradient();
      const TensorView b = forward ? known->outputs()[0].first : known->input_gradient();
      for (int64_t i = 0; i < a.elements(); ++i) EXPECT_NEAR(a.as<float>()[i], b.as<float>()[i], 1e-5F) << i;
    }
  }
}

TEST(Adding, AnExpert) {
  EXPECT_EQ(measure::slope_error(*measure::make_expert_run({"relu", make_relu_expert}, case_of(DType::float64))), "");
}

TEST(Adding, ADispatcher) {
  constexpr int kRanks = 3, kBlock = 4;  // floats
  LocalWorld world(kRanks);
  const auto device = make_cpu_device();
  world.run([&](int rank) {
    const auto ep = world.communicator(rank);
    const std::vector<int64_t> bytes(kRanks, kBlock * 4);
    const auto dispatcher = make_gathered_dispatcher({.ep = *ep, .max_bytes = kRanks * kBlock * 4});
    std::vector<float> send(kRanks * kBlock), receive(kRanks * kBlock);
    for (size_t i = 0; i < send.size(); ++i) send[i] = static_cast<float>(100 * rank) + static_cast<float>(i);
    const auto stream = device->make_stream("test");
    dispatcher->exchange({send.data(), bytes, receive.data(), bytes}, {*stream, {}, "exchange"});
    stream->synchronize();
    for (int from = 0; from < kRanks; ++from)
      for (int i = 0; i < kBlock; ++i)
        EXPECT_EQ(receive[from * kBlock + i], static_cast<float>(100 * from + rank * kBlock + i));
  });
}

LayerCase four_ranks() {
  LayerShape layer{.batch = 2, .seq = 8, .model_dim = 16, .hidden = 8, .heads = 4, .experts = 4};
  layer.dtype = DType::float64;
  return complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
}

TEST(Adding, AHook) {
  const LayerCase shape = four_ranks();
  LocalLayers layers(shape, {});
  for (MoeLayer* rank : layers.ranks()) rank->set_hook(make_scaled_hook(cpu_math()));
  layers.run(plan_for(shape, "fsmoe", 2, 2));
  verify_layer(layers.ranks());
}

// Registers all parts, once. The gate is a known one, which autograd has too.
void register_parts() {
  static const Ffn expert = [] {
    GateRow gate = find_gate("switch");
    register_gate({"renamed", "the gate switch by another name"}, gate);
    register_order({"rowwise", "row by row on one thread"}, {.make = make_rowwise_order});
    register_dispatcher({"gathered", "AllGather of everything"}, {.make = make_gathered_dispatcher});
    register_hook({"scaled", "rows times 1024 while they are sent"}, {.make = make_scaled_hook});
    return register_expert({"relu", "two GEMMs with ReLU", Ffn::gpt, 2}, {.make = make_relu_expert});
  }();
  ASSERT_EQ(name_of(expert), "relu");
  ASSERT_EQ(ffn_from("relu", "ffn"), expert);
}

TEST(Registered, ALayerOfSuchPartsIsVerified) {
  register_parts();
  LayerShape layer = four_ranks().layer;
  layer.gate = "renamed";
  layer.order = "rowwise";
  layer.dispatcher = "gathered";
  layer.hook = "scaled";
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  LocalLayers layers(shape, {});
  layers.run(plan_for(shape, "fsmoe", 2, 2));
  verify_layer(layers.ranks());
  layer.gate = "unheard";
  EXPECT_EQ(error_of<BadInput>([&] { complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged); }),
            "gate: unknown 'unheard', expected one of: gshard, switch, topk, sigmoid, xmoe, softmoe, "
            "expert-choice, renamed");
}

TEST(Registered, ExpertsRunInEveryDegreeAlike) {
  register_parts();
  LayerShape layer = four_ranks().layer;
  layer.ffn = ffn_from("relu", "ffn");
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  std::vector<double> first;
  for (const int degree : {1, 2}) {
    LocalLayers layers(shape, {});
    layers.run(plan_for(shape, "fsmoe", degree, degree));
    const TensorView output = layers.ranks().front()->output();
    const std::vector<double> found(output.as<double>(), output.as<double>() + output.elements());
    if (degree == 1) first = found;
    EXPECT_EQ(found, first);
    EXPECT_EQ(error_of<WrongResult>([&] { verify_layer(layers.ranks()); }), "expert relu has no reference");
  }
}

TEST(Registered, PricesAreOfTheirOwnRows) {
  register_parts();
  LayerShape layer = four_ranks().layer;
  layer.gate = "renamed";
  layer.dispatcher = "gathered";
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  Profile profile = nominal_profile(complete(four_ranks().layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged));
  profile.source = "made up";
  for (CommRow row : std::vector(profile.comm)) {
    if (row.op != Op::alltoall) continue;
    row.algorithm = "gathered";
    row.alpha_s = 3;
    row.beta_s_per_byte = 1e-30;
    profile.comm.push_back(row);
  }
  profile.modules.push_back({.name = "gate:renamed", .seq = {}, .alpha_s = 2, .beta_s_per_flop = 1e-30});
  const LayerPricer pricer(profile, shape);
  EXPECT_NEAR(pricer.dense_seconds(TaskKind::gate, Phase::forward), 2, 1e-9);
  EXPECT_NEAR(pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, 1), 3, 1e-9);
  std::stringstream file;
  write_profile(profile, file);
  EXPECT_EQ(profile_of(parse_toml(file.str(), "written")).comm.back().algorithm, "gathered");
}

TEST(Registered, NamesAreTheirOwn) {
  register_parts();
  EXPECT_EQ(error_of<BadInput>([] {
              register_gate({"switch", ""}, find_gate("switch"));
            }),
            "gate: found a second 'switch', expected a name of its own");
  EXPECT_EQ(error_of<BadInput>([] {
              register_order({"", ""}, {.make = make_rowwise_order});
            }),
            "order: found no name, expected one");
  EXPECT_EQ(error_of<BadInput>([] {
              register_expert({"four", "", Ffn::gpt, 4}, {.make = make_relu_expert});
            }),
            "expert four: found 4 GEMMs, expected 2 or 3");
}

TEST(Adding, AScheduleRunsAndIsVerified) {
  const LayerCase shape = four_ranks();
  LocalLayers layers(shape, {});
  for (const int degree : {1, 2, 4}) {
    const int64_t half = gradient_bytes(shape) / 2;
    const Plan plan = build_plan(kLagged, shape, with_split(kLagged, degree, 4 / degree, half));
    layers.run(plan);
    verify_layer(layers.ranks());
  }
}

}  // namespace
}  // namespace moe
