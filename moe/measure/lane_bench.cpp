#include "moe/measure/lane_bench.h"

#include <algorithm>
#include <cmath>

#include "moe/measure/statistics.h"

namespace moe {
namespace {

constexpr double kSample_s = 20e-3;
constexpr double kLonger = 4;  // than the timed op, so that the other never ends before it
constexpr double kMostIterations = 200;

struct TimedLane {
  std::string_view name, op;
  size_t op_index = 0;
  double seconds = 0;  // of one, alone
};

std::vector<TimedLane> lanes_of(const std::vector<OpCase>& cases) {
  std::vector<TimedLane> lanes;
  for (const TimedLane& wanted :
       {TimedLane{"inter", "alltoall"}, TimedLane{"intra", "allgather"}, TimedLane{"compute", "gemm"}}) {
    std::optional<size_t> largest;
    for (size_t i = 0; i < cases.size(); ++i)
      if (cases[i].op == wanted.op && (!largest || cases[i].size() > cases[*largest].size())) largest = i;
    if (largest) lanes.push_back({wanted.name, wanted.op, *largest, 0});
  }
  return lanes;
}

int times_in(double seconds, double one) {
  return static_cast<int>(std::ceil(std::clamp(seconds / one, 1.0, kMostIterations)));
}

double slowest(const OpSample& sample) { return *std::ranges::max_element(sample.seconds); }

}  // namespace

double LaneSlowdown::factor() const { return std::max(1.0, median(beside_s) / median(alone_s)); }

std::vector<LaneSlowdown> bench_lanes(const Site& site, const std::vector<OpCase>& cases, const OpSettings& settings) {
  OpRunner runner(site, cases, settings.timeout_s);
  if (!site.leads()) {
    runner.follow();
    return {};
  }
  std::vector<TimedLane> lanes = lanes_of(cases);
  for (TimedLane& lane : lanes)
    for (int warm_up = 0; warm_up < 2; ++warm_up) lane.seconds = slowest(runner.run(lane.op_index, 1));
  std::vector<LaneSlowdown> found;
  for (const TimedLane& lane : lanes)
    for (const TimedLane& by : lanes) {
      if (&lane == &by) continue;
      LaneSlowdown& slowdown = found.emplace_back(LaneSlowdown{std::string(lane.name), std::string(by.name), {}, {}});
      const int iterations = times_in(kSample_s, lane.seconds);
      // The other lane may be slowed as well, which only makes it last longer.
      const int by_iterations = times_in(kLonger * iterations * lane.seconds, by.seconds);
      for (int repetition = 0; repetition < settings.repetitions; ++repetition) {
        slowdown.alone_s.push_back(slowest(runner.run(lane.op_index, iterations)));
        slowdown.beside_s.push_back(slowest(runner.run_beside(lane.op_index, iterations, by.op_index, by_iterations)));
      }
    }
  runner.release();
  return found;
}

}  // namespace moe
