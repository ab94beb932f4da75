// Bounds of every schedule: no plan is faster than the bound of its degrees, which is no less than the one whatever the
// degrees; and each bound is met by some plan.
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "moe/search/layer_search.h"
#include "tests/properties/any_model.h"
#include "tests/properties/cases.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::any_decision;
using any_decision::fits;
using conformance::full_layer;
using conformance::text_of;
using random_layer::RandomLayer;

// Tuned, and as any decision that the schedule has.
template <class Check>
void for_results(uint64_t first, uint64_t last, bool measured, Check&& check) {
  LayerSearch search;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const RandomLayer layer = full_layer(seed, measured);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const Schedule& schedule : schedules()) {
      const bool one_group = schedule.flow == Flow::tensor || schedule.flow == Flow::dropped;
      if (one_group && layer.shape.parallel.mp != layer.shape.parallel.esp) continue;
      std::vector<LayerResult> results{search.tune(schedule, pricer)};
      if (fits(schedule, layer.shape))
        for (uint64_t i = 0; i < 2; ++i)
          results.push_back(search.evaluate(schedule, pricer, any_decision(schedule, layer.shape, 9000 * i + seed)));
      for (const LayerResult& result : results) {
        SCOPED_TRACE(text_of(schedule, layer.shape, result.decision) + ", " + layer.text);
        check(schedule, result);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

void expect_ordered(const LayerResult& r) {
  const double slack = 1e-12 * r.total_s();
  ASSERT_GE(r.degree_bound.forward_s, r.bound.forward_s - slack) << r.bound.forward_term;
  ASSERT_GE(r.degree_bound.backward_s, r.bound.backward_s - slack) << r.bound.backward_term;
  ASSERT_GE(r.forward_s, r.degree_bound.forward_s - slack) << r.degree_bound.forward_term;
  ASSERT_GE(r.backward_s, r.degree_bound.backward_s - slack) << r.degree_bound.backward_term;
}

TEST(Bounds, TimesAreAboveThoseOfTheirDegreesAndThoseAboveTheFree) {
  std::map<std::string_view, double> closest;
  int results = 0;
  for_results(1, 500, false, [&](const Schedule& schedule, const LayerResult& r) {
    expect_ordered(r);
    const auto near = closest.try_emplace(schedule.name, std::numeric_limits<double>::infinity()).first;
    near->second = std::min(near->second, r.total_s() / r.bound.total_s());
    ++results;
  });
  ASSERT_EQ(closest.size(), schedules().size());
  double loosest = 1;
  for (const auto& [name, near] : closest) {
    loosest = std::max(loosest, near);
    EXPECT_LT(near, 1.05) << name << " is never near its bound";
  }
  fmt::print("{} results; each schedule comes within {:.2f} % of its bound\n", results, 100 * (loosest - 1));
}

// A measured curve may price parts lower than the whole.
TEST(Bounds, HoldOnMeasuredCurves) {
  for_results(1, 300, true, [](const Schedule&, const LayerResult& r) { expect_ordered(r); });
}

TEST(Bounds, HoldUnderContentionAndInBothPlacements) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const any_model::AnyModel any = any_model::any_model(seed);
    const LayerPricer pricer(any.profile, any.model.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, any.model.shape)) continue;
      SCOPED_TRACE(std::string(schedule.name) + ", " + any.text);
      for (uint64_t i = 0; i < 2; ++i)
        expect_ordered(search.evaluate(schedule, pricer, any_decision(schedule, any.model.shape, 7000 * i + seed)));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace moe
