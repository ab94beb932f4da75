#include "moe/simulator/rank_replay.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/simulator.h"
#include "tests/simulator/rank_reference.h"

namespace moe {
namespace {

using ranks::Draw;

double worst_of(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
  return worst;
}

// Largest difference of a rank's end or waiting, relative to the makespan.
double difference(const Draw& d, int sample, const RankOutcome& found) {
  const ranks::Result expected = ranks::replay(d, sample);
  const double worst =
      std::max({worst_of(found.rank_end_s, expected.end_s), worst_of(found.rank_waiting_s, expected.waiting_s),
                std::abs(found.makespan_s.at(0) - expected.makespan_s)});
  return expected.makespan_s > 0 ? worst / expected.makespan_s : worst;
}

TEST(RankReplay, IsTheClockworkOfEveryRank) {
  constexpr int kDraws = 1000;
  int apart = 0, pipelined = 0, waiting = 0;
  double worst = 0;
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    const Draw d = ranks::random_draw(seed);
    const RankOutcome found = RankReplay(d.structure, d.parallel).replay(d.seconds, d.noise);
    const double off = difference(d, 0, found);
    ASSERT_LE(off, 1e-12) << "seed " << seed;
    worst = std::max(worst, off);
    const ParallelShape& p = d.parallel;
    apart += p.mp != p.esp && p.esp != p.ep && p.mp != p.ep;
    pipelined += p.pp > 1;
    waiting += found.mean_waiting_s() > 0.01 * found.max_s();
  }
  fmt::print("{} draws, MP, ESP and EP differ in {}, {} have stages, in {} ranks wait: worst difference {:.1e}\n",
             kDraws, apart, pipelined, waiting, worst);
  EXPECT_GT(apart, kDraws / 5);
  EXPECT_GT(pipelined, kDraws / 10);
  EXPECT_GT(waiting, kDraws / 3);
}

TEST(RankReplay, IsTheClockworkOnSchedules) {
  double worst = 0;
  for (const std::string_view name : {"ds-moe", "tutel", "fsmoe"}) {
    const Schedule& schedule = find_schedule(name);
    LayerShape layer;
    layer.experts = 4;
    const LayerCase shape =
        complete(layer, {.nodes = 4, .ranks_per_node = 4, .mp = 2, .ep = 2, .esp = 4}, Rounding::ragged);
    const int r = schedule.degrees == DegreePolicy::one ? 1 : 3;
    const Plan plan = build_plan(schedule, shape, with_split(schedule, r, r, 4096));
    Draw d{*plan.structure, shape.parallel, {}, {Jitter::lognormal, 0.1, {{5, 1.3}}, {}, {}, 1}, {}, {}};
    for (size_t c = 0; c < plan.works.size(); ++c) d.seconds.push_back(random_uniform(5, 0, c));
    worst = std::max(worst, difference(d, 0, RankReplay(d.structure, d.parallel).replay(d.seconds, d.noise)));
  }
  fmt::print("schedules: worst difference {:.1e}\n", worst);
  EXPECT_LE(worst, 1e-12);
}

TEST(RankReplay, OfEqualRanksIsThePlainOne) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const Draw d = ranks::random_draw(seed);
    const Timeline plain = simulate(d.structure, d.seconds);
    for (const Jitter jitter : {Jitter::none, Jitter::uniform, Jitter::lognormal}) {
      RankNoise none;
      none.jitter = jitter;  // of coefficient 0
      const RankOutcome found = RankReplay(d.structure, d.parallel).replay(d.seconds, none);
      ASSERT_EQ(found.makespan_s.at(0), plain.makespan_s) << "seed " << seed;
      ASSERT_EQ(found.mean_waiting_s(), 0) << "seed " << seed;
    }
  }
}

TEST(RankReplay, DoesNotDependOnRanksAtOnce) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Draw d = ranks::random_draw(seed);
    const RankOutcome all = RankReplay(d.structure, d.parallel, 1 << 30).replay(d.seconds, d.noise, 3);
    for (const int at_once : {1, 3, 8}) {
      const RankOutcome found = RankReplay(d.structure, d.parallel, at_once).replay(d.seconds, d.noise, 3);
      ASSERT_EQ(found.makespan_s, all.makespan_s) << "seed " << seed << ", " << at_once << " at once";
      ASSERT_EQ(found.rank_end_s, all.rank_end_s) << "seed " << seed << ", " << at_once << " at once";
      ASSERT_EQ(found.rank_waiting_s, all.rank_waiting_s) << "seed " << seed << ", " << at_once << " at once";
    }
  }
}

TEST(RankReplay, SamplesAreFixedBySeedAndNumber) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Draw d = ranks::random_draw(seed);
    if (d.noise.jitter == Jitter::none) continue;
    const RankReplay replay(d.structure, d.parallel);
    const RankOutcome few = replay.replay(d.seconds, d.noise, 2), more = replay.replay(d.seconds, d.noise, 5);
    if (few.max_s() == 0) continue;
    ASSERT_EQ(replay.replay(d.seconds, d.noise, 5).makespan_s, more.makespan_s);
    ASSERT_EQ(few.makespan_s, std::vector<double>(more.makespan_s.begin(), more.makespan_s.begin() + 2));
    ASSERT_NEAR(more.makespan_s[3], ranks::replay(d, 3).makespan_s, 1e-12 * more.max_s()) << "seed " << seed;
    EXPECT_NE(more.makespan_s[0], more.makespan_s[1]) << "seed " << seed;
    ++d.noise.seed;
    EXPECT_NE(replay.replay(d.seconds, d.noise, 1).makespan_s[0], more.makespan_s[0]) << "seed " << seed;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

// Four ranks, MP groups {0, 1} and {2, 3}, DP groups {0, 2} and {1, 3}: attention 1 s, ReduceScatter over MP 2 s,
// expert 1 s, gradients over DP 1 s, one after the other.
struct Chain {
  Structure structure;
  ParallelShape parallel{.nodes = 1, .ranks_per_node = 4, .dp = 2, .mp = 2, .ep = 4, .esp = 1, .pp = 1, .edp = 1};
  std::vector<double> seconds{1, 2, 1, 1};
  Chain() {
    structure.lanes.resize(2);
    add(0, TaskKind::attention, GroupKind::none);
    add(1, TaskKind::mp_reducescatter, GroupKind::mp);
    add(0, TaskKind::expert, GroupKind::none);
    add(1, TaskKind::gradient, GroupKind::dp);
  }
  void add(int lane, TaskKind kind, GroupKind group) {
    Task task;
    task.id = static_cast<int>(structure.tasks.size());
    task.lane = lane;
    task.kind = kind;
    task.group = group;
    if (task.id > 0) task.after = {task.id - 1};
    structure.lanes[lane].queue.push_back(task.id);
    structure.tasks.push_back(std::move(task));
  }
  RankOutcome replay(const RankNoise& noise) const { return RankReplay(structure, parallel).replay(seconds, noise); }
};

TEST(RankReplay, StragglerByHand) {
  RankNoise noise;
  noise.stragglers = {{1, 1.5}};
  const RankOutcome found = Chain().replay(noise);
  // Rank 1's attention ends at 1.5, the others' at 1. {0, 1} reduce from 1.5 for 3 s, to 4.5; {2, 3} from 1 to 3.
  // Experts end at 5.5, 6, 4, 4. Gradients: {0, 2} from 5.5 to 6.5; {1, 3} from 6 for 1.5 s, to 7.5.
  EXPECT_EQ(found.rank_end_s, (std::vector<double>{6.5, 7.5, 6.5, 7.5}));
  EXPECT_EQ(found.makespan_s, std::vector<double>{7.5});
  // Without waiting: 1 + 3 + 1 + 1; 1.5 + 3 + 1.5 + 1.5; 1 + 2 + 1 + 1; 1 + 2 + 1 + 1.5.
  EXPECT_EQ(found.rank_waiting_s, (std::vector<double>{0.5, 0, 1.5, 2}));
  EXPECT_EQ(found.mean_waiting_s(), 1);
}

TEST(RankReplay, LoadByHand) {
  RankNoise noise;
  noise.load = {0.5, 0.5, 2, 1};
  // The experts alone, 3 to 3.5, 3.5, 5, 4; gradients over {0, 2} from 5, over {1, 3} from 4.
  const RankOutcome found = Chain().replay(noise);
  EXPECT_EQ(found.rank_end_s, (std::vector<double>{6, 5, 6, 5}));
  EXPECT_EQ(found.rank_waiting_s, (std::vector<double>{1.5, 0.5, 0, 0}));
  // With the ReduceScatter: {0, 1} take 1 s, to 2, {2, 3} 4 s, to 5; the experts end at 2.5, 2.5, 7, 6.
  noise.loaded.push_back(TaskKind::mp_reducescatter);
  EXPECT_EQ(Chain().replay(noise).rank_end_s, (std::vector<double>{8, 7, 8, 7}));
}

TEST(RankReplay, QuantilesOfSamples) {
  RankOutcome outcome;
  for (int i = 40; i > 0; --i) outcome.makespan_s.push_back(i);
  EXPECT_EQ(outcome.median_s(), 20);
  EXPECT_EQ(outcome.p95_s(), 38);
  EXPECT_EQ(outcome.max_s(), 40);
  outcome.makespan_s = {7};
  EXPECT_EQ(outcome.median_s(), 7);
  EXPECT_EQ(outcome.p95_s(), 7);
}

TEST(RankReplay, OfNothingTakesNoTime) {
  const ParallelShape parallel = Chain().parallel;
  EXPECT_EQ(RankReplay(Structure{}, parallel).replay({}, {}).makespan_s, std::vector<double>{0});
}

TEST(RankReplay, RefusesWhatItWouldMisread) {
  Chain chain;
  const auto noise = [](const auto& change) {
    RankNoise n;
    n.load = {1, 1, 1, 1};
    change(n);
    return n;
  };
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.coefficient = -0.1; })), BadInput);
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.jitter = Jitter::uniform, n.coefficient = 0.6; })), BadInput);
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.coefficient = std::nan(""); })), BadInput);
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.stragglers = {{4, 1}}; })), BadInput);
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.stragglers = {{1, 2}, {1, 2}}; })), BadInput);
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.stragglers = {{1, 0}}; })), BadInput);
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.load.pop_back(); })), BadInput);
  EXPECT_THROW(chain.replay(noise([](RankNoise& n) { n.load[0] = -1; })), BadInput);
  const RankReplay replay(chain.structure, chain.parallel);
  EXPECT_THROW(replay.replay(chain.seconds, {}, 0), BadInput);
  EXPECT_THROW(RankReplay(chain.structure, chain.parallel, 0), BadInput);
  chain.structure.lanes[1].stage = 1;
  EXPECT_THROW(RankReplay(chain.structure, chain.parallel), WrongResult) << "a stage that the shape does not have";
  chain.structure.lanes[1].stage = 0;
  chain.structure.tasks[0].after = {1};
  EXPECT_THROW(RankReplay(chain.structure, chain.parallel), WrongResult) << "issued before what it waits for";
}

}  // namespace
}  // namespace moe
