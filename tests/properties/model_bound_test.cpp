// The bound of a whole model under every schedule: no plan is faster, tuned or not, and plans come near it.
#include "moe/cost/model_bound.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "moe/cost/fluid_replay.h"
#include "moe/search/model_search.h"
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

TEST(ModelBound, NoTunedModelIsFaster) {
  ModelSearch search;
  int results = 0;
  for (uint64_t seed = 1; seed <= cases(400) / 20; ++seed) {
    const AnyModel any = any_model(seed);
    const LayerPricer pricer(any.profile, any.model.shape);
    for (const Schedule& schedule : schedules()) {
      const bool one_group = schedule.flow == Flow::tensor || schedule.flow == Flow::dropped;
      if (one_group && any.model.shape.parallel.mp != any.model.shape.parallel.esp) continue;
      if (one_group && any.model.shape.parallel.ep_inside) continue;
      const ModelResult r = search.tune(schedule, pricer, any.model, partition_strategies().front());
      ASSERT_GE(r.total_s(), r.bound_s * (1 - 1e-12)) << schedule.name << ", " << any.text;
      ++results;
    }
  }
  fmt::print("{} tuned models above their bounds\n", results);
}

}  // namespace
}  // namespace moe
