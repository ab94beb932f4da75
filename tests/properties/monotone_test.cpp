// What must follow when prices change: a plan whose order stands fixed is never slowed by a cheaper operation, scaled
// prices scale every result, and contention only slows. And what must hold between schedules of which one can do all
// that the other can.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "moe/base/random.h"
#include "moe/search/layer_search.h"
#include "tests/properties/cases.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::any_decision;
using any_decision::fits;
using conformance::full_layer;
using conformance::text_of;
using random_layer::RandomLayer;

// One of the rows' alphas or betas, by a random factor from 0 to 1.
std::string make_cheaper(Profile& profile, uint64_t seed) {
  std::vector<std::pair<std::string, double*>> prices;
  for (CommRow& row : profile.comm) {
    prices.emplace_back(row_name(row) + " alpha", &row.alpha_s);
    prices.emplace_back(row_name(row) + " beta", &row.beta_s_per_byte);
  }
  for (ComputeRow& row : profile.compute) {
    prices.emplace_back(row_name(row) + " alpha", &row.alpha_s);
    prices.emplace_back(row_name(row) + " beta", row.op == Op::copy ? &row.beta_s_per_byte : &row.beta_s_per_flop);
  }
  for (ModuleRow& row : profile.modules) prices.emplace_back(row.name, &row.alpha_s);
  prices.emplace_back("task overhead", &profile.task_overhead_s);
  const auto& [name, price] = prices[random_bits(seed, 51, 0) % prices.size()];
  *price *= random_uniform(seed, 51, 1);
  return name;
}

// Lanes that share a network share its bandwidth: not one order, whatever the prices.
bool has_one_order(const Schedule& schedule) { return schedule.lanes != LaneLayout::by_network_gradient; }

TEST(Monotone, NothingCheaperSlowsAPlan) {
  LayerSearch search;
  int faster = 0, compared = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    RandomLayer layer = full_layer(seed);
    const Profile before = layer.profile;
    const std::string what = make_cheaper(layer.profile, seed);
    const LayerPricer dear(before, layer.shape), cheap(layer.profile, layer.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, layer.shape) || !has_one_order(schedule)) continue;
      const Decision d = any_decision(schedule, layer.shape, seed);
      const LayerResult then = search.evaluate(schedule, dear, d), now = search.evaluate(schedule, cheap, d);
      ASSERT_LE(now.forward_s, then.forward_s * (1 + 1e-12)) << what << ", " << schedule.name << ", " << layer.text;
      ASSERT_LE(now.backward_s, then.backward_s * (1 + 1e-12)) << what << ", " << schedule.name << ", " << layer.text;
      faster += now.total_s() < then.total_s() * (1 - 1e-9);
      ++compared;
    }
  }
  EXPECT_GT(faster, compared / 5);
}

Profile scaled(Profile profile, double by) {
  for (CommRow& row : profile.comm) {
    row.alpha_s *= by;
    row.beta_s_per_byte *= by;
    for (auto& point : row.points) point[1] *= by;
  }
  for (ComputeRow& row : profile.compute) {
    row.alpha_s *= by;
    row.beta_s_per_flop *= by;
    row.beta_s_per_byte *= by;
  }
  for (ModuleRow& row : profile.modules) {
    row.alpha_s *= by;
    row.beta_s_per_flop *= by;
  }
  profile.task_overhead_s *= by;
  return profile;
}

TEST(Scaling, ScalesWhatIsTunedAndItsBounds) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const RandomLayer layer = full_layer(seed, seed % 3 == 0);
    const double by = std::pow(10, 4 * random_uniform(seed, 52, 0) - 2);
    const Profile slow = scaled(layer.profile, by);
    const LayerPricer pricer(layer.profile, layer.shape), slow_pricer(slow, layer.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, layer.shape) && schedule.variants.empty()) continue;
      if (schedule.flow == Flow::dropped && layer.shape.parallel.mp != layer.shape.parallel.esp) continue;
      const LayerResult a = search.tune(schedule, pricer), b = search.tune(schedule, slow_pricer);
      ASSERT_NEAR(b.total_s(), by * a.total_s(), 1e-9 * b.total_s())
          << by << ", " << schedule.name << ", " << layer.text;
      ASSERT_NEAR(b.bound.total_s(), by * a.bound.total_s(), 1e-9 * b.total_s()) << by << ", " << schedule.name;
    }
  }
}

// One that can do all that the other can is never slower, without contention: splits, degrees and orders are exact.
TEST(Relations, WhatCanDoMoreIsNeverSlower) {
  const std::vector<std::pair<std::string_view, std::string_view>> pairs{
      {"fsmoe", "fsmoe-no-partition"}, {"fsmoe-interleaved", "fsmoe"},
      {"tutel-improved", "tutel"},     {"tutel", "ds-moe"},
      {"fsmoe-no-iio", "tutel"},       {"fsmoe-no-iio", "tutel-improved"},
      {"monta", "monta-o1"},           {"monta", "monta-o2"},
      {"monta", "monta-o3"},           {"monta-o3", "monta-o2"},
      {"monta-o2", "monta-o1"}};
  LayerSearch search;
  std::map<std::pair<std::string_view, std::string_view>, int> faster;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const RandomLayer layer = full_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const auto& [more, less] : pairs) {
      if (more.starts_with("monta") && layer.shape.parallel.mp != layer.shape.parallel.esp) continue;
      const double a = search.tune(find_schedule(more), pricer).total_s();
      const double b = search.tune(find_schedule(less), pricer).total_s();
      EXPECT_LE(a, b * (1 + 1e-9)) << more << " and " << less << ", " << layer.text;
      faster[{more, less}] += a < b * (1 - 1e-9);
    }
    if (HasFailure()) return;
  }
  for (const auto& [pair, count] : faster)
    fmt::print("{} beats {} on {} of 500 layers\n", pair.first, pair.second, count);
}

// Under contention too, where what is put beside something may slow it: behind everything is a place as well.
TEST(Relations, UnderContentionASplitIsNeverSlowerThanNone) {
  LayerSearch search;
  int last = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomLayer layer = random_layer::contended(full_layer(seed), seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const LayerResult split = search.tune(find_schedule("fsmoe"), pricer);
    EXPECT_LE(split.total_s(), search.tune(find_schedule("fsmoe-no-partition"), pricer).total_s() * (1 + 1e-9))
        << layer.text;
    EXPECT_LE(search.tune(find_schedule("fsmoe-interleaved"), pricer).total_s(), split.total_s() * (1 + 1e-9))
        << layer.text;
    last += split.decision.gar_after_bytes > 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(last, 0) << "of no layer are gradients better sent last";
}

// What the bounds rule out without a replay is no better: as good as the best of all degrees, each asked for alone.
TEST(Relations, FreeDegreesAreTheBestOfAll) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    RandomLayer layer = full_layer(seed);
    if (seed % 3 == 0) layer.profile.contention.inter_by_compute = layer.profile.contention.compute_by_intra = 1.4;
    const LayerPricer pricer(layer.profile, layer.shape);
    const int most = static_cast<int>(std::min<int64_t>(kMaxDegree, pricer.rows()));
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, layer.shape)) continue;
      if (schedule.degrees != DegreePolicy::shared && schedule.degrees != DegreePolicy::apart) continue;
      DegreeChoice choice;
      choice.micro_op_bytes = 1 + gradient_bytes(layer.shape) / 7;
      const double free = search.tune(schedule, pricer, choice).total_s();
      double best = std::numeric_limits<double>::infinity();
      for (choice.forward = choice.backward = 1; choice.forward <= most; choice.backward = ++choice.forward)
        best = std::min(best, search.tune(schedule, pricer, choice).total_s());
      ASSERT_LE(free, best * (1 + 1e-9)) << schedule.name << ", " << layer.text;
      if (schedule.degrees == DegreePolicy::shared) {
        ASSERT_GE(free, best * (1 - 1e-9)) << schedule.name << ", " << layer.text;
      }
    }
  }
}

// Two lanes leave out orders that one lane has, so that they are never slower; where there is no AlltoAll, the order of
// two lanes is another one, and may be.
TEST(Relations, TwoLanesAreNeverSlowerThanOneBesideAlltoAlls) {
  LayerSearch search;
  int compared = 0, slower = 0;
  double worst = 1;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const RandomLayer layer = full_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const double two = search.tune(find_schedule("fsmoe"), pricer).total_s();
    const double one = search.tune(find_schedule("fsmoe-no-iio"), pricer).total_s();
    if (pricer.has(GroupKind::ep)) {
      EXPECT_LE(two, one * (1 + 1e-9)) << layer.text;
      ++compared;
    } else {
      slower += two > one * (1 + 1e-9);
      worst = std::max(worst, two / one);
    }
  }
  fmt::print("without AlltoAll, two lanes are slower on {} of {} layers, by {:.1f} % at worst\n", slower,
             1000 - compared, 100 * (worst - 1));
  EXPECT_GT(compared, 300);
}

// Every task takes at least as long and starts no earlier. Between two contentions this does not hold: a task that is
// slowed may leave the network to another; how often and how much is printed.
TEST(Contention, OnlySlows) {
  LayerSearch search;
  int slower = 0, compared = 0, faster_by_more = 0;
  double worst = 1;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const RandomLayer layer = full_layer(seed);
    Profile some = layer.profile, more;
    const auto factor = [&](uint64_t i) { return 1 + 2 * random_uniform(seed, 53, i); };
    for (uint64_t i = 10; const ContentionPair& pair : contention_pairs()) {
      some.contention.*pair.factor = factor(i++);
      pair.stall_s(some.contention) = seed % 2 == 0 ? 0 : 1e-4 * factor(i++);
    }
    more = some;
    more.contention.inter_by_intra *= factor(6);
    more.contention.compute_by_inter *= factor(7);
    const LayerPricer none(layer.profile, layer.shape), less(some, layer.shape), most(more, layer.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, layer.shape) || !has_one_order(schedule)) continue;
      const Decision d = any_decision(schedule, layer.shape, seed);
      const LayerResult a = search.evaluate(schedule, none, d), b = search.evaluate(schedule, less, d);
      const double c = search.evaluate(schedule, most, d).total_s();
      ASSERT_GE(b.forward_s, a.forward_s * (1 - 1e-12)) << schedule.name << ", " << layer.text;
      ASSERT_GE(b.backward_s, a.backward_s * (1 - 1e-12)) << schedule.name << ", " << layer.text;
      slower += b.total_s() > a.total_s() * (1 + 1e-9);
      faster_by_more += c < b.total_s() * (1 - 1e-9);
      worst = std::min(worst, c / b.total_s());
      ++compared;
    }
  }
  fmt::print("contention slows {} of {} plans; more of it is faster for {}, by {:.2f} % at most\n", slower, compared,
             faster_by_more, 100 * (1 - worst));
  EXPECT_GT(slower, compared / 5);
}

// Layers of many shapes and profiles through one search, in two orders and each alone.
TEST(Relations, TuningDoesNotDependOnWhatWasTunedBefore) {
  constexpr uint64_t kLayers = 60;
  const auto key = [](const LayerResult& r) {
    const Decision& d = r.decision;
    return std::tuple(r.forward_s, r.backward_s, r.moe_forward_s, r.moe_backward_s, r.bound.total_s(),
                      r.degree_bound.total_s(), d.degree_forward, d.degree_backward, d.gar_in_moe_bytes,
                      d.gar_beside_dense_bytes, d.gaps, d.order_forward, d.order_backward, d.packing, d.variant);
  };
  using Results = std::map<std::pair<uint64_t, std::string_view>, decltype(key({}))>;
  const auto tune = [&](LayerSearch& search, uint64_t seed, bool backwards, Results& results) {
    RandomLayer layer = full_layer(seed, seed % 4 == 1);
    if (seed % 5 == 0) layer.profile.contention.intra_by_inter = 1.5;
    const LayerPricer pricer(layer.profile, layer.shape);
    for (size_t i = 0; i < schedules().size(); ++i) {
      const Schedule& schedule = schedules()[backwards ? schedules().size() - 1 - i : i];
      const bool one_group = traits_of(schedule.flow).one_group;
      if (one_group && layer.shape.parallel.mp != layer.shape.parallel.esp) continue;
      const LayerResult result = search.tune(schedule, pricer);
      results.emplace(std::pair{seed, schedule.name}, key(result));
      EXPECT_TRUE(key(search.evaluate(schedule, pricer, result.decision)) == key(result))
          << "tuned and evaluated differ: " << text_of(schedule, layer.shape, result.decision);
    }
  };
  Results forwards, backwards, alone;
  LayerSearch first, second;
  for (uint64_t seed = 1; seed <= kLayers; ++seed) tune(first, seed, false, forwards);
  for (uint64_t seed = kLayers; seed >= 1; --seed) tune(second, seed, true, backwards);
  for (uint64_t seed = 1; seed <= kLayers; ++seed) {
    LayerSearch search;
    tune(search, seed, false, alone);
  }
  ASSERT_EQ(forwards.size(), alone.size());
  for (const auto& [which, result] : alone) {
    EXPECT_TRUE(forwards.at(which) == result) << which.second << ", seed " << which.first;
    EXPECT_TRUE(backwards.at(which) == result) << which.second << ", seed " << which.first;
  }
}

}  // namespace
}  // namespace moe
