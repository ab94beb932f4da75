#pragma once
// Measures how much lanes slow each other down: a collective between nodes, one inside them and a GEMM, each alone and
// beside each of the others.
#include <string>
#include <vector>

#include "moe/measure/ops/op_bench.h"

namespace moe::measure {

/// The seconds of one lane's op alone, and while another lane is busy all the time.
struct LaneSlowdown {
  std::string lane, by;                   // inter, intra, compute
  std::vector<double> alone_s, beside_s;  // one number per repetition, maximum over ranks
  bool out_of_time = false;               // fewer repetitions than requested (OpSettings::most_s)
  double factor() const;                  // ratio of the medians, at least 1
};

/// The share of the shorter of two lanes' ops that the other hides: (a + b - both) / min(a, b), for ops that last about
/// 60 ms each. 1: they run side by side; 0: one after the other.
struct LaneOverlap {
  std::string lane, other;
  std::vector<double> alone_s, other_alone_s, both_s;  // one number per repetition, maximum over ranks
  bool out_of_time = false;                            // likewise
  double overlap() const;                              // median over repetitions
};

struct LaneTimes {
  std::vector<LaneSlowdown> slowdowns;  // one for every ordered pair
  std::vector<LaneOverlap> overlaps;    // one for every pair
};

/// Times the largest alltoall between nodes, allgather inside them and GEMM in `cases`, on the lanes that have one.
/// Every process of the ranks calls it; processes that don't lead get an empty result.
LaneTimes bench_lanes(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings);

}  // namespace moe::measure
