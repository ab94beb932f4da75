// What check_plan knows of a plan's order, against the transitive closure; and what knowing it takes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "moe/plan/detail/plan_checks.h"
#include "moe/schedule/model_plan.h"
#include "tests/plan/broken_plan.h"
#include "tests/plan/closure.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

void expect_closure(const Plan& plan) {
  const Ancestors ancestors(plan);
  const Closure before = closure_of(plan);
  for (size_t i = 0; i < before.size(); ++i)
    for (size_t j = 0; j < before.size(); ++j)
      ASSERT_EQ(ancestors.before(static_cast<int>(j), static_cast<int>(i)), before[i][j])
          << plan.schedule << ": " << plan.tasks()[j].name() << " before " << plan.tasks()[i].name();
}

ModelShape stages(int layers, int micro_batches, int pp) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  const ParallelShape parallel{.nodes = 2 * pp, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = pp};
  return {complete(layer, parallel, Rounding::ragged), layers, micro_batches, PipelineOrder::one_f_one_b};
}

Plan model_plan(const Schedule& schedule, const ModelShape& model, int degree) {
  ModelDecision decision;
  decision.degree_forward = decision.degree_backward = schedule.degrees == DegreePolicy::one ? 1 : degree;
  decision.backwards.assign(decided_layers(model), {decision.degree_forward, 0, 0, {}});
  return build_model_plan(schedule, model, decision);
}

TEST(Ancestors, AreTheTransitiveClosureOfAnyLayersPlan) {
  const LayerCase shape = broken_plan::four_ranks();
  for (uint64_t seed = 1; seed <= 40; ++seed)
    for (const Schedule* schedule : any_decision::fitting(shape))
      expect_closure(build_plan(*schedule, shape, any_decision::any_decision(*schedule, shape, seed)));
}

TEST(Ancestors, AreTheTransitiveClosureOverStagesAndMicroBatches) {
  for (const int pp : {1, 2, 3})
    for (const Schedule* schedule : any_decision::fitting(stages(3, 3, pp).shape))
      expect_closure(model_plan(*schedule, stages(3, 3, pp), 2));
}

// A closure kept as a matrix takes an eighth of a byte a pair of tasks: 19 GB here.
TEST(Ancestors, TakeMemoryInProportionToThePlan) {
  const auto peak_bytes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * static_cast<double>(usage.ru_maxrss);
  };
  const double before = peak_bytes();
  const Plan plan = model_plan(find_schedule("fsmoe"), stages(48, 256, 1), 2);
  const auto tasks = static_cast<double>(plan.tasks().size());
  EXPECT_GT(tasks, 390e3);
  EXPECT_LT((peak_bytes() - before) / tasks, 4096) << "bytes a task";
}

}  // namespace
}  // namespace moe
