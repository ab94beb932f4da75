#include "moe/simulator/rank_fluid_replay.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/prices/pricer.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/simulator/rank_reference.h"

namespace moe {
namespace {

using ranks::Draw;

RankOutcome replayed(const Draw& d, int samples = 1) {
  return RankFluidReplay(d.structure, d.parallel, d.networks, d.contention).replay(d.seconds, d.noise, samples);
}

double worst_of(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
  return worst;
}

// Largest difference of a rank's end or waiting, relative to the makespan.
double difference(const RankOutcome& found, const std::vector<double>& end_s, const std::vector<double>& waiting_s) {
  const double makespan = found.makespan_s.at(0);
  const double worst = std::max(worst_of(found.rank_end_s, end_s), worst_of(found.rank_waiting_s, waiting_s));
  return makespan > 0 ? worst / makespan : worst;
}

TEST(RankFluidReplay, IsTheClockworkOfEveryRank) {
  constexpr int kDraws = 800;
  int slowed = 0, waiting = 0;
  double worst = 0;
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    const Draw d = ranks::random_contended_draw(seed);
    const RankOutcome found = replayed(d);
    const ranks::Result expected = ranks::replay(d, 0);
    const double off = difference(found, expected.end_s, expected.waiting_s);
    ASSERT_LE(off, 1e-9) << "seed " << seed;
    ASSERT_NEAR(found.makespan_s.at(0), expected.makespan_s, 1e-9 * expected.makespan_s) << "seed " << seed;
    worst = std::max(worst, off);
    const RankOutcome alone = RankReplay(d.structure, d.parallel).replay(d.seconds, d.noise);
    ASSERT_GE(found.max_s(), alone.max_s() * (1 - 1e-12)) << "seed " << seed << ": nothing is faster for contention";
    slowed += found.max_s() > 1.01 * alone.max_s();
    waiting += found.mean_waiting_s() > 0.01 * found.max_s();
  }
  fmt::print("{} draws, {} slowed by contention, in {} ranks wait: worst difference {:.1e}\n", kDraws, slowed, waiting,
             worst);
  EXPECT_GT(slowed, kDraws / 4);
  EXPECT_GT(waiting, kDraws / 3);
}

TEST(RankFluidReplay, WithoutContentionIsRankReplay) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Draw d = ranks::random_draw(seed);
    const RankOutcome found = replayed(d), expected = RankReplay(d.structure, d.parallel).replay(d.seconds, d.noise);
    const double off = difference(found, expected.rank_end_s, expected.rank_waiting_s);
    ASSERT_LE(off, 1e-12) << "seed " << seed;
    worst = std::max(worst, off);
  }
  fmt::print("worst difference {:.1e}\n", worst);
}

TEST(RankFluidReplay, OfEqualRanksIsTheFluidOne) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Draw d = ranks::random_contended_draw(seed);
    d.noise = {};
    const Timeline expected = fluid_timeline(d.structure, d.networks, d.contention, d.seconds);
    const RankOutcome found = replayed(d);
    ASSERT_NEAR(found.makespan_s.at(0), expected.makespan_s, 1e-12 * expected.makespan_s) << "seed " << seed;
    ASSERT_NEAR(found.mean_waiting_s(), 0, 1e-12 * expected.makespan_s) << "seed " << seed;
  }
}

// Rank 1's attention is slow; lane 0's collective of both ranks begins when it has ended, and is slowed on rank 0 by
// the compute task that runs there meanwhile, on rank 1 by nothing.
TEST(RankFluidReplay, ACollectiveGoesAtItsSlowestRanksRate) {
  Draw d;
  d.parallel = {.nodes = 1, .ranks_per_node = 2, .dp = 1, .mp = 2, .ep = 2, .esp = 1, .pp = 1, .edp = 1};
  d.structure.lanes = {{LaneKind::intra, 0, false, true, {1}}, {LaneKind::compute, 0, false, false, {0, 2}}};
  d.structure.tasks.resize(3);
  for (int id = 0; id < 3; ++id) {
    Task& task = d.structure.tasks[id];
    task.id = id;
    task.lane = id == 1 ? 0 : 1;
    task.kind = id == 1 ? TaskKind::mp_allgather : TaskKind::expert;
    if (id == 1) task.group = GroupKind::mp;
    if (id == 1) task.after = {0};
  }
  d.networks[GroupKind::mp] = Network::intra;
  d.contention.intra_by_compute = 2;
  d.seconds = {1, 4, 3};
  d.noise.stragglers = {{1, 2}};
  d.noise.load = {1, 1};
  // Rank 0 computes 0 to 1 and 1 to 4, rank 1 0 to 2 and 2 to 8. The AllGather has 8 s of work (rank 1's) and begins at
  // 2. At half its rate until 8, when rank 1 ends: 3 s done; at its own from then on: 13.
  EXPECT_EQ(replayed(d).rank_end_s, (std::vector<double>{13, 13}));
  d.noise.stragglers = {{1, 0.5}};
  // Rank 1 computes to 2, rank 0 to 4; 4 s of work from 1, at half the rate until 4, 1.5 s done: 6.5.
  EXPECT_EQ(replayed(d).rank_end_s, (std::vector<double>{6.5, 6.5}));
}

TEST(RankFluidReplay, SamplesAreFixedBySeedAndNumber) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Draw d = ranks::random_contended_draw(seed);
    const RankOutcome more = replayed(d, 4);
    ASSERT_EQ(replayed(d, 4).makespan_s, more.makespan_s);
    ASSERT_EQ(replayed(d, 2).makespan_s, std::vector<double>(more.makespan_s.begin(), more.makespan_s.begin() + 2));
    ASSERT_NEAR(more.makespan_s[3], ranks::replay(d, 3).makespan_s, 1e-9 * more.max_s()) << "seed " << seed;
  }
}

// A schedule whose AllReduce shares the network with AlltoAll: little noise moves its time little, never below.
TEST(RankFluidReplay, OfASharedNetworkIsNoFasterWithNoise) {
  const Profile profile = find_profile("testbed-b");
  const LayerCase shape = complete({}, {.nodes = 8, .ranks_per_node = 4}, Rounding::ragged);
  const LayerPricer pricer(profile, shape);
  const Schedule& schedule = find_schedule("lina-baseline");
  const Plan plan = build_plan(schedule, shape, {});
  ASSERT_TRUE(slows_itself(plan, profile.contention));
  const std::vector<double> seconds = price(pricer, plan);
  const double even = timeline_of(plan, seconds, profile.contention).makespan_s;
  RankNoise noise;
  EXPECT_NEAR(replay_ranks(plan, seconds, profile.contention, noise).max_s(), even, 1e-12 * even);
  noise.jitter = Jitter::lognormal;
  for (const double coefficient : {0.001, 0.01, 0.1, 0.3}) {
    noise.coefficient = coefficient;
    const RankOutcome found = replay_ranks(plan, seconds, profile.contention, noise, 20);
    EXPECT_GT(found.median_s(), even) << coefficient;
    EXPECT_LT(found.median_s(), even * (1 + 5 * coefficient)) << coefficient;
  }
}

TEST(RankFluidReplay, RefusesWhatItWouldMisread) {
  Draw d = ranks::random_contended_draw(3);
  d.noise = {};
  d.contention.intra_by_inter = 0.9;
  EXPECT_THROW(replayed(d), BadInput);
  d.contention = {};
  EXPECT_THROW(replayed(d, 0), BadInput);
  d.noise.load = {1};
  EXPECT_THROW(replayed(d), BadInput);
  d.noise = {};
  for (Lane& lane : d.structure.lanes) lane.stage = d.parallel.pp;
  EXPECT_THROW(replayed(d), WrongResult) << "a stage that the shape does not have";
}

}  // namespace
}  // namespace moe
