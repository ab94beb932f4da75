// What a search's results promise: degrees and splits as asked, times of the whole plan, no time below the bound.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/search/layer_search.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using any_decision::any_decision;
using any_decision::fits;
using random_layer::random_layer;
using random_layer::RandomLayer;

struct PlanTimes {
  double forward = 0, backward = 0;          // of the two phases of one plan, replayed in one go
  double moe_forward = 0, moe_backward = 0;  // first start to last end of D G E S C
};

PlanTimes times_of(const Plan& plan, const LayerPricer& pricer) {
  const Timeline t = fluid_timeline(*plan.structure, networks_of(plan.groups), {}, price(pricer, plan));
  PlanTimes times;
  std::map<Phase, std::pair<double, double>> moe;
  for (const Task& task : plan.tasks()) {
    const double start = t.start_s[task.id], end = t.end_s[task.id];
    if (task.phase == Phase::forward) times.forward = std::max(times.forward, end);
    if (!is_chunked(task.kind)) continue;
    const auto [entry, first] = moe.emplace(task.phase, std::pair{start, end});
    if (!first) entry->second = {std::min(entry->second.first, start), std::max(entry->second.second, end)};
  }
  times.backward = t.makespan_s - times.forward;
  times.moe_forward = moe[Phase::forward].second - moe[Phase::forward].first;
  times.moe_backward = moe[Phase::backward].second - moe[Phase::backward].first;
  return times;
}

TEST(LayerSearch, PhasesAloneTakeAsLongAsInTheWholePlan) {
  LayerSearch search;
  double worst = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, layer.shape)) continue;
      const Decision d = any_decision(schedule, pricer.shape(), seed);
      const LayerResult result = search.evaluate(schedule, pricer, d);
      const PlanTimes times = times_of(build_plan(schedule, layer.shape, d), pricer);
      const auto same = [&](double found, double expected, std::string_view what) {
        worst = std::max(worst, std::abs(found - expected) / result.total_s());
        ASSERT_NEAR(found, expected, 1e-12 * result.total_s())
            << what << " of " << schedule.name << " r " << d.degree_forward << " " << d.degree_backward << ", "
            << d.gar_in_moe_bytes << " bytes in the MoE part, " << layer.text;
      };
      same(result.forward_s, times.forward, "forward");
      same(result.backward_s, times.backward, "backward");
      same(result.moe_forward_s, times.moe_forward, "MoE part of the forward");
      same(result.moe_backward_s, times.moe_backward, "MoE part of the backward");
      if (HasFailure()) return;
    }
  }
  fmt::print("worst difference between phases alone and the whole plan: {:.1e} of the total\n", worst);
}

// No chunk has less than a row: what is asked for beyond that is T_rank, and says so.
TEST(LayerSearch, DegreesAboveTheRowsAreTheRows) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const int rows = static_cast<int>(pricer.rows());
    for (const char* name : {"fsmoe", "tutel", "fsmoe-no-iio"}) {
      const Schedule& schedule = find_schedule(name);
      const LayerResult most = search.tune(schedule, pricer, {rows, rows});
      EXPECT_TRUE(
          std::ranges::none_of(pricer.notes(), [](const auto& n) { return n.kind == PriceNote::Kind::degree_above; }));
      const LayerPricer asked(layer.profile, layer.shape);
      const LayerResult above = search.tune(schedule, asked, {rows + 5000, rows + 5000});
      EXPECT_EQ(above.decision.degree_forward, rows) << layer.text;
      EXPECT_EQ(above.decision.degree_backward, rows) << layer.text;
      EXPECT_EQ(above.total_s(), most.total_s()) << layer.text;
      EXPECT_TRUE(texts_of(asked.notes())
                      .contains(fmt::format("degree above T_rank: found {}, treated as {}, one row a chunk",
                                            rows + 5000, rows)));
    }
  }
}

// Without fixed costs no bound ends the search before the limit, and the result says so; with them it does.
TEST(LayerSearch, DegreesThatTheLimitMayHaveKeptFromBetterOnesSaySo) {
  LayerSearch search;
  int limited = 0, ruled_out = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed)
    for (const bool free : {true, false}) {
      RandomLayer layer = random_layer(seed);
      layer.shape.rounding = Rounding::lcm;  // its limit is the smallest
      layer.shape.layer.seq *= 64;
      for (CommRow& row : layer.profile.comm) row.alpha_s *= free ? 0 : 1;
      for (ComputeRow& row : layer.profile.compute) row.alpha_s *= free ? 0 : 1;
      const LayerPricer pricer(layer.profile, layer.shape), asked(layer.profile, layer.shape);
      const auto told = [](const LayerPricer& of) {
        return std::ranges::any_of(of.notes(),
                                   [](const auto& note) { return note.text().starts_with("degree limit: 64 is"); });
      };
      const Schedule& schedule = find_schedule("fsmoe-no-partition");
      const Decision d = search.tune(schedule, pricer, {}).decision;
      const bool at_limit = std::max(d.degree_forward, d.degree_backward) == degree_limit(layer.shape);
      if (at_limit && pricer.rows() > degree_limit(layer.shape)) {
        EXPECT_TRUE(told(pricer)) << layer.text;
      }
      if (pricer.rows() <= degree_limit(layer.shape)) {
        EXPECT_FALSE(told(pricer)) << layer.text;
      }
      (told(pricer) ? limited : ruled_out) += 1;
      search.tune(schedule, asked, {2, 2});
      EXPECT_FALSE(told(asked)) << layer.text;  // nothing was searched
    }
  EXPECT_GT(limited, 5);
  EXPECT_GT(ruled_out, 5);
}

// What a bound says of all degrees from one on, none of them beats.
TEST(LayerSearch, NoDegreeBeatsTheBoundOfThoseFromItOn) {
  LayerSearch search;
  double closest = 1e9;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomLayer drawn = random_layer(seed, seed % 2 == 0), layer = seed % 3 == 0 ? contended(drawn, seed) : drawn;
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const std::string_view name : {"tutel", "fsmoe", "fsmoe-dw", "monta-o2"}) {
      const Schedule& schedule = find_schedule(name);
      if (!fits(schedule, layer.shape)) continue;
      search::LayerReplay replay = search.replay(schedule, pricer);
      const PhaseBound forward = replay.bound(Phase::forward), backward = replay.bound(Phase::backward);
      double least_forward = 1e300, least_backward = 1e300, least_pass = 1e300;
      for (int r = largest_degree(pricer); r >= 1; --r) {
        const LayerResult at = search.tune(schedule, pricer, {r, r});
        least_forward = std::min(least_forward, at.forward_s);
        least_backward = std::min(least_backward, at.backward_s);
        least_pass = std::min(least_pass, replay.pass(r, Phase::backward).makespan_s);
        ASSERT_LE(forward.from(r), least_forward * (1 + 1e-12)) << name << " from " << r << ", " << layer.text;
        ASSERT_LE(backward.from(r), least_backward * (1 + 1e-12)) << name << " from " << r << ", " << layer.text;
        ASSERT_LE(backward.pass_from(r), least_pass * (1 + 1e-12)) << name << " from " << r << ", " << layer.text;
        if (r > 2) closest = std::min(closest, least_forward / forward.from(r));
      }
    }
  }
  EXPECT_LT(closest, 1 + 1e-9) << "the bound is never reached: is it one?";
}

TEST(LayerSearch, TheBoundOfAScheduleThatChoosesIsTheLeastOfEachPhase) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const char* name : {"parm", "monta"}) {
      const Schedule& schedule = find_schedule(name);
      if (!fits(*schedule.variants.front(), layer.shape)) continue;
      double forward_s = std::numeric_limits<double>::infinity(), backward_s = forward_s;
      for (const Schedule* variant : schedule.variants) {
        const Bound bound = degree_free_bound(*variant, pricer);
        forward_s = std::min(forward_s, bound.forward_s);
        backward_s = std::min(backward_s, bound.backward_s);
      }
      const double least = forward_s + backward_s;
      ASSERT_EQ(degree_free_bound(schedule, pricer).total_s(), least) << name << ", " << layer.text;
      const LayerResult best = search.tune(schedule, pricer);
      ASSERT_EQ(best.bound.total_s(), least) << name << ", " << layer.text;
      ASSERT_GE(best.total_s(), least * (1 - 1e-12)) << name << ", " << layer.text;
    }
  }
}

TEST(LayerSearch, NothingIsFasterThanTheDegreeFreeBound) {
  LayerSearch search;
  std::map<std::string_view, int> terms;
  double closest = 1e9;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const RandomLayer layer = seed % 3 == 0 ? contended(random_layer(seed), seed) : random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const Schedule& schedule : schedules()) {
      if (!fits(schedule, layer.shape)) continue;
      const Bound bound = degree_free_bound(schedule, pricer);
      const auto check = [&](const LayerResult& r) {
        if (r.decision.packing > 1) return;  // another case, whose bound is the result's own
        const double slack = 1e-12 * r.total_s();
        const std::string where =
            fmt::format("{} r {} {}, {} of {} bytes in the MoE part, {}", schedule.name, r.decision.degree_forward,
                        r.decision.degree_backward, r.decision.gar_in_moe_bytes, pricer.gradient_bytes(), layer.text);
        ASSERT_GE(r.forward_s, bound.forward_s - slack) << bound.forward_term << ", " << where;
        ASSERT_GE(r.backward_s, bound.backward_s - slack) << bound.backward_term << ", " << where;
        closest = std::min(closest, r.total_s() / bound.total_s());
      };
      const LayerResult best = search.tune(schedule, pricer);
      check(best);
      for (uint64_t i = 0; i < 3; ++i)
        check(search.evaluate(schedule, pricer, any_decision(schedule, pricer.shape(), 7000 * i + seed)));
      if (HasFailure()) return;
      ++terms[bound.backward_term];
      if (best.decision.packing == 1) {
        EXPECT_EQ(best.bound.total_s(), bound.total_s());
      }
      ASSERT_GE(best.total_s(), best.bound.total_s() * (1 - 1e-12)) << schedule.name << ", " << layer.text;
      ASSERT_GE(best.degree_bound.total_s(), best.bound.total_s() * (1 - 1e-12)) << schedule.name << ", " << layer.text;
      ASSERT_GE(best.total_s(), best.degree_bound.total_s() * (1 - 1e-12)) << schedule.name << ", " << layer.text;
    }
  }
  for (const auto& [term, count] : terms) fmt::print("bound by {}: {} backwards\n", term, count);
  EXPECT_GE(terms.size(), 6u) << "compute, communication, inter, intra, gradients and contention bind somewhere";
  EXPECT_LT(closest, 1 + 1e-9) << "the bound is never reached: is it one?";
}

TEST(LayerSearch, KeepsTheDegreesThatAreAskedFor) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const RandomLayer layer = random_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const int most = static_cast<int>(std::min<int64_t>(3, pricer.rows()));  // no chunk has less than a row
    for (const int forward : {0, 1, most})
      for (const int backward : {0, 1, std::min(2, most), most}) {
        const LayerResult r = search.tune(find_schedule("fsmoe"), pricer, {forward, backward});
        EXPECT_TRUE(forward == 0 || r.decision.degree_forward == forward) << layer.text;
        EXPECT_TRUE(backward == 0 || r.decision.degree_backward == backward) << layer.text;
        const LayerResult free = search.tune(find_schedule("fsmoe"), pricer);
        EXPECT_LE(free.total_s(), r.total_s() * (1 + 1e-12) + 1e-15) << layer.text;
      }
    for (const DegreeChoice& choice : {DegreeChoice{most, 0}, {0, most}, {most, most}}) {
      const Decision d = search.tune(find_schedule("tutel"), pricer, choice).decision;
      EXPECT_TRUE(d.degree_forward == most && d.degree_backward == most) << layer.text;
    }
    const Decision shared = search.tune(find_schedule("tutel"), pricer).decision;
    EXPECT_EQ(shared.degree_forward, shared.degree_backward) << layer.text;
    const Decision one = search.tune(find_schedule("ds-moe"), pricer).decision;
    EXPECT_TRUE(one.degree_forward == 1 && one.degree_backward == 1) << layer.text;
  }
}

TEST(LayerSearch, TiesGoToTheSmallerDegreeAndNoDegreeExceedsTheRows) {
  RandomLayer layer = random_layer(1);
  layer.shape = complete({.batch = 1, .seq = 16, .model_dim = 8, .hidden = 64, .heads = 8, .experts = 4, .top_k = 1},
                         {.nodes = 1, .ranks_per_node = 1}, Rounding::ragged);
  LayerSearch search;
  layer.profile.compute[0].alpha_s = layer.profile.task_overhead_s = 0;
  layer.profile.compute[0].beta_s_per_flop = 0x1p-30;  // sums are exact, so that ties are ties
  const LayerPricer free_chunks(layer.profile, layer.shape);
  const Decision d = search.tune(find_schedule("fsmoe"), free_chunks).decision;
  EXPECT_EQ(d.degree_forward, 1) << "one rank alone: every degree takes equally long";
  EXPECT_EQ(d.degree_backward, 1);
  // Two nodes, free starts: the more chunks the better, up to the 3 rows of T_rank.
  layer.shape = complete({.batch = 1, .seq = 8, .model_dim = 8, .hidden = 64, .heads = 8, .experts = 4, .top_k = 1},
                         {.nodes = 2, .ranks_per_node = 1}, Rounding::ragged);
  CommRow row;
  row.ranks = 2;
  row.beta_s_per_byte = 1e-6;
  layer.profile.comm.clear();
  for (const Op op : {Op::alltoall, Op::allreduce}) {
    row.op = op;
    layer.profile.comm.push_back(row);
  }
  layer.profile.compute[0].beta_s_per_flop = 1e-6;  // the experts bind: only the first dispatch and last combine show
  layer.profile.task_overhead_s = 0;
  const LayerPricer pricer(layer.profile, layer.shape);
  ASSERT_EQ(pricer.rows(), 3);
  EXPECT_EQ(search.tune(find_schedule("tutel"), pricer).decision.degree_forward, 3);
}

TEST(LayerSearch, RefusesDegreesThatAScheduleDoesNotHave) {
  const RandomLayer layer = random_layer(3);
  const LayerPricer pricer(layer.profile, layer.shape);
  LayerSearch search;
  const auto refused = [&](std::string_view schedule, DegreeChoice choice) {
    EXPECT_THROW(search.tune(find_schedule(schedule), pricer, choice), BadInput)
        << schedule << " " << choice.forward << " " << choice.backward;
  };
  refused("ds-moe", {2, 0});
  refused("ds-moe", {0, 2});
  refused("tutel", {2, 3});
  for (const Schedule& schedule : schedules()) {
    refused(schedule.name, {-1, 0});
    refused(schedule.name, {0, -1});
  }
  EXPECT_NO_THROW(search.tune(find_schedule("ds-moe"), pricer, {1, 1}));
  EXPECT_NO_THROW(search.tune(find_schedule("ds-moe"), pricer, {0, 1}));
  EXPECT_THROW(search.evaluate(find_schedule("ds-moe"), pricer, {2, 2, 0}), BadInput);
  EXPECT_THROW(search.evaluate(find_schedule("tutel"), pricer, {2, 3, 0}), BadInput);
  EXPECT_THROW(search.evaluate(find_schedule("tutel"), pricer, {2, 2, 4}), BadInput);
  EXPECT_THROW(search.evaluate(find_schedule("fsmoe"), pricer, {0, 1, 0}), BadInput);
}

}  // namespace
}  // namespace moe
