// lina-baseline: gradients on a communicator of their own halve the AlltoAlls that they meet (Lina section 2.2, Figure
// 5), and nothing else; worked out by hand for one AlltoAll and one bucket, and by conservation for all.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "moe/base/random.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/fluid_replay.h"
#include "tests/properties/cases.h"

namespace moe {
namespace {

// AlltoAll and gradients between nodes, MP and ESP inside them.
constexpr GroupNetworks kNetworks{Network::none,  Network::inter, Network::intra, Network::intra,
                                  Network::inter, Network::none,  Network::inter, Network::none};

struct Replayed {
  std::shared_ptr<const Structure> structure;
  Timeline timeline;
  const Task& find(TaskKind kind) const { return *std::ranges::find(structure->tasks, kind, &Task::kind); }
  double end(TaskKind kind) const { return timeline.end_s[find(kind).id]; }
};

// A backward of one chunk with `buckets` buckets; seconds by kind of task alone on its network.
Replayed replay(int buckets, std::map<TaskKind, double> seconds) {
  const GradientPlacement placement{{}, std::vector<int>(static_cast<size_t>(buckets), 0), {}};
  Replayed r;
  r.structure =
      build_structure({&find_schedule("lina-baseline"), Phases::backward, 1, 1, placement, {}, {}, kNetworks, 1});
  std::vector<double> by_task;
  for (const Task& task : r.structure->tasks) by_task.push_back(seconds[task.kind]);
  r.timeline = fluid_timeline(*r.structure, kNetworks, {}, by_task);
  return r;
}

double draw(uint64_t seed, uint64_t index) { return 0.1 + random_uniform(seed, 81, index); }

TEST(SharedNetwork, ABucketAndAnAlltoAllHaveHalfOfItEach) {
  using enum TaskKind;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const double a2a = draw(seed, 0), bucket = draw(seed, 1);
    const Replayed r = replay(1, {{dispatch, a2a}, {gradient, bucket}});
    // Both from the start: the shorter ends after twice its time, the longer after both; the combine comes after D.
    const double dispatched = std::min(2 * a2a, a2a + bucket);
    ASSERT_NEAR(r.end(dispatch), dispatched, 1e-12) << "seed " << seed;
    ASSERT_NEAR(r.end(gradient), std::min(2 * bucket, a2a + bucket), 1e-12) << "seed " << seed;
  }
}

TEST(SharedNetwork, CollectivesInsideNodesAndExpertsAreNotSlowed) {
  using enum TaskKind;
  const Replayed r = replay(1, {{allgather, 1}, {expert, 2}, {reducescatter, 3}, {attention, 4}, {gradient, 7.5}});
  EXPECT_NEAR(r.end(allgather), 1, 1e-12);
  EXPECT_NEAR(r.end(expert), 3, 1e-12);
  EXPECT_NEAR(r.end(reducescatter), 6, 1e-12);
  EXPECT_NEAR(r.end(attention), 10, 1e-12);
  EXPECT_NEAR(r.end(gradient), 7.5, 1e-12);
}

// However they meet, the network moves what it moves: idle time apart, its end is the sum of all its tasks.
TEST(SharedNetwork, IsNeverFasterThanItsLoadAndNeverIdleForNothing) {
  using enum TaskKind;
  int met = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const int buckets = 1 + static_cast<int>(seed % 4);
    const std::map<TaskKind, double> seconds{{dispatch, draw(seed, 0)},  {combine, draw(seed, 1)},
                                             {gradient, draw(seed, 2)},  {expert, draw(seed, 3)},
                                             {allgather, draw(seed, 4)}, {reducescatter, draw(seed, 5)}};
    const Replayed r = replay(buckets, seconds);
    const double load = seconds.at(dispatch) + seconds.at(combine) + buckets * seconds.at(gradient);
    const double gap = seconds.at(expert) + seconds.at(allgather) + seconds.at(reducescatter);
    double last = 0;
    for (const Task& task : r.structure->tasks)
      if (kNetworks[task.group] == Network::inter) last = std::max(last, r.timeline.end_s[task.id]);
    ASSERT_GE(last, load - 1e-12) << "seed " << seed;
    ASSERT_LE(last, load + gap + 1e-12) << "seed " << seed;
    // Gradients go one after the other from the start, so that the network rests only where they have ended.
    const double sent = r.end(dispatch) + gap;
    if (r.timeline.end_s[r.structure->lanes.back().queue.back()] >= sent) {
      ASSERT_NEAR(last, load, 1e-12) << "seed " << seed;
      ++met;
    }
  }
  EXPECT_GT(met, 50);
}

}  // namespace
}  // namespace moe
