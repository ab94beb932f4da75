// Each test breaks one rule of what a layer's pass has and sees the error that names the task: halves of a backward,
// the shared expert, a forward that runs again.
#include <algorithm>
#include <gtest/gtest.h>

#include "tests/plan/broken_plan.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using namespace broken_plan;

TEST(PlanChecks, HalvesOfAnExpertThatDoNotGoTogether) {
  const Plan plan = good_plan("fsmoe-dw");
  EXPECT_EQ(complaint(plan), "no complaint");
  std::string named;
  const auto last = [&](Structure& s, TaskKind kind) -> Task& {
    Task& task = task_of(s, kBackward, kind, 2);
    named = task.name();
    return task;
  };
  const auto becomes = [&](Structure& s, TaskKind kind) {
    Task& task = last(s, TaskKind::expert_dx);
    task.kind = kind;
    named = task.name();
  };
  const Plan mixed = changed(plan, [&](Structure& s) { becomes(s, TaskKind::expert); });
  expect_named(mixed, named, "is in a backward with 3 tasks of kind expert_dw");
  const Plan fewer = changed(plan, [&](Structure& s) {
    drop(s, last(s, TaskKind::expert_dw).id);
    named = task_of(s, kBackward, TaskKind::expert_dw, 1).name();
  });
  expect_named(fewer, named, "rows pass this layer's expert_dw");
  const Plan early = changed(plan, [&](Structure& s) {
    std::vector<int>& queue = s.lanes[0].queue;
    const auto at = [&](TaskKind kind) { return std::ranges::find(queue, last(s, kind).id); };
    std::iter_swap(at(TaskKind::expert_dx), at(TaskKind::expert_dw));
  });
  EXPECT_NE(complaint(early), "no complaint");
}

TEST(PlanChecks, BlocksOfARingThatAreMissing) {
  LayerCase shape = four_ranks();
  shape.layer.seq *= 4;
  shape =
      complete(shape.layer,
               {.nodes = 4, .ranks_per_node = 1, .mp = 1, .ep = 2, .esp = 1, .cp = 4, .cp_exchange = CpExchange::ring},
               Rounding::ragged);
  const Plan plan = build_plan(find_schedule("fsmoe"), shape, {2, 3});
  EXPECT_EQ(complaint(plan), "no complaint");
  for (const auto& [phase, kind, rule] :
       {std::tuple(kForward, TaskKind::heads, "3 blocks pass its heads, 3 blocks and 0 gradients"),
        {kBackward, TaskKind::cp_send, "4 blocks pass its heads, 2 blocks and 4 gradients"},
        {kBackward, TaskKind::cp_gradient_send, "4 blocks pass its heads, 3 blocks and 3 gradients"}}) {
    std::string named;
    const Plan fewer = changed(plan, [&](Structure& s) {
      const int last = task_of(s, phase, kind).chunks - 1;
      drop(s, task_of(s, phase, kind, last).id);
      named = task_of(s, phase, TaskKind::attention).name();
    });
    expect_named(fewer, named, rule);
  }
  const Plan twice = changed(plan, [&](Structure& s) { task_of(s, kForward, TaskKind::heads, 2).chunk = 1; });
  EXPECT_NE(complaint(twice).find("is block 1 of 4, expected block 2 of 4"), std::string::npos) << complaint(twice);
}

TEST(PlanChecks, HalvesOfAttentionThatDoNotGoTogether) {
  const Plan plan = good_plan("fsmoe-dw");
  std::string named;
  const Plan alone = changed(plan, [&](Structure& s) {
    drop(s, task_of(s, kBackward, TaskKind::attention_dw).id);
    named = task_of(s, kBackward, TaskKind::attention_dx).name();
  });
  expect_named(alone, named, "1 attention_dx and 0 attention_dw");
  const Plan mixed = changed(plan, [&](Structure& s) {
    Task& task = task_of(s, kBackward, TaskKind::attention_dx);
    task.kind = TaskKind::attention;
    named = task.name();
  });
  expect_named(mixed, named, "tokens pass 1 attentions, 0 attention_dx and 1 attention_dw");
  const Plan early = changed(plan, [&](Structure& s) {
    std::vector<int>& queue = s.lanes[0].queue;
    const auto at = [&](TaskKind kind) { return std::ranges::find(queue, task_of(s, kBackward, kind).id); };
    std::iter_swap(at(TaskKind::attention_dx), at(TaskKind::attention_dw));
  });
  EXPECT_NE(complaint(early), "no complaint");
}

TEST(PlanChecks, SharedExpertThatTokensDoNotPass) {
  LayerCase shape = four_ranks();
  shape.layer.shared_hidden = 8;
  Plan one = build_plan(find_schedule("fsmoe"), shape, {2, 3, 1000}), none = good_plan();
  EXPECT_EQ(complaint(one), "no complaint");
  std::swap(one.shape, none.shape);
  const auto order = [](Structure s) { return task_of(s, kForward, TaskKind::order).name(); };
  expect_named(one, order(*one.structure), "tokens pass 1 shared experts beside it, expected 0");
  expect_named(none, order(*none.structure), "tokens pass 0 shared experts beside it, expected 1");
}

TEST(PlanChecks, SharedExpertsSumBeforeItIsThere) {
  LayerCase shape = four_ranks();
  shape.layer.shared_hidden = 8;
  const Plan bad = changed(build_plan(find_schedule("fsmoe"), shape, {2, 3, 1000}), [](Structure& s) {
    std::erase(task_of(s, kForward, TaskKind::i_order).after, task_of(s, kForward, TaskKind::shared_reducescatter).id);
  });
  EXPECT_NE(complaint(bad).find("reads shared_sum before"), std::string::npos) << complaint(bad);
}

TEST(PlanChecks, ASharedExpertIsReadByWhatNeedsIt) {
  LayerCase shape = four_ranks();
  shape.layer.shared_hidden = 64;
  const Plan plan = build_plan(find_schedule("fsmoe"), shape, {2, 3, 1000});
  EXPECT_EQ(complaint(plan), "no complaint");
  const auto without = [&](Phase phase, TaskKind kind, auto is, const std::string& rule) {
    std::string name;
    const Plan bad = changed(plan, [&](Structure& s) {
      Task& task = task_of(s, phase, kind);
      name = task.name();
      std::erase_if(task.reads, is);
    });
    expect_named(bad, name, rule);
  };
  const auto sum = [](const Access& a) { return a.buffer == Buffer::shared_sum; };
  without(kForward, TaskKind::i_order, sum, "does not read the sum of the shared expert");
  without(kBackward, TaskKind::gate, sum, "does not read the sum of the shared expert");
  const auto kept = [](const Access& a) { return a.phase == kForward; };
  without(kBackward, TaskKind::shared, kept, "does not read the shared_input of its forward");
}

Plan again_plan() {
  LayerCase shape = four_ranks();
  shape.parallel.recompute = Recompute::full;
  return build_plan(find_schedule("fsmoe"), shape, {2, 3, 1000});
}

Task& again(Structure& s, TaskKind kind) {
  return *std::ranges::find_if(s.tasks, [&](const Task& task) { return task.is_recompute && task.kind == kind; });
}

TEST(PlanChecks, ForwardThatRunsAgainInPart) {
  EXPECT_EQ(complaint(again_plan()), "no complaint");
  std::string named;
  const Plan part = changed(again_plan(), [&](Structure& s) {
    drop(s, again(s, TaskKind::mp_allgather).id);
    named = s.tasks[again(s, TaskKind::attention).id].name();
  });
  expect_named(part, named, "is repeated, but the repeated forward does not have the same tasks");
  const Plan backward = changed(again_plan(), [&](Structure& s) {
    Task& task = task_of(s, kBackward, TaskKind::gate);
    task.is_recompute = true;
    named = task.name();
  });
  EXPECT_NE(complaint(backward), "no complaint");
}

TEST(PlanChecks, ForwardThatRunsAgainBeforeItsFirstEnds) {
  std::string named;
  const Plan early = changed(again_plan(), [&](Structure& s) {
    Task& task = again(s, TaskKind::mp_allgather);
    task.after.clear();
    named = task.name();
  });
  expect_named(early, named, "is repeated before the end of forward i_order of layer 0");
}

TEST(PlanChecks, BackwardThatReadsWhatItsForwardMadeFirst) {
  std::string named;
  const Plan first = changed(again_plan(), [&](Structure& s) {
    Task& task = task_of(s, kBackward, TaskKind::i_order);
    for (Access& access : task.reads)
      if (access.buffer == Buffer::routing) access.is_recompute = false;
    named = task.name();
  });
  expect_named(first, named, "reads routing of the first forward, expected that of the repeated one");
}

}  // namespace
}  // namespace moe
