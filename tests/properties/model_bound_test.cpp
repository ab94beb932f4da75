// The bound of a whole model under every schedule: no plan is faster, tuned or not, and plans come near it.
#include "moe/simulator/model_bound.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "moe/search/model_search.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/properties/any_model.h"
#include "tests/properties/cases.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::fits;
using any_model::any_model;
using any_model::any_model_decision;
using any_model::AnyModel;

// MOETUNE_CASES: models instead of those that run in seconds.
uint64_t cases(uint64_t usual) {
  const char* asked = std::getenv("MOETUNE_CASES");
  return asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
}

double replayed(const LayerPricer& pricer, const Plan& plan) {
  return timeline_of(plan, price(pricer, plan), pricer.profile().contention).makespan_s;
}

// ZeRO 1: a layer's weights are gathered once a step, of all its ranks' shares, behind everything else; the bound has
// them.
TEST(ModelBound, HasTheGathersOfZero) {
  int gathered = 0, alone = 0;
  for (uint64_t seed = 1; seed <= cases(300); ++seed) {
    AnyModel any = any_model(seed);
    const auto fitting = any_decision::fitting(any.model.shape);
    const Schedule& schedule = *fitting[seed % fitting.size()];
    const auto decision = any_model_decision(schedule, any.model, seed);
    const Plan kept = build_model_plan(schedule, any.model, decision);
    any.model.shape.parallel.zero = 1;
    const Plan shared = build_model_plan(schedule, any.model, decision);
    const LayerPricer pricer(any.profile, any.model.shape, {.nearest = true});
    const std::vector<double> seconds = price(pricer, shared);
    const Groups groups = groups_of(any.model.shape.parallel);
    const LayerCases cases(shared.shape, shared.dense, shared.whole);
    std::map<std::pair<TaskKind, int>, int> times;
    std::map<int, double> lanes;
    for (const Task& task : shared.tasks()) {
      if (!gathers_weights(task.kind) || task.kind == TaskKind::stage_weights) continue;
      ++times[{task.kind, task.layer}];
      const bool experts = task.kind == TaskKind::expert_weights;
      const Work& work = shared.works[task.id];
      EXPECT_EQ(work.op, Op::allgather);
      const LayerCase& own = cases.at(task.layer);
      EXPECT_EQ(work.bytes, experts ? expert_gradient_bytes(own) : gradient_bytes(own));
      lanes[task.lane] += seconds[task.id];
    }
    for (int layer = 0; layer < shared.layers; ++layer)
      for (const auto& [kind, group] :
           {std::pair{TaskKind::weights, GroupKind::dp}, {TaskKind::expert_weights, GroupKind::edp}})
        ASSERT_EQ((times[{kind, layer}]),
                  groups[group].size > 1 && (kind == TaskKind::weights || !shared.dense.has(layer)) ? 1 : 0)
            << any.text;
    const double with = replayed(pricer, shared);
    ASSERT_GE(with, model_bound(schedule, pricer, any.model) * (1 - 1e-12)) << schedule.name << ", " << any.text;
    gathered += lanes.empty() ? 0 : 1;
    const bool slowed = !any.profile.contention.none() || schedule.lanes == LaneLayout::by_network_gradient;
    if (any.model.shape.parallel.pp > 1 || slowed || any.model.step.planned) continue;
    double longest = 0;
    for (const auto& [lane, lane_s] : lanes) longest = std::max(longest, lane_s);
    const double without = replayed(pricer, kept);
    ASSERT_NEAR(with, without + longest, 1e-12 * with) << "hidden by nothing: " << schedule.name << ", " << any.text;
    alone += lanes.empty() ? 0 : 1;
  }
  EXPECT_GT(gathered, 50);
  EXPECT_GT(alone, 10);
}

TEST(ModelBound, NoPlanIsFaster) {
  struct Closest {
    double one = std::numeric_limits<double>::infinity(), several = one;  // micro-batches
  };
  std::map<std::string_view, Closest> closest;
  int plans = 0;
  for (uint64_t seed = 1; seed <= cases(400); ++seed) {
    const AnyModel any = any_model(seed);
    const LayerPricer pricer(any.profile, any.model.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, any.model.shape)) continue;
      const Plan plan = build_model_plan(schedule, any.model, any_model_decision(schedule, any.model, seed));
      const double seconds = replayed(pricer, plan), bound = model_bound(schedule, pricer, any.model);
      ASSERT_GE(seconds, bound * (1 - 1e-12)) << schedule.name << ", " << any.text;
      double& near = any.model.micro_batches == 1 ? closest[schedule.name].one : closest[schedule.name].several;
      near = std::min(near, seconds / bound);
      ++plans;
    }
  }
  double one = 1, several = 1;
  for (const auto& [name, near] : closest) {
    one = std::max(one, near.one);
    several = std::max(several, near.several);
    EXPECT_LT(near.one, 1.02) << name << " is never near its bound with one micro-batch";
    EXPECT_LT(near.several, 1.02) << name << " is never near its bound with several";
  }
  fmt::print("{} plans; each schedule comes within {:.2f} % of its bound, with several micro-batches within {:.2f} %\n",
             plans, 100 * (one - 1), 100 * (several - 1));
}

// At the degrees of a plan, and at any that it could have had. Where nothing is sent and nothing slows anything, passes
// are all that a plan has, and their bound is its replay.
TEST(ModelBound, NoPlanIsFasterThanItsPasses) {
  BoundShapes shapes;
  const std::vector<int> any_degree{1, 2, 3, 4, 5, 6};
  int plans = 0, exact = 0, closer = 0;
  for (uint64_t seed = 1; seed <= cases(400); ++seed) {
    const AnyModel any = any_model(seed);
    const LayerPricer pricer(any.profile, any.model.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, any.model.shape)) continue;
      const ModelDecision decision = any_model_decision(schedule, any.model, seed);
      const double seconds = replayed(pricer, build_model_plan(schedule, any.model, decision));
      const double bound = replayed_bound(schedule, pricer, any.model, {any_degree, any_degree}, shapes);
      ASSERT_GE(seconds, bound * (1 - 1e-12)) << schedule.name << ", " << any.text;
      ASSERT_GE(seconds, busiest_bound(schedule, pricer, any.model, shapes) * (1 - 1e-12)) << any.text;
      ++plans;
      if (schedule.degrees == DegreePolicy::apart) continue;
      const std::vector<int> forward{decision.degree_forward}, backward{decision.degree_backward};
      const double own = replayed_bound(schedule, pricer, any.model, {forward, backward}, shapes);
      ASSERT_GE(seconds, own * (1 - 1e-12)) << schedule.name << ", " << any.text;
      exact += seconds <= own * (1 + 1e-9);
      closer += own > model_bound(schedule, pricer, any.model, {.exact = forward[0]}, shapes) * (1 + 1e-9);
    }
  }
  fmt::print("{} plans above their passes, {} equal to them\n", plans, exact);
  EXPECT_GT(exact, plans / 50);
  EXPECT_GT(closer, plans / 50);
}

TEST(ModelBound, NoTunedModelIsFaster) {
  ModelSearch search;
  int results = 0;
  for (uint64_t seed = 1; seed <= cases(400) / 20; ++seed) {
    const AnyModel any = any_model(seed);
    const LayerPricer pricer(any.profile, any.model.shape);
    for (const Schedule& schedule : schedules()) {
      const bool one_group = traits_of(schedule.flow).one_group;
      if (one_group && any.model.shape.parallel.mp != any.model.shape.parallel.esp) continue;
      if (one_group && any.model.shape.parallel.ep_inside) continue;
      const ModelResult r = search.tune(schedule, pricer, any.model);
      ASSERT_GE(r.total_s(), r.bound_s * (1 - 1e-12)) << schedule.name << ", " << any.text;
      ++results;
    }
  }
  fmt::print("{} tuned models above their bounds\n", results);
}

}  // namespace
}  // namespace moe
