#include "moe/simulator/fluid_replay.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/schedule/schedule.h"
#include "tests/simulator/fluid_reference.h"

namespace moe {
namespace {

using fluid::Cut;
using fluid::Draw;

Timeline fluid_timeline(const Draw& d) { return moe::fluid_timeline(d.structure, d.networks, d.contention, d.seconds); }

// Largest difference of any start or end, relative to the makespan.
double difference(const Timeline& a, const Timeline& b) {
  double worst = std::abs(a.makespan_s - b.makespan_s);
  for (size_t i = 0; i < a.end_s.size(); ++i)
    worst = std::max({worst, std::abs(a.start_s[i] - b.start_s[i]), std::abs(a.end_s[i] - b.end_s[i])});
  return b.makespan_s > 0 ? worst / b.makespan_s : worst;
}

TEST(FluidReplay, IsTheSteppedOneOnRandomStructures) {
  constexpr int kDraws = 4000;
  double worst = 0;
  int slowed = 0, shared = 0;
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    const Draw d = fluid::random_draw(seed);
    const Timeline found = fluid_timeline(d), alone = simulate(d.structure, d.seconds);
    const double off = difference(found, fluid::step_through(d, alone.makespan_s / 50 + 1e-9, Cut::at_ends));
    ASSERT_LE(off, 1e-9) << "seed " << seed;
    worst = std::max(worst, off);
    slowed += found.makespan_s > alone.makespan_s * 1.01;
    shared += fluid::shares_network(d, found);
  }
  fmt::print("{} draws, {} slowed by contention, {} with a shared network: worst difference {:.1e}\n", kDraws, slowed,
             shared, worst);
  EXPECT_GT(slowed, kDraws / 3);
  EXPECT_GT(shared, kDraws / 4);
}

// No look at events at all: a task's end is known to a step, and each of the n before it may have added one.
TEST(FluidReplay, IsTheLimitOfBlindSteps) {
  constexpr int kDraws = 40, kSteps = 200'000;
  double worst = 0;
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    const Draw d = fluid::random_draw(seed);
    const Timeline found = fluid_timeline(d);
    if (found.makespan_s == 0) continue;
    const double off = difference(found, fluid::step_through(d, found.makespan_s / kSteps, Cut::never));
    ASSERT_LE(off, 2.0 * static_cast<double>(d.structure.tasks.size()) / kSteps) << "seed " << seed;
    worst = std::max(worst, off);
  }
  fmt::print("{} draws, {} blind steps: worst difference {:.1e}\n", kDraws, kSteps, worst);
}

TEST(FluidReplay, IsThePlainOneWithoutContention) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 8000; ++seed) {
    Draw d = fluid::random_draw(seed);
    d.contention = {};
    const Timeline found = fluid_timeline(d), plain = simulate(d.structure, d.seconds);
    if (fluid::shares_network(d, plain)) continue;
    ++compared;
    ASSERT_EQ(found.end_s, plain.end_s) << "seed " << seed;
    ASSERT_EQ(found.makespan_s, plain.makespan_s) << "seed " << seed;
    for (size_t i = 0; i < found.start_s.size(); ++i)  // the plain one takes the start from the end
      ASSERT_NEAR(found.start_s[i], plain.start_s[i], 1e-13) << "seed " << seed;
  }
  EXPECT_GT(compared, 2000);
}

TEST(FluidReplay, OfSchedules) {
  const LayerCase shape = complete({}, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  double worst = 0;
  uint64_t index = 0;
  for (const std::string_view name :
       {"ds-moe", "tutel", "tutel-improved", "fsmoe-no-iio", "fsmoe", "monta-o2", "monta-o3"}) {
    const Schedule& schedule = find_schedule(name);
    const int r = schedule.degrees == DegreePolicy::one ? 1 : 7;
    const Plan plan = build_plan(schedule, shape, with_split(schedule, r, r, 4096));
    Draw d{*plan.structure, networks_of(plan.groups), {}, {}};
    for (size_t c = 0; c < plan.works.size(); ++c) d.seconds.push_back(random_uniform(5, 0, index++));
    ASSERT_EQ(fluid_timeline(d).end_s, simulate(d.structure, d.seconds).end_s) << name;
    d.contention = {1.3, 1.2, 1.1, 1.05, 1.15, 1.4, 1.25, 1.35, 1.5, 1.45, 1.1, 1.3};
    for (const ContentionPair& pair : contention_pairs()) pair.stall_s(d.contention) = 0.1;
    const double off = difference(fluid_timeline(d), fluid::step_through(d, 0.5, Cut::at_ends));
    ASSERT_LE(off, 1e-9) << name;
    worst = std::max(worst, off);
  }
  fmt::print("schedules: worst difference {:.1e}\n", worst);
}

// One stage: compute, comm (both networks) and gradient (inter).
struct Layout {
  Draw d;
  Layout() {
    d.structure.lanes = {{LaneKind::compute, 0, false, false, {}},
                         {LaneKind::comm, 0, true, true, {}},
                         {LaneKind::gradient, 0, true, false, {}}};
    d.networks[GroupKind::ep] = d.networks[GroupKind::dp] = Network::inter;
    d.networks[GroupKind::esp] = Network::intra;
  }
  int add(int lane, GroupKind group, double seconds, std::vector<int> after = {}) {
    Task task;
    task.id = static_cast<int>(d.seconds.size());
    task.lane = lane;
    task.group = group;
    task.after = std::move(after);
    d.structure.lanes[lane].queue.push_back(task.id);
    d.structure.tasks.push_back(task);
    d.seconds.push_back(seconds);
    return task.id;
  }
  void expect_ends(const std::vector<double>& expected) const {
    const Timeline t = fluid_timeline(d);
    ASSERT_EQ(t.end_s.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(t.end_s[i], expected[i], 1e-12) << "task " << i;
  }
};

TEST(FluidReplay, ByHand) {
  Layout l;
  l.d.contention.compute_by_inter = 1.5;
  l.d.contention.inter_by_compute = 2;
  l.d.contention.compute_by_intra = 4;
  // 0 to 6: the dispatch (3 s at 1/2) ends at 6, when the expert (5 s at 2/3) has done 4 of its 5.
  // From 6 the allgather (2 s, by compute not slowed) runs to 8; the expert's last second at 1/4 would end at 10, but
  // from 8 it runs alone with 1/2 s left: 8.5. Then the second expert alone, 1 s: 9.5.
  const int dispatch = l.add(1, GroupKind::ep, 3);
  l.add(0, GroupKind::none, 5);
  const int allgather = l.add(1, GroupKind::esp, 2, {dispatch});
  l.add(0, GroupKind::none, 1, {allgather});
  l.expect_ends({6, 8.5, 8, 9.5});
}

// MoNTA's O3: a copy on its own lane beside the next AllGather, which uses the same memory.
TEST(FluidReplay, CopiesCompeteForMemory) {
  Layout l;
  l.d.structure.lanes[2] = {LaneKind::copy, 0, false, false, {}};
  l.d.contention.intra_by_copy = 1.25;
  l.d.contention.copy_by_intra = 2;
  // AllGathers of 2 s, copies of 1 s. The first copy (at 1/2) runs from 2 to 4, when the second AllGather (at 4/5) has
  // 0.4 s left; the second copy runs alone.
  const int first = l.add(1, GroupKind::esp, 2), second = l.add(1, GroupKind::esp, 2);
  l.add(2, GroupKind::none, 1, {first});
  l.add(2, GroupKind::none, 1, {second});
  l.expect_ends({2, 4.4, 4, 5.4});
  // Beginning side by side costs the AllGather 0.5 s and the copy 0.25 s: it ends at 2 + 2 x 1.25, with 0.5 s left of
  // the AllGather's 2.5 s.
  l.d.contention.stall_s[Resource::intra][Resource::copy] = 0.5;
  l.d.contention.stall_s[Resource::copy][Resource::intra] = 0.25;
  l.expect_ends({2, 5, 4.5, 6});
  // On the AllGathers' lane (O2) nothing runs beside a copy.
  for (const size_t id : {2, 3}) l.d.structure.tasks[id].lane = 1;
  l.d.structure.lanes[1].queue = {0, 1, 2, 3};
  l.d.structure.lanes[2].queue = {};
  l.expect_ends({2, 4, 5, 6});
}

// What ends as another begins does not run beside it, though 0.1 + 0.2 is a bit more than 0.3.
TEST(FluidReplay, RoundingStallsNobody) {
  Layout l;
  l.d.structure.lanes[2] = {LaneKind::copy, 0, false, false, {}};
  constexpr auto kCompute = static_cast<size_t>(Resource::compute), kCopy = static_cast<size_t>(Resource::copy);
  l.d.contention.stall_s[kCompute][kCopy] = l.d.contention.stall_s[kCopy][kCompute] = 1;
  l.add(0, GroupKind::none, 0.1);
  l.add(0, GroupKind::none, 0.2);
  const int dispatch = l.add(1, GroupKind::ep, 0.3);
  l.add(2, GroupKind::none, 1, {dispatch});
  l.expect_ends({0.1, 0.3, 0.3, 1.3});
}

TEST(FluidReplay, SharedNetworkHalves) {
  Layout l;
  // Both on inter at 1/2: the dispatch (2 s) ends at 4, when the gradients (3 s) have 1 s left. The allgather is on the
  // other network: the gradients pass at their full rate, to 5.
  const int dispatch = l.add(1, GroupKind::ep, 2);
  l.add(2, GroupKind::dp, 3);
  l.add(1, GroupKind::esp, 1.5, {dispatch});
  l.expect_ends({4, 5, 5.5});
  // Slowed to 4/5 by the gradients, the allgather does 0.8 s of its 1.5 until 5, and the rest alone: 5.7.
  l.d.contention.intra_by_inter = 1.25;
  l.expect_ends({4, 5, 5.7});
  // An expert of 1 s from the start slows both to 1/2 x 1/2: until 1 each does 1/4 s. Then at 1/2: the dispatch's 7/4 s
  // end at 4.5, the gradients have 1 s left, which ends at 5.5; the allgather does 0.8 s until then and ends at 6.2.
  l.d.contention.inter_by_compute = 2;
  l.add(0, GroupKind::none, 1);
  l.expect_ends({4.5, 5.5, 6.2, 1});
}

TEST(FluidReplay, CouplesTheLanesOfAStageAlone) {
  Layout l;
  l.d.contention.compute_by_inter = 3;
  l.add(0, GroupKind::none, 1);
  l.add(1, GroupKind::ep, 1);
  l.add(2, GroupKind::dp, 1);
  // The networks' two halve each other to 2; a factor for either lane, the expert has done 2/9 s by then.
  l.expect_ends({2 + 7.0 / 9, 2, 2});
  // With the gradients on another stage the dispatch ends at 1, when the expert has done 1/3 s.
  l.d.structure.lanes[2].stage = 1;
  l.expect_ends({5.0 / 3, 1, 1});
}

TEST(FluidReplay, WhatTakesNoTimeSlowsNobody) {
  Layout l;
  l.d.contention.compute_by_inter = 3;
  const int gate = l.add(0, GroupKind::none, 0);
  const int dispatch = l.add(1, GroupKind::ep, 0, {gate});
  l.add(0, GroupKind::none, 1);
  l.add(1, GroupKind::esp, 0, {dispatch});
  l.expect_ends({0, 0, 1, 0});
}

TEST(FluidReplay, MakespanIsTheTimelines) {
  std::vector<double> ends;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Draw d = fluid::random_draw(seed);
    const FluidReplay replay(d.structure, d.networks, d.contention);
    const Timeline t = replay.timeline(d.seconds);
    EXPECT_EQ(replay.makespan(d.seconds, ends), t.makespan_s) << "seed " << seed;
    EXPECT_EQ(ends, t.end_s) << "seed " << seed;
    ASSERT_EQ(t.lane_busy_s.size(), d.structure.lanes.size());
    for (size_t lane = 0; lane < t.lane_busy_s.size(); ++lane) {
      double busy = 0;
      for (const int id : d.structure.lanes[lane].queue) busy += t.end_s[id] - t.start_s[id];
      EXPECT_NEAR(t.lane_busy_s[lane], busy, 1e-12) << "seed " << seed;
    }
  }
}

// Along a line of prices the makespan is straight as far as `along` says, and from there the next line goes on.
TEST(FluidReplay, IsStraightAsFarAsItSays) {
  std::vector<double> ends;
  int bent = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    const Draw d = fluid::random_draw(seed);
    const FluidReplay replay(d.structure, d.networks, d.contention);
    std::vector<double> slopes;
    for (size_t i = 0; i < d.seconds.size(); ++i)
      slopes.push_back(d.seconds[i] > 0 ? d.seconds[i] * (random_uniform(seed, 21, i) - 0.5) : 0);
    const auto at = [&](double step) {
      std::vector<double> seconds = d.seconds;
      for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += step * slopes[i];
      return seconds;
    };
    double from = 0;
    for (int piece = 0; piece < 5 && from < 1; ++piece) {
      const LinearSegment span = replay.replay_along(at(from), slopes);
      EXPECT_NEAR(span.seconds, replay.makespan(at(from), ends), 1e-12 * span.seconds) << "seed " << seed;
      const double reach = std::min(span.reach, 1 - from);
      for (const double share : {0.3, 0.999})
        ASSERT_NEAR(replay.makespan(at(from + share * reach), ends), span.seconds + share * reach * span.slope,
                    1e-9 * span.seconds)
            << "seed " << seed << " piece " << piece;
      bent += span.reach < 1 - from;
      from += reach + 1e-9;
    }
  }
  fmt::print("{} bends\n", bent);
  EXPECT_GT(bent, 1000);
}

TEST(FluidReplay, RefusesWhatItWouldMisread) {
  Layout l;
  l.add(0, GroupKind::none, 1);
  l.add(1, GroupKind::ep, 1);
  const auto refused = [&](const auto& change) {
    Draw d = l.d;
    change(d);
    return [d] { fluid_timeline(d); };
  };
  EXPECT_THROW(refused([](Draw& d) { d.structure.tasks[0].after = {1}; })(), WrongResult);
  EXPECT_THROW(refused([](Draw& d) { d.structure.lanes[0].queue = {1}; })(), WrongResult);
  EXPECT_THROW(refused([](Draw& d) { d.structure.lanes.resize(kMaxLanes + 1); })(), Unsupported);
  EXPECT_THROW(refused([](Draw& d) { d.contention.intra_by_inter = 0.9; })(), BadInput);
  EXPECT_THROW(refused([](Draw& d) { d.contention.compute_by_intra = std::nan(""); })(), BadInput);
  EXPECT_THROW(refused([](Draw& d) { d.contention.copy_by_intra = 0.5; })(), BadInput);
  EXPECT_THROW(refused([](Draw& d) { d.contention.stall_s[0][1] = -1; })(), BadInput);
}

}  // namespace
}  // namespace moe
