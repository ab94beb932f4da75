#include "moe/measure/ops/lane_bench.h"

#include <algorithm>
#include <cmath>

#include "moe/base/statistics.h"

namespace moe::measure {
namespace {

constexpr double kLaneSampleS = 20e-3, kOverlappedS = 60e-3;
// The other op runs this many times as long as the timed one, so that it never ends first.
constexpr double kLaneLonger = 4;
constexpr double kMaxTimes = 200;
constexpr double kLanesShare = 0.3;  // share of OpSettings::most_s, in addition to the time of the single ops

struct TimedLane {
  std::string_view name;
  Op op = Op::none;
  size_t op_index = 0;
  double seconds = 0;  // seconds of one run without other ops
};

// Returns the lanes to time, each with its largest case. On a single node, the AlltoAll is timed on the intra lane.
std::vector<TimedLane> lanes_of(const std::vector<OpCase>& cases) {
  const std::pair<TimedLane, Network> candidates[] = {{{"inter", Op::alltoall}, Network::inter},
                                                      {{"intra", Op::alltoall}, Network::intra},
                                                      {{"intra", Op::allgather}, Network::intra},
                                                      {{"compute", Op::gemm}, Network::none}};
  std::vector<TimedLane> lanes;
  for (const auto& [wanted, network] : candidates) {
    if (!lanes.empty() && lanes.back().name == wanted.name) continue;
    std::optional<size_t> largest;
    for (size_t i = 0; i < cases.size(); ++i)
      if (cases[i].op == wanted.op && cases[i].network == network &&
          (!largest || cases[i].size() > cases[*largest].size()))
        largest = i;
    if (largest) lanes.push_back({wanted.name, wanted.op, *largest, 0});
  }
  return lanes;
}

int times_in(double seconds, double one) {
  return static_cast<int>(std::round(std::clamp(seconds / one, 1.0, kMaxTimes)));
}

double slowest(const OpSample& sample) { return *std::ranges::max_element(sample.seconds); }

}  // namespace

double LaneSlowdown::factor() const { return std::max(1.0, median(beside_s) / median(alone_s)); }

double LaneOverlap::overlap() const {
  std::vector<double> overlaps;
  for (size_t i = 0; i < both_s.size(); ++i)
    overlaps.push_back((alone_s[i] + other_alone_s[i] - both_s[i]) / std::min(alone_s[i], other_alone_s[i]));
  return median(std::move(overlaps));
}

namespace {

class LaneBench {
 public:
  LaneBench(OpRunner& runner, const OpSettings& settings)
      : runner_(runner),
        repetitions_(settings.repetitions),
        deadline_s_(settings.max_s > 0 ? now_s() + kLanesShare * settings.max_s : HUGE_VAL) {}

  LaneSlowdown slowdown(const TimedLane& lane, const TimedLane& by) {
    LaneSlowdown found{std::string(lane.name), std::string(by.name), {}, {}};
    const int iterations = times_in(kLaneSampleS, lane.seconds);
    // If the other lane is slowed too, it only lasts longer, which is harmless.
    const int by_iterations = times_in(kLaneLonger * iterations * lane.seconds, by.seconds);
    for (int repetition = 0; repetition < repetitions_; ++repetition) {
      found.out_of_time = is_late(repetition);
      if (found.out_of_time) break;
      found.alone_s.push_back(slowest(runner_.run(lane.op_index, iterations)));
      found.beside_s.push_back(slowest(runner_.run_beside(lane.op_index, iterations, by.op_index, by_iterations)));
    }
    return found;
  }

  LaneOverlap overlap(const TimedLane& lane, const TimedLane& other) {
    LaneOverlap found{std::string(lane.name), std::string(other.name), {}, {}, {}};
    const int one = times_in(kOverlappedS, lane.seconds), two = times_in(kOverlappedS, other.seconds);
    for (int repetition = 0; repetition < repetitions_; ++repetition) {
      found.out_of_time = is_late(repetition);
      if (found.out_of_time) break;
      found.alone_s.push_back(one * slowest(runner_.run(lane.op_index, one)));
      found.other_alone_s.push_back(two * slowest(runner_.run(other.op_index, two)));
      found.both_s.push_back(slowest(runner_.run_both(lane.op_index, one, other.op_index, two)));
    }
    return found;
  }

 private:
  bool is_late(int repetition) const { return repetition >= kMinSamples && now_s() > deadline_s_; }

  OpRunner& runner_;
  int repetitions_;
  double deadline_s_;
};

}  // namespace

LaneTimes bench_lanes(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings) {
  OpRunner runner(ranks, cases, settings.timeout_s);
  if (!ranks.is_leader()) {
    runner.follow();
    return {};
  }
  std::vector<TimedLane> lanes = lanes_of(cases);
  for (TimedLane& lane : lanes)
    for (int warm_up = 0; warm_up < 2; ++warm_up) lane.seconds = slowest(runner.run(lane.op_index, 1));
  LaneBench bench(runner, settings);
  LaneTimes found;
  for (size_t a = 0; a < lanes.size(); ++a)
    for (size_t b = 0; b < lanes.size(); ++b) {
      if (a == b) continue;
      found.slowdowns.push_back(bench.slowdown(lanes[a], lanes[b]));
      if (a < b) found.overlaps.push_back(bench.overlap(lanes[a], lanes[b]));
    }
  runner.release();
  return found;
}

}  // namespace moe::measure
