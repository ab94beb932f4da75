// The rules of the trace format, held against the files that we write for every schedule and random layers: what a
// viewer may take for granted. https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "moe/base/random.h"
#include "moe/formats/chrome_trace.h"
#include "moe/schedule/model_plan.h"
#include "moe/simulator/simulator.h"
#include "tests/prices/random_layer.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using nlohmann::json;
using Track = std::pair<int, int>;  // pid, tid

struct Slice {
  int64_t start, end;  // nanoseconds
  int task;
};

int64_t nanoseconds(const json& microseconds) { return std::llround(microseconds.get<double>() * 1000); }

// A trace file taken apart by what the format says alone.
struct Trace {
  explicit Trace(const std::string& text) {
    const json document = json::parse(text);
    for (const json& e : document.at("traceEvents")) read(e);
    for (auto& [track, slices] : tracks)
      std::ranges::stable_sort(slices, {}, [](const Slice& s) { return std::pair{s.start, s.end}; });
  }

  void read(const json& e) {
    const Track track{e.at("pid").get<int>(), e.at("tid").get<int>()};
    const std::string ph = e.at("ph"), name = e.at("name");
    EXPECT_FALSE(name.empty()) << e;
    if (ph == "M") {
      EXPECT_TRUE(metadata[track].insert(name).second) << "twice: " << e;
      if (name == "thread_name") names[track] = e.at("args").at("name");
    } else if (ph == "X") {
      EXPECT_GE(e.at("ts").get<double>(), 0) << e;
      EXPECT_GE(e.at("dur").get<double>(), 0) << e;
      const int64_t start = nanoseconds(e.at("ts"));
      tracks[track].push_back({start, start + nanoseconds(e.at("dur")), e.at("args").at("task").get<int>()});
    } else if (ph == "s" || ph == "f") {
      EXPECT_EQ(e.value("bp", ""), ph == "f" ? "e" : "") << e;
      const auto end = std::pair{track, nanoseconds(e.at("ts"))};
      EXPECT_TRUE((ph == "s" ? left : reached).emplace(e.at("id").get<int64_t>(), end).second) << "twice: " << e;
    } else {
      ADD_FAILURE() << "unknown phase: " << e;
    }
  }

  // The one slice that is open at an arrow's end: [start, end).
  const Slice* open(const Track& track, int64_t at) const {
    const Slice* found = nullptr;
    for (const Slice& s : tracks.at(track))
      if (s.start <= at && at < s.end) found = &s;
    return found;
  }

  std::map<Track, std::vector<Slice>> tracks;
  std::map<Track, std::set<std::string>> metadata;
  std::map<Track, std::string> names;
  std::map<int64_t, std::pair<Track, int64_t>> left, reached;  // arrows by id
};

struct Drawn {
  Plan plan;
  Timeline timeline;
};

void expect_tracks_follow_the_rules(const Trace& trace) {
  for (const auto& [track, slices] : trace.tracks) {
    EXPECT_TRUE(trace.metadata.contains(track) && trace.metadata.at(track).contains("thread_name")) << track.second;
    const Track process{track.first, 0};
    EXPECT_TRUE(trace.metadata.contains(process) && trace.metadata.at(process).contains("process_name"));
    for (size_t i = 1; i < slices.size(); ++i)  // a lane runs one task at a time: slices follow, they never nest
      EXPECT_LE(slices[i - 1].end, slices[i].start) << "track " << track.first << "/" << track.second;
  }
}

// Recomputed from the plan's dependencies, pair by pair.
std::set<std::pair<int, int>> expected_arrows(const Drawn& d) {
  std::set<std::pair<int, int>> arrows;
  const auto& tasks = d.plan.tasks();
  const auto length = [&](int id) {
    return std::llround(d.timeline.end_s[id] * 1e9) - std::llround(d.timeline.start_s[id] * 1e9);
  };
  for (const Task& task : tasks)
    for (const int from : task.after) {
      const int lane = tasks[from].lane;
      const bool last =
          std::ranges::none_of(task.after, [&](int other) { return other > from && tasks[other].lane == lane; });
      if (lane != task.lane && last && length(from) > 0 && length(task.id) > 0) arrows.insert({from, task.id});
    }
  return arrows;
}

void expect_arrows(const Trace& trace, const std::vector<Drawn>& drawn) {
  EXPECT_EQ(trace.left.size(), trace.reached.size());
  std::map<int, std::set<std::pair<int, int>>> found;
  for (const auto& [id, from] : trace.left) {
    const auto to = trace.reached.find(id);
    ASSERT_NE(to, trace.reached.end()) << "arrow " << id << " never arrives";
    const auto& [from_track, left_at] = from;
    const auto& [to_track, reached_at] = to->second;
    EXPECT_EQ(from_track.first, to_track.first) << "arrow " << id << " leaves its process";
    EXPECT_NE(from_track.second, to_track.second) << "arrow " << id << " stays on its lane";
    EXPECT_LE(left_at, reached_at) << "arrow " << id;
    const Slice *source = trace.open(from_track, left_at), *target = trace.open(to_track, reached_at);
    ASSERT_TRUE(source != nullptr && target != nullptr) << "arrow " << id << " begins or ends in no slice";
    EXPECT_TRUE(found[from_track.first].insert({source->task, target->task}).second) << "arrow " << id << " twice";
  }
  for (size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(found[static_cast<int>(i) + 1], expected_arrows(drawn[i]));
}

// Rounding moves either end of a slice by at most half a nanosecond.
void expect_busy_lanes(const Trace& trace, const std::vector<Drawn>& drawn) {
  size_t tracks = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const auto& lanes = drawn[i].plan.structure->lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (lanes[lane].queue.empty()) continue;
      ++tracks;
      const auto& slices = trace.tracks.at({static_cast<int>(i) + 1, static_cast<int>(lane) + 1});
      ASSERT_EQ(slices.size(), lanes[lane].queue.size());
      double busy = 0;
      for (const Slice& s : slices) busy += static_cast<double>(s.end - s.start);
      EXPECT_NEAR(busy, drawn[i].timeline.lane_busy_s[lane] * 1e9, 1.01 * static_cast<double>(slices.size()))
          << drawn[i].plan.schedule << ", " << name_of(lanes[lane].kind);
    }
  }
  EXPECT_EQ(trace.tracks.size(), tracks) << "tracks of lanes without tasks";
}

Trace expect_rules(const std::vector<Drawn>& drawn) {
  std::vector<TraceGroup> groups;
  for (const Drawn& d : drawn) groups.push_back({d.plan.schedule, -1, &d.plan, d.timeline.start_s, d.timeline.end_s});
  std::ostringstream out;
  chrome_trace(groups, out);
  Trace trace(out.str());
  expect_tracks_follow_the_rules(trace);
  expect_arrows(trace, drawn);
  expect_busy_lanes(trace, drawn);
  return trace;
}

// Times of classes need not be those of a profile: any non-negative ones make a timeline.
Timeline any_times(const Plan& plan, uint64_t seed) {
  std::vector<double> seconds;
  for (size_t i = 0; i < plan.works.size(); ++i) {
    const uint64_t draw = random_bits(seed, 11, i) % 16;
    seconds.push_back(draw == 0 ? 0 : 1e-9 * std::pow(10.0, 8 * random_uniform(seed, 12, i)));
  }
  return simulate(*plan.structure, seconds);
}

struct Covered {
  std::set<std::string> schedules;
  std::set<TaskKind> kinds;
  std::set<LaneKind> lanes;
  void add(const Plan& plan) {
    schedules.insert(plan.schedule);
    for (const Task& task : plan.tasks()) {
      kinds.insert(task.kind);
      lanes.insert(plan.structure->lanes[task.lane].kind);
    }
  }
};

TEST(TraceRules, HoldForEverySchedule) {
  constexpr uint64_t kLayers = 60;
  Covered covered;
  for (uint64_t seed = 1; seed <= kLayers; ++seed) {
    const random_layer::RandomLayer layer = random_layer::random_layer(seed);
    SCOPED_TRACE(layer.text);
    std::vector<Drawn> drawn;
    for (const Schedule& schedule : schedules()) {
      if (!any_decision::fits(schedule, layer.shape)) continue;
      Drawn d{build_plan(schedule, layer.shape, any_decision::any_decision(schedule, layer.shape, seed)), {}};
      d.timeline = any_times(d.plan, seed);
      covered.add(d.plan);
      drawn.push_back(std::move(d));
    }
    expect_rules(drawn);
  }
  for (const Schedule& schedule : schedules())
    if (schedule.variants.empty()) {
      EXPECT_TRUE(covered.schedules.contains(std::string(schedule.name))) << schedule.name;
    }
  for (const LaneKind lane :
       {LaneKind::compute, LaneKind::inter, LaneKind::intra, LaneKind::comm, LaneKind::copy, LaneKind::gradient})
    EXPECT_TRUE(covered.lanes.contains(lane)) << name_of(lane);
  for (const TaskKind kind : {TaskKind::copy, TaskKind::exchange, TaskKind::gather, TaskKind::sum, TaskKind::gradient,
                              TaskKind::allreduce, TaskKind::home_copy, TaskKind::mp_allreduce})
    EXPECT_TRUE(covered.kinds.contains(kind)) << name_of(kind);
  RecordProperty("schedules", static_cast<int>(covered.schedules.size()));
  std::printf("%zu schedules, %zu task kinds, %zu lanes over %d layers\n", covered.schedules.size(),
              covered.kinds.size(), covered.lanes.size(), static_cast<int>(kLayers));
}

// Two stages of four ranks each, every schedule that has plans of its own.
TEST(TraceRules, HoldForModelsOfSeveralStagesAndMicroBatches) {
  const LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 4, .top_k = 1};
  const ParallelShape parallel{.nodes = 4, .ranks_per_node = 2, .mp = 2, .ep = 2, .esp = 2, .pp = 2};
  for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
    const ModelShape model{complete(layer, parallel, Rounding::ragged), 5, 3, order};
    std::vector<Drawn> drawn;
    for (const Schedule& schedule : schedules()) {
      if (!any_decision::fits(schedule, model.shape)) continue;
      ModelDecision decision;
      decision.degree_forward = decision.degree_backward = schedule.degrees == DegreePolicy::one ? 1 : 3;
      decision.backwards.assign(3, {.degree = decision.degree_forward, .gaps = {}});
      Drawn d{build_model_plan(schedule, model, decision), {}};
      d.timeline = any_times(d.plan, drawn.size());
      drawn.push_back(std::move(d));
    }
    EXPECT_GT(drawn.size(), 15u);
    const Trace trace = expect_rules(drawn);
    for (size_t lane = 0; lane < drawn[0].plan.structure->lanes.size(); ++lane) {
      const Lane& expected = drawn[0].plan.structure->lanes[lane];
      EXPECT_EQ(trace.names.at({1, static_cast<int>(lane) + 1}),
                fmt::format("stage {} {}", expected.stage + 1, name_of(expected.kind)));
    }
  }
}

// Priced layers, as `simulate --trace` writes them.
TEST(TraceRules, HoldForPricedLayers) {
  for (uint64_t seed = 101; seed <= 110; ++seed) {
    const random_layer::RandomLayer layer = random_layer::random_layer(seed);
    SCOPED_TRACE(layer.text);
    const LayerPricer pricer(layer.profile, layer.shape);
    std::vector<Drawn> drawn;
    for (const std::string_view name : {"ds-moe", "tutel", "fsmoe", "lina-priority"}) {
      const Schedule& schedule = find_schedule(name);
      Drawn d{build_plan(schedule, layer.shape, any_decision::any_decision(schedule, layer.shape, seed)), {}};
      d.timeline = simulate(*d.plan.structure, price(pricer, d.plan));
      drawn.push_back(std::move(d));
    }
    expect_rules(drawn);
  }
}

}  // namespace
}  // namespace moe
