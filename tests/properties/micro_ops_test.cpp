// Gradient pieces by priority (Lina sections 4.2 and 6.1): the frozen order against an event-driven simulator that
// decides at every event, and against what priority promises, on the timeline of the replay.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "moe/base/random.h"
#include "moe/search/layer_search.h"
#include "moe/simulator/simulator.h"
#include "tests/properties/cases.h"
#include "tests/properties/priority_simulator.h"

namespace moe {
namespace {

using conformance::full_layer;
using conformance::PriorityRun;
using conformance::simulate_priority;
using random_layer::RandomLayer;

// A tuned backward with its pieces, replayed as any structure is, and the same without them.
struct Tuned {
  Tuned(LayerSearch& search, const Schedule& s, const RandomLayer& layer, const LayerPricer& pricer, int64_t bytes)
      : schedule(s) {
    result = search.tune(schedule, pricer, {.micro_op_bytes = bytes});
    Decision bare = result.decision;
    if (bare.packing > 1) bare = {};  // of another case: not checked here
    const Groups groups = groups_of(layer.shape.parallel);
    const GradientPlacement placement = placement_of(schedule, groups, layer.shape, bare);
    with = build_structure(structure_key(schedule, outline_of(layer.shape), bare, placement, Phases::backward));
    without = build_structure(structure_key(schedule, outline_of(layer.shape), bare, {}, Phases::backward));
    slices = slices_of(schedule, layer.shape, bare);
    std::vector<double> seconds;
    pricer.price(*with, slices, seconds);
    timeline = simulate(*with, seconds);
    pricer.price(*without, {}, bare_seconds);
    const Network network = groups[GroupKind::dp].network;
    for (lane = 0; !without->lanes[lane].owns(network);) ++lane;
    for (const GradientSlice& slice : slices) {
      const bool experts = !placement.experts.empty() && placement.experts[pieces.size()];
      const Network own = groups[experts ? GroupKind::edp : GroupKind::dp].network;
      size_t at = 0;
      while (!without->lanes[at].owns(own)) ++at;
      const TaskKind kind = experts ? TaskKind::expert_gradient : TaskKind::gradient;
      pieces.push_back(
          {pricer.gradient_seconds(slice.bytes(), kind), static_cast<int>(at), experts ? last_expert(*without) : -1});
    }
  }
  double start(const Task& task) const { return timeline.start_s[size_t(task.id)]; }
  double end(const Task& task) const { return timeline.end_s[size_t(task.id)]; }
  double ready(const Task& task) const {
    double at = 0;
    for (const int id : task.after) at = std::max(at, timeline.end_s[size_t(id)]);
    return at;
  }

  const Schedule& schedule;
  LayerResult result;
  std::shared_ptr<const Structure> with, without;
  std::vector<GradientSlice> slices;
  Timeline timeline;
  std::vector<double> bare_seconds;
  std::vector<conformance::WaitingPiece> pieces;
  size_t lane;
};

template <class Check>
void for_every_tuned(uint64_t seeds, Check&& check) {
  LayerSearch search;
  std::map<std::string_view, int> checked;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const RandomLayer layer = full_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    if (!pricer.has(GroupKind::dp) || !pricer.has(GroupKind::ep)) continue;
    const int64_t bytes = 4 * (1 + static_cast<int64_t>(random_bits(seed, 41, 0) % 40));
    for (const Schedule& schedule : schedules()) {
      if (schedule.gradients != GradientPolicy::micro_ops) continue;
      const Tuned tuned(search, schedule, layer, pricer, bytes);
      if (tuned.result.decision.packing > 1) continue;  // of another case
      SCOPED_TRACE(fmt::format("{}, micro-ops of {} bytes, {}", schedule.name, bytes, layer.text));
      check(tuned);
      if (testing::Test::HasFailure()) return;
      ++checked[schedule.name];
    }
  }
  EXPECT_EQ(checked.size(), 5u);
  for (const auto& [name, count] : checked) EXPECT_GT(count, 50) << name;
}

// Lina's scheduler (section 6.1) launches none once the combine's backward computes; FSMoE's Pipemoe+Lina knows no such
// rule.
bool holds(const Schedule& schedule) { return schedule.name == "lina" || schedule.name == "lina-packed"; }

TEST(MicroOps, FrozenOrderIsThePrioritySimulation) {
  int between = 0, held = 0;
  for_every_tuned(600, [&](const Tuned& tuned) {
    const PriorityRun simulated =
        simulate_priority(*tuned.without, tuned.bare_seconds, tuned.pieces, holds(tuned.schedule));
    std::vector<double> ends, piece_ends(simulated.piece_starts.size());
    for (const Task& task : tuned.with->tasks) {
      const double end = tuned.timeline.end_s[size_t(task.id)];
      if (sends_gradients(task.kind))
        piece_ends.at(size_t(task.slice)) = end;
      else
        ends.push_back(end);
    }
    const double slack = 1e-12 * simulated.end;
    for (size_t i = 0; i < piece_ends.size(); ++i)
      ASSERT_NEAR(piece_ends[i], simulated.piece_starts[i] + tuned.pieces[i].seconds, slack) << "piece " << i;
    for (size_t i = 0; i < ends.size(); ++i)
      ASSERT_NEAR(ends[i], simulated.starts[i] + tuned.bare_seconds[size_t(tuned.without->tasks[i].id)], slack)
          << tuned.without->tasks[i].name();
    ASSERT_NEAR(tuned.timeline.makespan_s, simulated.end, slack);
    ASSERT_NEAR(tuned.result.backward_s, simulated.end, slack);
    between += tuned.result.decision.gaps.front() < static_cast<int>(tuned.without->lanes[tuned.lane].queue.size());
    held += simulated.held;
  });
  EXPECT_GT(between, 500) << "most pieces go between other tasks";
  EXPECT_GT(held, 20);
}

TEST(MicroOps, NoneStartsWhileAnAlltoAllWaitsOrRuns) {
  for_every_tuned(600, [](const Tuned& tuned) {
    for (const Task& piece : tuned.with->tasks) {
      if (!sends_gradients(piece.kind)) continue;
      for (const Task& task : tuned.with->tasks) {
        if (task.group != GroupKind::ep || task.lane != piece.lane)
          continue;  // on another network it is not in the way
        const bool over = tuned.end(task) <= tuned.start(piece) * (1 + 1e-12);
        const bool still_to_come = tuned.ready(task) > tuned.start(piece) * (1 - 1e-12);
        ASSERT_TRUE(over || still_to_come) << "slice " << piece.slice << " at " << tuned.start(piece) << ", "
                                           << task.name() << " waits since " << tuned.ready(task);
      }
    }
  });
}

// Save for what is held: while a piece waits, the lane is never idle.
TEST(MicroOps, LaneIsNeverIdleWhileAPieceWaits) {
  for_every_tuned(600, [](const Tuned& tuned) {
    const auto& queue = tuned.with->lanes[tuned.lane].queue;
    auto waiting = std::ranges::count(tuned.pieces, -1, &conformance::WaitingPiece::made_by);
    double busy_until = 0;
    bool imminent = holds(tuned.schedule);  // the first AlltoAll; a shared expert's AllGather may go before it
    for (size_t i = 0; i < queue.size() && waiting > 0; ++i) {
      const Task& task = tuned.with->tasks[size_t(queue[i])];
      const bool held = imminent && (task.kind == TaskKind::dispatch || task.kind == TaskKind::shared_allgather);
      imminent = held && task.kind == TaskKind::shared_allgather;
      if (!held) {
        ASSERT_LE(tuned.start(task), busy_until + 1e-12 * tuned.timeline.makespan_s)
            << "idle before " << task.name() << " with " << waiting << " pieces waiting";
      }
      busy_until = tuned.end(task);
      waiting -= task.kind == TaskKind::gradient;
    }
    ASSERT_EQ(waiting, 0);
  });
}

// Each tensor alone, in as few equal parts as have at most so many bytes (Lina section 4.2).
TEST(MicroOps, PiecesCutEachTensorAlone) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 96, .hidden = 64, .heads = 8, .kv_heads = 4, .experts = 4};
  for (const int mp : {1, 2, 4})
    for (const int64_t size : {4, 100, 1000, 4096, 9215, 9216, 9217, 40'000, 30'000'000}) {
      const LayerCase shape = complete(layer, {.nodes = 4, .ranks_per_node = 4, .mp = mp}, Rounding::ragged);
      const int64_t query = 4 * 96 * 96 / mp, key = query / 2;  // bytes of q and out, of k and v
      for (const char* name : {"pipemoe+lina", "lina-partition", "lina", "lina-packed"}) {
        std::vector<int64_t> found = gradient_pieces(find_schedule(name), shape, size);
        for (const int64_t tensor : {query, key, key, query}) {
          const int64_t count = (tensor + size - 1) / size;
          int64_t sum = 0, least = tensor, most = 0;
          ASSERT_GE(found.size(), static_cast<size_t>(std::min(count, tensor / 4))) << name << " " << size;
          const int64_t pieces = std::min(count, tensor / 4);
          for (int64_t i = 0; i < pieces; ++i) {
            sum += found[size_t(i)];
            least = std::min(least, found[size_t(i)]);
            most = std::max(most, found[size_t(i)]);
          }
          found.erase(found.begin(), found.begin() + pieces);
          ASSERT_EQ(sum, tensor) << name << " in pieces of " << size << ", mp " << mp;
          ASSERT_LE(most - least, 4) << name << " in pieces of " << size << ", mp " << mp;
          ASSERT_LE(most, size / 4 * 4 + (size % 4 == 0 ? 0 : 4)) << name;
        }
        ASSERT_TRUE(found.empty()) << name;
      }
    }
}

// Whole tensors until they reach 25 MiB: q of 36 MiB alone, k, v and out of 18, 18 and 36 MiB as 36 and 36.
TEST(MicroOps, BucketsFuseWholeTensors) {
  LayerShape layer{.batch = 1, .seq = 64, .model_dim = 3072, .hidden = 64, .heads = 8, .kv_heads = 4, .experts = 4};
  const LayerCase shape = complete(layer, {.nodes = 4, .ranks_per_node = 1, .mp = 1}, Rounding::ragged);
  for (const char* name : {"lina-baseline", "lina-fixed", "lina-priority"})
    EXPECT_EQ(gradient_pieces(find_schedule(name), shape, 1000), (std::vector<int64_t>{36 << 20, 36 << 20, 36 << 20}))
        << name;
  layer.model_dim = 1024;  // 4, 2, 2 and 4 MiB: one bucket
  EXPECT_EQ(gradient_pieces(find_schedule("lina-fixed"),
                            complete(layer, {.nodes = 4, .ranks_per_node = 1, .mp = 1}, Rounding::ragged), 1000),
            (std::vector<int64_t>{12 << 20}));
}

}  // namespace
}  // namespace moe
