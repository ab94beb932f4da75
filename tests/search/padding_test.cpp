// Rows padded to a multiple of both degrees: the search against every pair of degrees, and what padding counts.
#include <gtest/gtest.h>
#include <numeric>

#include "moe/base/config_files.h"
#include "moe/search/layer_search.h"
#include "moe/search/model_search.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using random_layer::random_layer;
using random_layer::RandomLayer;

// Of every pair up to the largest degree: the least time of a layer with as many rows as the pair wants.
double least_of_pairs(const Schedule& schedule, const LayerPricer& pricer, LayerSearch& search) {
  const int most = schedule.degrees == DegreePolicy::one ? 1 : largest_degree(pricer);
  double least = std::numeric_limits<double>::max();
  for (int f = 1; f <= most; ++f)
    for (int b = 1; b <= most; ++b) {
      if (schedule.degrees != DegreePolicy::apart && f != b) continue;
      LayerCase padded = pricer.shape();
      padded.row_multiple = std::lcm(f, b);
      padded.rounding = Rounding::ragged;  // which leaves the rows as they are
      const LayerPricer at(pricer.profile(), padded, pricer.options());
      least = std::min(least, search.tune(schedule, at, {f, b}).total_s());
    }
  return least;
}

TEST(Padding, SearchIsAsGoodAsEveryPairOfDegrees) {
  LayerSearch search;
  int compared = 0, apart = 0, padded = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed)
    for (const bool measured : {false, true}) {
      RandomLayer layer = random_layer(seed, measured);
      layer.shape.rounding = Rounding::lcm;
      const LayerPricer pricer(layer.profile, layer.shape);
      if (largest_degree(pricer) > 16) continue;
      for (const std::string_view name : {"ds-moe", "tutel", "fsmoe-no-partition", "fsmoe", "monta-o2"}) {
        const Schedule& schedule = find_schedule(name);
        if (!any_decision::fits(schedule, layer.shape)) continue;
        const LayerResult found = search.tune(schedule, pricer);
        const double least = least_of_pairs(schedule, pricer, search);
        ASSERT_NEAR(found.total_s(), least, 1e-9 * least) << schedule.name << ", " << layer.text;
        const Plan plan = build_plan(schedule, layer.shape, found.decision);
        ASSERT_EQ(plan.rows % found.decision.degree_forward, 0);
        ASSERT_EQ(plan.rows % found.decision.degree_backward, 0);
        ASSERT_NEAR(search.evaluate(schedule, pricer, found.decision).total_s(), least, 1e-9 * least);
        ++compared;
        apart += found.decision.degree_forward != found.decision.degree_backward;
        padded += plan.rows > capacity_rows(layer.shape);
      }
    }
  EXPECT_GT(compared, 500);
  EXPECT_GT(apart, 20);
  EXPECT_GT(padded, 20);
}

TEST(Padding, FixedDegreesPadToTheirMultipleAndBytesCountIt) {
  const LayerShape layer{.batch = 1, .seq = 1024, .experts = 8, .top_k = 1, .capacity_factor = 1.0};
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::lcm);
  ASSERT_EQ(capacity_rows(shape), 64);
  const Schedule& fsmoe = find_schedule("fsmoe");
  const Plan plan = build_plan(fsmoe, shape, {7, 8});
  EXPECT_EQ(plan.rows, 112);  // the next multiple of 56
  double bytes = 0;
  for (const Task& task : plan.tasks())
    if (task.kind == TaskKind::dispatch && task.phase == Phase::forward) {
      const Work& work = plan.works[task.id];
      EXPECT_DOUBLE_EQ(work.bytes, moe_volumes(shape, 16).alltoall_bytes);
      bytes += work.bytes;
    }
  EXPECT_DOUBLE_EQ(bytes, moe_volumes(shape, 112).alltoall_bytes);
  EXPECT_GT(layer_memory(plan.shape).total(), layer_memory(shape).total());
  EXPECT_EQ(build_plan(fsmoe, shape, {2, 4}).rows, 64);
  EXPECT_THROW(build_plan(fsmoe, shape, {2147483647, 2147483629}), BadInput);
}

// A bound that holds whatever the degrees is not of the rows that some degrees want.
TEST(Padding, NoDegreesBeatTheBoundOfFixedOnes) {
  LayerSearch search;
  const Profile profile = find_profile("testbed-b");
  LayerShape layer{.batch = 1, .seq = 1024, .model_dim = 4096, .hidden = 8192, .heads = 16, .experts = 8};
  const LayerCase shape = complete(layer, {.nodes = 8, .ranks_per_node = 4}, Rounding::lcm);
  const LayerPricer pricer(profile, shape);
  const Schedule& fsmoe = find_schedule("fsmoe");
  const LayerResult best = search.tune(fsmoe, pricer), fixed = search.tune(fsmoe, pricer, {7, 8});
  ASSERT_LT(best.total_s(), fixed.total_s());
  EXPECT_LE(fixed.bound.total_s(), best.total_s());
  EXPECT_DOUBLE_EQ(fixed.bound.total_s(), best.bound.total_s());
}

// Also where one layer's own degrees pad nothing: this one has 15 rows and degrees 1 and 1.
TEST(Padding, LayersOfAModelCutTheRowsThatOneHas) {
  ModelSearch search;
  const Profile profile = find_profile("testbed-b");
  LayerShape layer{.batch = 1, .seq = 188, .model_dim = 1024, .hidden = 4096, .heads = 16, .experts = 8, .top_k = 2};
  layer.capacity_factor = 1.2;
  ModelShape model;
  model.shape = complete(layer, {.nodes = 8, .ranks_per_node = 4}, Rounding::lcm);
  model.layers = 3;
  const LayerPricer pricer(profile, model.shape);
  for (const std::string_view name : {"fsmoe-no-iio", "fsmoe"}) {
    const ModelResult found = search.tune(find_schedule(name), pricer, model);
    EXPECT_EQ(found.plan.rows % found.decision.degree_forward, 0) << name;
    for (const BackwardDecision& backward : found.decision.backwards)
      EXPECT_EQ(found.plan.rows % backward.degree, 0) << name << ": " << found.plan.rows;
  }
}

}  // namespace
}  // namespace moe
