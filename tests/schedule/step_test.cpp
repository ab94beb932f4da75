// The step of an iteration: what it sums, what breaks its rules, and when each optimizer's task begins.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <tuple>

#include "moe/prices/pricer.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/simulator.h"
#include "tests/plan/broken_plan.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using namespace broken_plan;

constexpr int kLayers = 4;
constexpr int64_t kVocabulary = 100;

// Four nodes of two ranks: EP = 2 and EDP = 2 between nodes, MP = ESP = 2 inside them.
ModelShape replicas(const StepShape& step, int pp = 1) {
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  ModelShape model{
      complete(layer, {.nodes = 4 * pp, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = pp}, Rounding::ragged),
      kLayers, 2, PipelineOrder::one_f_one_b};
  model.step = step;
  add_end_tasks(model, kVocabulary);
  return model;
}

Plan plan_of(const Schedule& schedule, const ModelShape& model) {
  ModelDecision decision;
  decision.backwards.resize(kLayers / model.shape.parallel.pp);
  return build_model_plan(schedule, model, decision);
}

Plan stepped_plan(bool clips = true) {
  return plan_of(find_schedule("fsmoe"), replicas({true, clips, OptimizerKind::adamw}));
}

const Task& find(const Plan& plan, TaskKind kind, int layer) {
  for (const Task& task : plan.tasks())
    if (task.kind == kind && task.layer == layer) return task;
  throw std::logic_error("no such task");
}

// Bytes that tasks of a kind send, by layer: of each slice what lies in each gradient.
std::map<int, int64_t> sent_bytes(const Plan& plan, TaskKind kind) {
  std::map<int, int64_t> bytes;
  for (const Task& task : plan.tasks()) {
    if (task.kind != kind) continue;
    const GradientSlice& slice = plan.slices[task.slice];
    int64_t at = slice.begin, left = slice.bytes();
    for (size_t g = static_cast<size_t>(slice.gradient); left > 0; ++g, at = 0) {
      const int64_t here = std::min(left, plan.gradients[g].bytes - at);
      bytes[plan.gradients[g].layer] += here;
      left -= here;
    }
  }
  return bytes;
}

// By what the weights are: gshard's two matrices of E x M, two norms of M; M x H twice of each of a rank's two experts,
// half of them on each of two ranks.
TEST(Step, EverySchedulesPlanSumsEveryGradientOnce) {
  for (const int pp : {1, 2}) {
    const ModelShape model = replicas({true, true, OptimizerKind::adamw}, pp);
    int plans = 0;
    for (const Schedule* schedule : any_decision::fitting(model.shape)) {
      SCOPED_TRACE(fmt::format("{}, {} stages", schedule->name, pp));
      const Plan plan = plan_of(*schedule, model);
      const auto dense = sent_bytes(plan, TaskKind::gradient), experts = sent_bytes(plan, TaskKind::expert_gradient),
                 alike = sent_bytes(plan, TaskKind::stage_gradient);
      for (int layer = 0; layer < kLayers; ++layer) {
        EXPECT_EQ(dense.at(layer), 4 * 4 * 32 * 32 / 2);
        EXPECT_EQ(experts.at(layer), 4 * 2 * 2 * 32 * 64 / 2);
        EXPECT_EQ(alike.at(layer), 4 * (2 * 4 * 32 + 2 * 32));
      }
      EXPECT_EQ(dense.at(-1), 4 * (100 + 64) / 2 * 32) << "tokens and places, half of each";
      EXPECT_EQ(dense.at(kLayers), 4 * 100 / 2 * 32);
      EXPECT_EQ(alike.at(kLayers), 4 * 32) << "its norm";
      EXPECT_EQ(std::ranges::count(plan.tasks(), TaskKind::stage_gradient, &Task::kind), pp + 1)
          << "one a stage, one for the norm at the end";
      EXPECT_EQ(std::ranges::count(plan.tasks(), TaskKind::norm, &Task::kind), pp);
      ++plans;
    }
    EXPECT_GT(plans, 15);
  }
}

TEST(Step, WhatIsNotSummedOrNotSteppedIsRefused) {
  const Plan good = stepped_plan();
  EXPECT_EQ(complaint(good), "no complaint");
  const auto without = [&](TaskKind kind, int layer) {
    const Task& gone = find(good, kind, layer);
    Plan plan = changed(good, [&](Structure& s) { drop(s, gone.id); });
    for (Gradient& g : plan.gradients) g.made_by -= g.made_by > gone.id ? 1 : 0;
    return complaint(plan);
  };
  EXPECT_NE(without(TaskKind::expert_gradient, 1).find("layer 0 (task"), std::string::npos)
      << without(TaskKind::expert_gradient, 1);
  EXPECT_NE(without(TaskKind::stage_gradient, 0).find("gradient bytes"), std::string::npos);
  EXPECT_NE(without(TaskKind::optimizer, 2).find("layer 2: no optimizer task updates it"), std::string::npos);
  EXPECT_NE(without(TaskKind::optimizer, -1).find("layer -1: no optimizer task"), std::string::npos);
  EXPECT_NE(without(TaskKind::squares, 0).find("no task adds up the squares"), std::string::npos);
  // Nor is a gradient that the plan does not know of.
  for (const bool experts : {true, false}) {
    Plan plan = good;
    for (Gradient& g : plan.gradients)
      if (g.layer == 3 && (experts ? g.experts : g.is_replicated)) g.layer = 2;
    EXPECT_NE(complaint(plan).find("gradient bytes, expected"), std::string::npos) << complaint(plan);
  }
}

TEST(Step, WhatComesTooEarlyIsRefused) {
  for (const bool clips : {true, false}) {
    const Plan good = stepped_plan(clips);
    const auto waits_for_nothing = [&](const Task& early) {
      return complaint(changed(good, [&](Structure& s) { s.tasks[early.id].after.clear(); }));
    };
    const Task &step = find(good, TaskKind::optimizer, 3), &sum = find(good, TaskKind::stage_gradient, 0);
    if (!clips) {
      EXPECT_NE(waits_for_nothing(step).find("steps before the end of"), std::string::npos);
    }
    if (clips) {
      EXPECT_NE(waits_for_nothing(find(good, TaskKind::squares, 0)).find("adds up squares before"), std::string::npos);
      EXPECT_NE(waits_for_nothing(find(good, TaskKind::norm, 0)).find("begins before"), std::string::npos);
      EXPECT_NE(waits_for_nothing(step).find("clips before the end of"), std::string::npos);
    }
    EXPECT_NE(waits_for_nothing(sum).find("sends gradients before"), std::string::npos);
  }
}

TEST(Step, IsPartOfThePlansHash) {
  EXPECT_NE(stepped_plan(true).hash(), stepped_plan(false).hash());
  ModelShape model = replicas({true, false, OptimizerKind::sgd});
  EXPECT_NE(plan_of(find_schedule("fsmoe"), model).hash(), stepped_plan(false).hash());
}

// A second each: by the replay, not by the plan's dependencies.
TEST(Step, LayersStepWhileOthersGradientsAreSentUnlessTheyAreClipped) {
  for (const bool clips : {false, true})
    for (const Schedule* schedule : any_decision::fitting(replicas({}).shape)) {
      SCOPED_TRACE(fmt::format("{}{}", schedule->name, clips ? ", clipped" : ""));
      const Plan plan = plan_of(*schedule, replicas({true, clips, OptimizerKind::adamw}));
      const std::vector<double> seconds(plan.structure->tasks.size(), 1.0);
      const Timeline t = simulate(*plan.structure, seconds);
      double first_step = 1e300, last_sum = 0, norm = 0;
      for (const Task& task : plan.tasks()) {
        if (task.kind == TaskKind::optimizer) first_step = std::min(first_step, t.start_s[task.id]);
        if (sends_gradients(task.kind)) last_sum = std::max(last_sum, t.end_s[task.id]);
        if (task.kind == TaskKind::norm) norm = t.end_s[task.id];
      }
      if (clips) {
        EXPECT_GE(norm, last_sum + 2) << "squares and their sum";
        EXPECT_GE(first_step, norm);
      } else {
        EXPECT_LT(first_step + 1, last_sum);
      }
    }
}

// On one stage it has one gradient; on several each end has a copy, and both are summed before either is stepped.
TEST(Step, ATiedEmbeddingIsSummedOverItsTwoUses) {
  const StepShape tied{true, true, OptimizerKind::adamw, true};
  for (const int pp : {1, 2, 4})
    for (const Schedule* schedule : any_decision::fitting(replicas({}, pp).shape)) {
      SCOPED_TRACE(fmt::format("{}, {} stages", schedule->name, pp));
      const Plan plan = plan_of(*schedule, replicas(tied, pp));
      const auto dense = sent_bytes(plan, TaskKind::gradient), alike = sent_bytes(plan, TaskKind::stage_gradient);
      EXPECT_EQ(dense.at(-1), 4 * (100 + 64) / 2 * 32);
      EXPECT_EQ(dense.contains(kLayers) ? dense.at(kLayers) : 0, pp > 1 ? 4 * 100 / 2 * 32 : 0) << "a copy";
      EXPECT_EQ(alike.at(kLayers), 4 * 32) << "its norm";
      EXPECT_EQ(std::ranges::count(plan.tasks(), TaskKind::tied_gradient, &Task::kind), pp > 1 ? 2 : 0);
      if (pp == 1) continue;
      for (const int end : {-1, kLayers}) {
        const Task& sum = find(plan, TaskKind::tied_gradient, end);
        EXPECT_EQ(plan.structure->lanes[sum.lane].stage, end < 0 ? 0 : pp - 1);
        const Work& work = plan.works[sum.id];
        EXPECT_EQ(std::pair(work.op, work.group), std::pair(Op::sendrecv, GroupKind::pp));
        EXPECT_EQ(work.bytes, 4 * 100 / 2 * 32);
      }
    }
  const Plan good = plan_of(find_schedule("fsmoe"), replicas(tied, 2));
  EXPECT_NE(good.hash(), plan_of(find_schedule("fsmoe"), replicas({true, true, OptimizerKind::adamw}, 2)).hash());
  for (const int end : {-1, kLayers}) {
    const Task& sum = find(good, TaskKind::tied_gradient, end);
    const Plan early = changed(good, [&](Structure& s) { s.tasks[sum.id].after.clear(); });
    EXPECT_NE(complaint(early).find("begins before"), std::string::npos) << complaint(early);
    const Plan gone = changed(good, [&](Structure& s) { drop(s, sum.id); });
    EXPECT_NE(complaint(gone), "no complaint");
  }
}

// By the sizes of replicas(): two MP ranks, 2 x 64 tokens of 32 floats, 50 tokens of the vocabulary each.
TEST(Ends, AreSharedOutOverMp) {
  int plans = 0;
  for (const Schedule* schedule : any_decision::fitting(replicas({}).shape)) {
    SCOPED_TRACE(schedule->name);
    const Plan plan = plan_of(*schedule, replicas({true, false, OptimizerKind::adamw}));
    const bool apart = traits_of(schedule->flow).holds == Tokens::own;
    std::map<std::tuple<TaskKind, Phase, int>, int> found;
    for (const Task& task : plan.tasks()) {
      if (!is_end(task.kind)) continue;
      ++found[{task.kind, task.phase, task.layer}];
      const Work& work = plan.works[task.id];
      const double rows = computes_end(task.kind) ? 0 : 128 * 32 * 4, sums = 2 * 128 * 24;  // of both ranks
      EXPECT_EQ(work.bytes, task.kind == TaskKind::softmax_sums ? sums : rows) << task.name();
      const double flops = (task.phase == Phase::forward ? 1 : 2) * 2.0 * 128 * 32 * 50;
      EXPECT_EQ(work.flops, task.kind == TaskKind::head ? flops : 0) << task.name();
      EXPECT_EQ(task.group, computes_end(task.kind) ? GroupKind::none : GroupKind::mp);
    }
    using enum TaskKind;
    const TaskKind added = apart ? end_reducescatter : end_allreduce;
    decltype(found) expected{{{embed, Phase::forward, -1}, 2},      {{added, Phase::forward, -1}, 2},
                             {{head, Phase::forward, kLayers}, 2},  {{softmax_sums, Phase::forward, kLayers}, 2},
                             {{head, Phase::backward, kLayers}, 2}, {{added, Phase::backward, kLayers}, 2},
                             {{embed, Phase::backward, -1}, 2}};
    if (apart) expected[{end_allgather, Phase::forward, kLayers}] = expected[{end_allgather, Phase::backward, -1}] = 2;
    EXPECT_EQ(found, expected);
    ++plans;
  }
  EXPECT_GT(plans, 15);
}

TEST(Ends, LackNoCollective) {
  for (const char* schedule : {"fsmoe", "parm-s1"}) {
    const Plan good = plan_of(find_schedule(schedule), replicas({true, false, OptimizerKind::adamw}));
    ASSERT_EQ(complaint(good), "no complaint");
    int kinds = 0;
    for (const Task& task : good.tasks()) {
      if (!is_end(task.kind) || computes_end(task.kind) || task.micro_batch > 0) continue;
      Plan gone = changed(good, [&](Structure& s) { drop(s, task.id); });
      for (Gradient& g : gone.gradients) g.made_by -= g.made_by > task.id ? 1 : 0;
      EXPECT_NE(complaint(gone).find("that no task writes"), std::string::npos)
          << task.name() << ": " << complaint(gone);
      ++kinds;
    }
    EXPECT_GE(kinds, 3);
  }
}

// Two stages of one rank each, whose ends are no tasks: nothing is summed but the tied embedding, all is stepped.
TEST(Step, StepsEndsThatNobodySums) {
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  for (const bool tied : {false, true}) {
    ModelShape model{
        complete(layer, {.nodes = 2, .ranks_per_node = 1, .mp = 1, .ep = 1, .esp = 1, .pp = 2}, Rounding::ragged),
        kLayers, 2, PipelineOrder::one_f_one_b};
    model.step = {true, false, OptimizerKind::adamw};
    add_ends(model, kVocabulary, tied);
    const Plan plan = plan_of(find_schedule("fsmoe"), model);
    std::map<int, double> stepped;
    int sums = 0;
    for (const Task& task : plan.tasks()) {
      const Work& work = plan.works[task.id];
      if (task.kind == TaskKind::optimizer) stepped[task.layer] = work.bytes;
      if (task.kind != TaskKind::tied_gradient) continue;
      EXPECT_DOUBLE_EQ(work.bytes, 4.0 * 100 * 32) << "float32, tokens, width";
      ++sums;
    }
    EXPECT_EQ(sums, tied ? 2 : 0);
    EXPECT_EQ(stepped.size(), kLayers + 2U);
    EXPECT_DOUBLE_EQ(stepped[kEmbeddingLayer], 14.0 * (100 + 64) * 32) << "tokens and places, 28 bytes read or written";
    const double norm = model.shape.layer.norm == Norm::none ? 0 : 32;
    EXPECT_DOUBLE_EQ(stepped[kLayers], 14.0 * (100 * 32 + norm));
  }
}

TEST(Step, IsLeftOutUnlessItIsAskedFor) {
  ModelShape model = replicas({});
  model.vocabulary = model.head_gradient_bytes = model.embedding_gradient_bytes = 0;
  const Plan plan = plan_of(find_schedule("fsmoe"), model);
  EXPECT_EQ(std::ranges::count(plan.tasks(), Phase::step, &Task::phase), 0);
  EXPECT_EQ(std::ranges::count(plan.tasks(), TaskKind::optimizer, &Task::kind), 1) << "an instant";
  EXPECT_EQ(sent_bytes(plan, TaskKind::expert_gradient).size(), 0U);
}

}  // namespace
}  // namespace moe
