#include "moe/formats/chrome_trace.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "moe/base/check.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/simulator.h"

namespace moe {
namespace {

using nlohmann::json;

Plan plan_of_four_ranks() {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .top_k = 1};
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  return build_plan(find_schedule("fsmoe"), shape, {2, 3, 100});
}

// Class i takes (i + 1) microseconds.
std::vector<double> rising_seconds(const Plan& plan) {
  std::vector<double> seconds(plan.works.size());
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = static_cast<double>(i + 1) * 1e-6;
  return seconds;
}

json trace_of(std::span<const TraceGroup> groups) {
  std::ostringstream out;
  chrome_trace(groups, out);
  return json::parse(out.str());
}

TEST(ChromeTrace, HasEveryTaskOnceWithItsTimesAndArguments) {
  const Plan plan = plan_of_four_ranks();
  const Timeline t = simulate(*plan.structure, rising_seconds(plan));
  const TraceGroup groups[] = {{"simulated", -1, &plan, t.start_s, t.end_s}};
  const json trace = trace_of(groups);
  std::set<int> seen;
  for (const json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const Task& task = plan.tasks().at(e.at("args").at("task").get<size_t>());
    EXPECT_TRUE(seen.insert(task.id).second) << task.name();
    const double start = t.start_s[task.id], end = t.end_s[task.id];
    EXPECT_NEAR(e.at("ts").get<double>(), start * 1e6, 5e-4 + 1e-9) << task.name();
    EXPECT_NEAR(e.at("dur").get<double>(), (end - start) * 1e6, 1e-3 + 1e-9) << task.name();
    EXPECT_EQ(e.at("tid"), task.lane + 1) << task.name();
    EXPECT_EQ(e.at("args").at("phase"), name_of(task.phase));
    EXPECT_EQ(e.at("args").at("layer"), task.layer);
    EXPECT_EQ(e.at("args").at("chunk"), task.chunk);
    EXPECT_EQ(e.at("args").at("chunks"), task.chunks);
    EXPECT_EQ(e.at("name").get<std::string>().find(name_of(task.kind)), 0u) << e;
    const double bytes = plan.works.at(task.id).bytes;
    EXPECT_EQ(e.at("args").value("bytes", 0.0), bytes) << task.name();
    const bool moves = task.group != GroupKind::none || task.kind == TaskKind::order || task.kind == TaskKind::i_order;
    EXPECT_EQ(e.at("args").contains("bytes"), moves) << task.name();
    if (!moves) continue;
    EXPECT_NEAR(e.at("args").at("GB/s").get<double>() * (end - start) * 1e9 / bytes, 1, 2e-3) << task.name();
  }
  EXPECT_EQ(seen.size(), plan.tasks().size());
}

TEST(ChromeTrace, NamesOneProcessAGroupAndOneTrackALane) {
  const Plan plan = plan_of_four_ranks();
  const Timeline t = simulate(*plan.structure, rising_seconds(plan));
  const TraceGroup groups[] = {{"measured", 3, &plan, t.start_s, t.end_s},
                               {"simu\"lated\\\n\x01 \xC3\xA9", -1, &plan, t.start_s, t.end_s}};
  const json trace = trace_of(groups);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> tracks;
  std::map<int, int> process_places, events;
  std::map<std::pair<int, int>, int> track_places;
  for (const json& e : trace.at("traceEvents")) {
    const int pid = e.at("pid"), tid = e.at("tid");
    if (e.at("name") == "process_name") processes[pid] = e.at("args").at("name");
    if (e.at("name") == "process_sort_index") process_places[pid] = e.at("args").at("sort_index");
    if (e.at("name") == "thread_name") tracks[{pid, tid}] = e.at("args").at("name");
    if (e.at("name") == "thread_sort_index") track_places[{pid, tid}] = e.at("args").at("sort_index");
    if (e.at("ph") == "X") {
      EXPECT_TRUE(tracks.contains({pid, tid})) << e;
      ++events[pid];
    }
  }
  const std::map<int, std::string> expected{{1, "fsmoe r_f 2 r_b 3 measured, rank 3"},
                                            {2, "fsmoe r_f 2 r_b 3 simu\"lated\\\n\x01 \xC3\xA9"}};
  EXPECT_EQ(processes, expected);
  EXPECT_EQ(process_places, (std::map<int, int>{{1, 0}, {2, 1}}));
  for (const int pid : {1, 2}) {
    EXPECT_EQ(events[pid], static_cast<int>(plan.tasks().size()));
    for (int lane = 0; lane < 3; ++lane) {
      const auto track = std::pair{pid, lane + 1};
      EXPECT_EQ(tracks[track], name_of(plan.structure->lanes[lane].kind));
      EXPECT_EQ(track_places[track], lane);
    }
  }
  EXPECT_EQ(tracks.size(), 6u);
}

// Tasks that follow each other without a gap must not overlap once rounded, or Perfetto nests them.
TEST(ChromeTrace, RoundingMakesNoOverlap) {
  const Plan plan = plan_of_four_ranks();
  std::vector<double> seconds = rising_seconds(plan);
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = 1e-6 / 3 + static_cast<double>(i) * 1e-7 / 7;
  const Timeline t = simulate(*plan.structure, seconds);
  const TraceGroup groups[] = {{"simulated", -1, &plan, t.start_s, t.end_s}};
  std::map<int, std::map<int64_t, int64_t>> ends_by_start;
  int touching = 0;
  const json trace = trace_of(groups);
  for (const json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const int64_t start = std::llround(e.at("ts").get<double>() * 1000);
    ends_by_start[e.at("tid")][start] = start + std::llround(e.at("dur").get<double>() * 1000);
  }
  for (const auto& [tid, events] : ends_by_start)
    for (auto e = events.begin(); std::next(e) != events.end(); ++e) {
      EXPECT_LE(e->second, std::next(e)->first) << "track " << tid;
      touching += e->second == std::next(e)->first;
    }
  EXPECT_GT(touching, 3);
}

TEST(ChromeTrace, RefusesTimesThatAreNone) {
  const Plan plan = plan_of_four_ranks();
  const Timeline good = simulate(*plan.structure, rising_seconds(plan));
  const auto message = [&](const Timeline& t) -> std::string {
    const TraceGroup groups[] = {{"measured", -1, &plan, t.start_s, t.end_s}};
    std::ostringstream out;
    try {
      chrome_trace(groups, out);
    } catch (const WrongResult& error) {
      EXPECT_EQ(out.str(), "") << "something was written before the check";
      return error.what();
    }
    return "accepted";
  };
  Timeline bad = good;
  bad.end_s.pop_back();
  EXPECT_NE(message(bad).find("ends of"), std::string::npos) << message(bad);
  bad = good;
  bad.start_s[4] = std::nan("");
  EXPECT_NE(message(bad).find("(task 4)"), std::string::npos) << message(bad);
  bad = good;
  std::swap(bad.start_s[5], bad.end_s[5]);
  EXPECT_NE(message(bad).find("(task 5)"), std::string::npos) << message(bad);
  EXPECT_EQ(message(good), "accepted");
}

TEST(ChromeTrace, OfNoGroupIsStillATrace) { EXPECT_EQ(trace_of({}).at("traceEvents"), json::array()); }

}  // namespace
}  // namespace moe
