// Whole models: plans that pass their checks, times that closed forms and single layers predict, gradients sent once.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/search/detail/model_partition.h"
#include "moe/search/layer_search.h"
#include "moe/shape/model_file.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::fits;
using random_layer::random_layer;
using random_layer::RandomLayer;

// Two stages of `layers` layers on four nodes of two ranks; rows for all that any schedule needs.
ModelShape two_stages(int layers, int micro_batches, PipelineOrder order) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  return {complete(layer, {.nodes = 4, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = 2}, Rounding::ragged),
          layers, micro_batches, order};
}

CommRow row_of(Op op, Network network, int ranks, double alpha_s, double beta) {
  CommRow row;
  row.op = op;
  row.network = network;
  row.ranks = ranks;
  row.alpha_s = alpha_s;
  row.beta_s_per_byte = beta;
  return row;
}

Profile profile_for(const LayerCase& shape, double send_s) {
  Profile profile;
  profile.name = "two stages";
  profile.nodes = shape.parallel.nodes;
  profile.ranks_per_node = shape.parallel.ranks_per_node;
  for (const Network network : {Network::inter, Network::intra})
    for (const int ranks : {2, 4})
      for (const Op op : {Op::alltoall, Op::allgather, Op::reducescatter, Op::allreduce})
        profile.comm.push_back(row_of(op, network, ranks, 1e-5, 2e-9));
  profile.comm.push_back(row_of(Op::sendrecv, Network::inter, 2, send_s, 0));
  ComputeRow gemm;
  gemm.op = Op::gemm;
  gemm.alpha_s = 5e-6;
  gemm.beta_s_per_flop = 1e-11;
  profile.compute.push_back(gemm);
  return profile;
}

ModelDecision plain_decision(const Schedule& schedule, int layers, int degree) {
  ModelDecision decision;
  decision.degree_forward = decision.degree_backward = schedule.degrees == DegreePolicy::one ? 1 : degree;
  decision.backwards.assign(layers, {decision.degree_forward, 0, 0, {}});
  return decision;
}

TEST(ModelPlan, PassesItsChecksUnderEverySchedule) {
  int plans = 0;
  for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b})
    for (const int micro_batches : {1, 2, 5})
      for (const int layers : {2, 5}) {
        const ModelShape model = two_stages(layers, micro_batches, order);
        for (const Schedule& schedule : schedules()) {
          if (!fits(schedule, model.shape)) continue;
          SCOPED_TRACE(
              fmt::format("{}, {} layers, {} micro-batches, {}", schedule.name, layers, micro_batches, name_of(order)));
          Plan plan;  // checks itself
          ASSERT_NO_THROW(plan = build_model_plan(schedule, model, plain_decision(schedule, (layers + 1) / 2, 3)));
          int experts = 0, optimizers = 0;
          for (const Task& task : plan.tasks()) {
            experts += task.kind == TaskKind::expert && task.phase == Phase::forward && task.chunk == 0;
            optimizers += task.kind == TaskKind::optimizer;
          }
          EXPECT_EQ(experts, layers * micro_batches);
          EXPECT_EQ(optimizers, 2);
          ++plans;
        }
      }
  EXPECT_GT(plans, 200);
}

// GPipe and 1F1B of m micro-batches over p equal stages take m + p - 1 forwards and backwards where sending is free.
TEST(ModelPlan, PipelineTakesAsLongAsItsClosedForm) {
  for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b})
    for (const int micro_batches : {1, 2, 3, 8}) {
      const ModelShape model = two_stages(4, micro_batches, order);
      const Profile profile = profile_for(model.shape, 0);
      const LayerPricer pricer(profile, model.shape);
      const Schedule& schedule = find_schedule("fsmoe-no-partition");
      const Plan plan = build_model_plan(schedule, model, plain_decision(schedule, 2, 2));
      const double tail = pricer.gradient_seconds(2 * pricer.gradient_bytes());
      LayerSearch search;
      const LayerResult layer = search.evaluate(schedule, pricer, {2, 2});
      const double each = 2 * (layer.total_s() - pricer.gradient_seconds(pricer.gradient_bytes()));
      const double expected = (micro_batches + 1) * each + tail;
      EXPECT_NEAR(simulate(*plan.structure, price(pricer, plan)).makespan_s, expected, 1e-9 * expected)
          << name_of(order) << ", " << micro_batches << " micro-batches";
    }
}

// One stage: forwards, then what the partition promises.
TEST(ModelSearch, ThePlanTakesAsLongAsThePartitionSays) {
  ModelSearch search;
  double worst = 0;
  int models = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    if (!pricer.has(GroupKind::dp)) continue;
    const int layers = 1 + static_cast<int>(seed % 5);
    for (const char* name : {"fsmoe", "fsmoe-no-iio", "tutel-improved"}) {
      const Schedule& schedule = find_schedule(name);
      const ModelResult result = search.tune(schedule, pricer, {layer.shape, layers, 1});
      check_partition(search::partition_problem(schedule, pricer, layers,
                                                {LayerSearch().replay(schedule, pricer).backward_paths({1})}),
                      result.partition);
      const double expected =
          result.last_forward_s + result.partition.seconds + layer.profile.task_overhead_s;  // and the optimizer
      // A layer's slice beside the dense part may still run when the next layer's first computation starts.
      ASSERT_LE(result.total_s(), expected * (1 + 1e-9)) << name << ", " << layer.text;
      ASSERT_GE(result.total_s(), result.bound_s * (1 - 1e-9)) << name << ", " << layer.text;
      worst = std::max(worst, expected / result.total_s() - 1);
      ++models;
    }
  }
  fmt::print("{} models: the replay is at most {:.2e} of the total below the partition's sum\n", models, worst);
  EXPECT_GT(models, 100);
  EXPECT_LT(worst, 0.2);
}

TEST(ModelSearch, ExactIsNeverSlowerThanThePapersSteps) {
  ModelSearch search;
  for (const char* name : {"gpt2-xl@fsmoe", "mixtral-7b@fsmoe", "mixtral-22b@fsmoe"})
    for (const char* cluster : {"testbed-a", "testbed-b"}) {
      const Profile profile = find_profile(cluster);
      const Model model = model_on_cluster(find_model(name), cluster);
      ParallelShape parallel = model.parallel;
      parallel.nodes = profile.nodes;
      parallel.ranks_per_node = profile.ranks_per_node;
      const ModelShape shape{complete(model.layer, parallel, Rounding::ragged), model.layers, 1};
      const LayerPricer pricer(profile, shape.shape);
      const Schedule& schedule = find_schedule("fsmoe");
      std::map<std::string_view, double> seconds;
      for (const PartitionStrategy& row : partition_strategies())
        seconds[row.name] = search.tune(schedule, pricer, shape, {}, row).total_s();
      fmt::print("{:<12} {}: exact {:.3f} ms, paper +{:.3f} %, step1 +{:.3f} %, none +{:.3f} %\n", name, cluster,
                 1e3 * seconds["exact"], 100 * (seconds["paper"] / seconds["exact"] - 1),
                 100 * (seconds["step1"] / seconds["exact"] - 1), 100 * (seconds["none"] / seconds["exact"] - 1));
      for (const auto& [other, total] : seconds)
        EXPECT_LE(seconds["exact"], total * (1 + 1e-12)) << other << ", " << name;
    }
}

// Only the last micro-batch sends: the others keep the degree that is best without gradients.
TEST(ModelSearch, MicroBatchesThatSendNothingAreNotSlowedByThoseThatDo) {
  ModelSearch search;
  int layers_apart = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const auto seconds = [&](std::string_view name) {
      return search.tune(find_schedule(name), pricer, {layer.shape, 3, 6});
    };
    const ModelResult split = seconds("fsmoe");
    ASSERT_LE(split.total_s(), seconds("fsmoe-no-partition").total_s() * (1 + 1e-9)) << layer.text;
    for (const BackwardDecision& b : split.decision.backwards)
      layers_apart += b.degree != split.decision.degree_backward;
  }
  fmt::print("{} of 300 layers' last backwards have another degree than those before\n", layers_apart);
  EXPECT_GT(layers_apart, 0);
}

// Pieces go only where their lane is idle: nothing that was on it starts later than without them by more than one
// piece, and the plan is no slower than with all pieces at the end.
TEST(ModelSearch, MicroOpsHideAndAreSentOnce) {
  ModelSearch search;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const char* name : {"pipemoe+lina", "lina", "lina-priority"}) {
      const Schedule& schedule = find_schedule(name);
      const ModelResult result = search.tune(schedule, pricer, {layer.shape, 3, 1});
      ModelDecision at_end = result.decision;
      for (BackwardDecision& b : at_end.backwards) b.gaps.clear();
      const Plan plan = build_model_plan(schedule, {layer.shape, 3, 1}, at_end);
      const double last = simulate(*plan.structure, price(pricer, plan)).makespan_s;
      double piece = 0;
      for (const GradientSlice& slice : plan.slices) piece = std::max(piece, pricer.gradient_seconds(slice.bytes()));
      ASSERT_LE(result.total_s(), last + static_cast<double>(result.plan.slices.size()) * piece)
          << name << ", " << layer.text;
      ASSERT_EQ(result.plan.slices.size(), plan.slices.size());
    }
  }
}

// The last micro-batch alone sends pieces, so the best degree of one layer need not be the model's.
TEST(ModelSearch, NoOtherDegreeIsFasterWithPieces) {
  ModelSearch search;
  LayerSearch layers;
  const Schedule& schedule = find_schedule("pipemoe+lina");
  int apart = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const int micro_batches = 1 + static_cast<int>(seed % 3);
    const auto seconds = [&](int degree) {
      return search.tune(schedule, pricer, {layer.shape, 2, micro_batches}, {degree, degree});
    };
    const ModelResult tuned = seconds(0);
    for (int r = 1; r <= std::min(12, largest_degree(pricer)); ++r)
      ASSERT_LE(tuned.total_s(), seconds(r).total_s() * (1 + 1e-9)) << "r " << r << ", " << layer.text;
    apart += tuned.decision.degree_forward != layers.tune(schedule, pricer).decision.degree_forward;
  }
  fmt::print("{} of 120 models have another degree than one of their layers\n", apart);
  EXPECT_GT(apart, 0);
}

TEST(ModelSearch, RefusesWhatCannotBe) {
  const ModelShape model = two_stages(4, 2, PipelineOrder::gpipe);
  const Schedule& fsmoe = find_schedule("fsmoe");
  EXPECT_THROW(build_model_plan(fsmoe, {model.shape, 1, 1}, plain_decision(fsmoe, 1, 1)), BadInput)
      << "one layer, two stages";
  EXPECT_THROW(build_model_plan(fsmoe, model, plain_decision(fsmoe, 3, 1)), BadInput) << "decisions of three layers";
  ModelDecision early = plain_decision(fsmoe, 2, 1);
  early.backwards[0].gar_in_moe_bytes = 4;
  EXPECT_THROW(build_model_plan(fsmoe, model, early), BadInput) << "nothing waits when the first backward begins";
  ModelDecision much = plain_decision(fsmoe, 2, 1);
  much.backwards[1].gar_in_moe_bytes = gradient_bytes(model.shape) + 4;
  EXPECT_THROW(build_model_plan(fsmoe, model, much), BadInput) << "more than there is";
  EXPECT_THROW(build_model_plan(find_schedule("parm"), model, plain_decision(fsmoe, 2, 1)), BadInput);
  const Profile profile = find_profile("testbed-b");
  const LayerPricer pricer(profile, complete({}, {.nodes = 8, .ranks_per_node = 4, .ep = 4, .pp = 2}, Rounding::ragged),
                           {true});
  EXPECT_THROW(ModelSearch().tune(fsmoe, pricer, {pricer.shape(), 4, 2}), Unsupported) << "no paper prints sendrecv";
}

}  // namespace
}  // namespace moe
