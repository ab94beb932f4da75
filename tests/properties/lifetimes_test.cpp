// Memory slots of random whole models: whatever two passes hold one after the other, the plan's own accesses of the
// first are all ordered before those of the second, by the transitive closure of its order.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>

#include "moe/plan/memory.h"
#include "tests/plan/closure.h"
#include "tests/properties/any_model.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::fits;
using any_model::any_model;
using any_model::any_model_decision;
using any_model::AnyModel;

// Buffers of passes.
using Buffers = std::set<std::tuple<Buffer, int, int>>;

// Finds the forwards' buffers that a backward reads.
Buffers kept_of(const Plan& plan) {
  Buffers kept;
  for (const Task& task : plan.tasks())
    for (const Access& a : task.reads)
      if (task.phase == Phase::backward && a.phase == Phase::forward) kept.insert({a.buffer, a.layer, a.micro_batch});
  return kept;
}

// Finds what passes from layer to layer, or leaves the stage: both sides hold it.
Buffers passed_on(const Plan& plan) {
  Buffers borders;
  for (const Task& task : plan.tasks())
    for (const Access& a : task.reads)
      if (a.layer != task.layer || !is_of_layer(task.kind)) borders.insert({a.buffer, a.layer, a.micro_batch});
  return borders;
}

// Finds what MP ranks add up behind a backward's attention.
Buffers sums_of(const Plan& plan) {
  Buffers sums;
  for (const Task& task : plan.tasks())
    if (task.phase == Phase::backward &&
        (task.kind == TaskKind::mp_reducescatter || task.kind == TaskKind::mp_allreduce))
      for (const Access& a : task.reads) sums.insert({a.buffer, a.layer, a.micro_batch});
  return sums;
}

// Names the lifetime of what a task reads or writes; none: of a layer's border, of weights, of a model's ends.
std::optional<Lifetime> lifetime_of(const Access& a, const Buffers& kept) {
  using enum Buffer;
  const bool forward = a.phase == Phase::forward;
  switch (a.buffer) {
    case queries_partial:
      return Lifetime::input_sum;  // keys and values add theirs in place
    case gathered_input:
    case all_keys_values:
      if (forward) return Lifetime::kept;  // attention's backward reads it
      [[fallthrough]];
    case keys_values:
    case received_keys_values:
    case mixed:
    case attention_partial:
    case hidden:
    case tokens:
    case attention_hidden:
      if (forward && kept.contains({a.buffer, a.layer, a.micro_batch})) return Lifetime::kept;
      return forward ? Lifetime::dense_forward : Lifetime::dense_backward;
    case input:
    case output:
    case gradient:
    case token_gradients:
    case gathered_output:
    case received:
    case logits:
    case end_input:
    case end_partial:
    case softmax_sums:
      return std::nullopt;
    default:
      if (forward && kept.contains({a.buffer, a.layer, a.micro_batch})) return Lifetime::kept;
      return forward ? Lifetime::moe_forward : Lifetime::moe_backward;
  }
}

// By lifetime, layer, micro-batch, and whether a forward made it that runs again: its tasks.
using Holders = std::map<std::tuple<int, int, int, bool>, std::vector<int>>;

Holders accessed(const Plan& plan) {
  Holders all;
  const Buffers kept = kept_of(plan), borders = passed_on(plan), sums = sums_of(plan);
  for (const Task& task : plan.tasks()) {
    const auto add = [&](const Access& a) {
      const bool sum = a.phase == Phase::backward && sums.contains({a.buffer, a.layer, a.micro_batch});
      const auto lifetime = sum ? Lifetime::input_sum : lifetime_of(a, kept);
      if (!lifetime || borders.contains({a.buffer, a.layer, a.micro_batch})) return;
      std::vector<int>& tasks = all[{static_cast<int>(*lifetime), a.layer, a.micro_batch, a.is_recompute}];
      if (tasks.empty() || tasks.back() != task.id) tasks.push_back(task.id);
    };
    for (const Access& a : task.reads) add(a);
    for (const Access& a : task.writes) add(a);
  }
  return all;
}

struct Counted {
  int plans = 0, shared = 0, again = 0;
};

void expect_ordered(const Plan& plan, Counted& counted) {
  const MemorySlots slots = memory_slots(plan);
  const Closure before = closure_of(plan);
  std::map<int, std::vector<const std::vector<int>*>> held;  // by slot
  const Holders holders = accessed(plan);
  for (const auto& [key, tasks] : holders) {
    const auto [lifetime, layer, micro_batch, again] = key;
    const int slot = slots.pass_slots(layer, micro_batch)[lifetime];
    ASSERT_GE(slot, 0);
    held[slot].push_back(&tasks);
  }
  for (const auto& [slot, all] : held)
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = i + 1; j < all.size(); ++j) {
        ++counted.shared;
        const std::vector<int>&a = *all[i], &b = *all[j];
        const bool first = a.front() < b.front();
        for (const int early : first ? a : b)
          for (const int late : first ? b : a)
            ASSERT_TRUE(before[late][early]) << plan.schedule << ", slot " << slot << ": " << plan.tasks()[early].name()
                                             << " is not ordered before " << plan.tasks()[late].name();
      }
  ++counted.plans;
  counted.again += std::ranges::any_of(plan.tasks(), &Task::is_recompute);
}

TEST(Lifetimes, PassesThatShareASlotTakeTurns) {
  Counted counted;
  for (uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    AnyModel any = any_model(seed);
    const bool interleaves = any.model.split().virtual_stages > 1;
    any.model.micro_batches = interleaves ? any.model.shape.parallel.pp : std::min(any.model.micro_batches, 3);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, any.model.shape)) continue;
      const Plan plan = build_model_plan(schedule, any.model, any_model_decision(schedule, any.model, seed));
      if (plan.tasks().size() > 1200) continue;
      SCOPED_TRACE(any.text);
      expect_ordered(plan, counted);
      if (testing::Test::HasFailure()) break;
    }
  }
  EXPECT_GT(counted.plans, 500);
  EXPECT_GT(counted.shared, 5000);
  EXPECT_GT(counted.again, 50);
}

// By hand: one micro-batch after the other, layer by layer, needs one slot for what a pass needs meanwhile.
TEST(Lifetimes, OfPlainOrdersNeedOneSlotOfEachPart) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  for (const int pp : {1, 2})
    for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b})
      for (const char* name : {"ds-moe", "tutel", "fsmoe", "fsmoe-dw"}) {
        const ParallelShape parallel{.nodes = 2 * pp, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = pp};
        const ModelShape model{complete(layer, parallel, Rounding::ragged), 4, 6, order};
        const Schedule& schedule = find_schedule(name);
        const MemoryRequest r =
            memory_request(build_model_plan(schedule, model, any_model_decision(schedule, model, 7)));
        for (const StageSlots& stage : r.slots)
          EXPECT_EQ(
              std::tuple(stage.parts.dense, stage.parts.moe, stage.parts.input_sums, stage.parts.output_gradients),
              std::tuple(1, 1, 1, 1))
              << name << ", " << pp << " stages, " << name_of(order);
      }
}

// By hand: a layer whose forward runs again keeps its output all along, and the rest of one pass at a time. Over two MP
// ranks the next pass gathers its tokens while the one before brings its rows home.
TEST(Lifetimes, OfForwardsThatRunAgainNeedFewSlots) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  for (const int mp : {1, 2})
    for (const char* name : {"ds-moe", "tutel", "fsmoe", "fsmoe-dw"}) {
      ParallelShape parallel{.nodes = 2, .ranks_per_node = 2, .mp = mp, .ep = 2, .esp = 2};
      parallel.recompute = Recompute::full;
      const ModelShape model{complete(layer, parallel, Rounding::ragged), 4, 6, PipelineOrder::gpipe};
      const Schedule& schedule = find_schedule(name);
      const MemoryRequest r = memory_request(build_model_plan(schedule, model, any_model_decision(schedule, model, 7)));
      EXPECT_EQ(r.slots.at(0).outputs, 3 * 6) << name << ": the last layer's have no slot";
      EXPECT_LE(r.slots.at(0).kept, mp) << name;
    }
}

}  // namespace
}  // namespace moe
