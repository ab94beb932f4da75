// Stacks hold what is estimated of their plans, within a tenth: float32 layers large enough for what is not counted
// (counts, tables, signals) to be small.
#include "moe/plan/memory.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "moe/base/random.h"
#include "moe/schedule/model_plan.h"
#include "tests/properties/any_model.h"
#include "tests/schedule/any_decision.h"
#include "tests/stack/local_stacks.h"

namespace moe {
namespace {

ModelShape drawn_model(uint64_t seed) {
  auto draw = [&, i = uint64_t{0}](uint64_t below) mutable { return random_bits(seed, 81, i++) % below; };
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 64, .hidden = 96, .heads = 4, .experts = 4, .top_k = 2};
  layer.capacity_factor = 1.2;
  if (draw(4) == 0) layer.capacity_factor.reset();
  layer.norm = draw(4) == 0 ? Norm::none : Norm::rmsnorm;
  layer.ffn = draw(2) == 0 ? Ffn::gpt : Ffn::mixtral;
  if (draw(4) == 0) layer.shared_hidden = 64;
  if (draw(6) == 0) layer.hook = "bf16";
  if (draw(4) == 0) layer.order = "gshard";
  constexpr const char* kGates[] = {"gshard", "gshard", "switch", "xmoe", "softmoe"};
  if (const char* gate = kGates[draw(5)]; layer.capacity_factor) layer.gate = gate;
  const bool fp8 = seed % 10 == 0;
  if (fp8) {
    layer.ffn = Ffn::mixtral_fp8;
    layer.model_dim = kFp8Block;
    layer.hidden = 2 * kFp8Block;
    if (layer.shared_hidden > 0) layer.shared_hidden = 2 * kFp8Block;
  }
  if (random_bits(seed, 84, 0) % 4 == 0) {
    layer.kv_lora_rank = 24;
    layer.q_lora_rank = seed % 2 == 0 ? 40 : 0;
    layer.qk_nope_head_dim = 12;
    layer.qk_rope_head_dim = 8;
    layer.v_head_dim = 20;
  }
  ParallelShape parallel{.nodes = 2, .ranks_per_node = 2, .mp = draw(2) == 0 ? 1 : 2, .ep = 2, .esp = 2};
  if (draw(3) == 0) parallel.esp = 1, parallel.edp = 0;
  if (parallel.mp == 1 && random_bits(seed, 83, 0) % 2 == 0) parallel.cp = 2;
  if (random_bits(seed, 85, 0) % 2 == 0 && layer.kv_lora_rank == 0) parallel.cp_exchange = CpExchange::ring;
  parallel.pp = 1 + static_cast<int>(draw(2));
  parallel.nodes *= parallel.pp;
  ModelShape model;
  if (draw(4) == 0) parallel.recompute = Recompute::full;
  model.shape = complete(layer, parallel, Rounding::ragged);
  model.layers = parallel.pp * (1 + static_cast<int>(draw(3)));
  model.micro_batches = 1 + static_cast<int>(draw(4));
  model.order = draw(2) == 0 ? PipelineOrder::gpipe : PipelineOrder::one_f_one_b;
  if (random_bits(seed, 82, 0) % 2 == 0 && parallel.pp == 2) {
    model.virtual_stages = 2;
    model.layers = 4 * (1 + static_cast<int>(seed % 2));
    model.micro_batches = 2 * (1 + static_cast<int>(seed % 3));
    model.order = PipelineOrder::one_f_one_b;
  }
  if (model.layers > parallel.pp && draw(3) == 0) {
    model.dense = {{std::vector<bool>(static_cast<size_t>(model.layers))}, fp8 ? 2 * kFp8Block : 160};
    model.dense.by_layer.front() = true;
  }
  model.step.planned = true;
  return model;
}

// The mean of the stages', each by its own slots.
double estimated_bytes(const Plan& plan) {
  MemoryRequest request = memory_request(plan);
  request.keeps_ends = true;
  request.scores = stores_attention_scores(DeviceKind::cpu, AttentionBy::own);
  double sum = 0;
  const int stages = plan.shape.parallel.pp;
  for (int stage = 0; stage < stages; ++stage) {
    const MemoryEstimate e = estimate_stage(request, stage);
    sum += e.total() - e.optimizer;
  }
  return sum / stages;
}

TEST(StackMemory, IsWhatIsEstimated) {
  std::vector<double> apart;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const ModelShape model = drawn_model(seed);
    const auto fitting = any_decision::fitting(model.shape);
    const Schedule& schedule = *fitting[seed % fitting.size()];
    const Plan plan = build_model_plan(schedule, model, any_model::any_model_decision(schedule, model, seed));
    const int64_t before = tensor_memory.live_bytes;
    LocalStacks stacks(stack_shape(plan), {.seed = seed});
    stacks.run(plan, 2);
    const double ranks = model.shape.parallel.ranks();
    const double measured = static_cast<double>(tensor_memory.live_bytes - before) / ranks;
    const double estimated = estimated_bytes(plan);
    apart.push_back(std::abs(estimated / measured - 1));
    EXPECT_LT(apart.back(), 0.1) << seed << ": " << schedule.name << ", " << describe(model.shape.layer) << ", mp "
                                 << model.shape.parallel.mp << " esp " << model.shape.parallel.esp << " pp "
                                 << model.shape.parallel.pp << ", " << model.layers << " layers, "
                                 << model.micro_batches << " micro-batches: estimated " << estimated << ", measured "
                                 << measured;
  }
  std::ranges::sort(apart);
  fmt::print("estimated and measured differ by {:.1f} % in the median, {:.1f} % at worst\n",
             100 * apart[apart.size() / 2], 100 * apart.back());
}

// What passes hold in turns is less than what each would hold for itself.
TEST(StackMemory, FallsWherePassesTakeTurns) {
  ModelShape model = drawn_model(1);
  model.layers = 4;
  model.micro_batches = 4;
  model.shape.parallel.pp = 1;
  model.shape.parallel.nodes = 2;
  for (const auto& [order, most] : {std::pair{PipelineOrder::gpipe, 0.75}, {PipelineOrder::one_f_one_b, 0.4}}) {
    model.order = order;
    const Schedule& schedule = find_schedule("fsmoe");
    const Plan plan = build_model_plan(schedule, model, any_model::any_model_decision(schedule, model, 3));
    StackShape shape = stack_shape(plan);
    const auto bytes_of = [&] {
      const int64_t before = tensor_memory.live_bytes;
      LocalStacks stacks(shape, {.seed = 5});
      stacks.run(plan, 2);
      return static_cast<double>(tensor_memory.live_bytes - before);
    };
    const double turns = bytes_of();
    shape.slots = {};
    const double apart = bytes_of();
    EXPECT_LT(turns, most * apart) << name_of(order);
    fmt::print("{}: {:.2f} of what passes would hold apart\n", name_of(order), turns / apart);
  }
}

}  // namespace
}  // namespace moe
