#pragma once
// The measurement of slowdowns between lanes: a collective between nodes, one inside nodes and a GEMM, each alone and
// in parallel with each of the others.
#include <string>
#include <vector>

#include "moe/measure/ops/op_bench.h"

namespace moe::measure {

/// The seconds of one lane's op, alone and while another lane is always busy.
struct LaneSlowdown {
  std::string lane, by;                   // names of the lanes: inter, intra or compute
  std::vector<double> alone_s, beside_s;  // one number per repetition, maximum over ranks
  bool out_of_time = false;               // fewer repetitions than requested (OpSettings::most_s)
  double factor() const;                  // ratio of the medians, at least 1
};

/// The overlap of two lanes' ops, (a + b - both) / min(a, b), for ops of about 60 ms each: 1 if they run fully in
/// parallel, 0 if one runs after the other.
struct LaneOverlap {
  std::string lane, other;
  std::vector<double> alone_s, other_alone_s, both_s;  // one number per repetition, maximum over ranks
  bool out_of_time = false;                            // as in LaneSlowdown
  double overlap() const;                              // median over repetitions
};

struct LaneTimes {
  std::vector<LaneSlowdown> slowdowns;  // one for every ordered pair
  std::vector<LaneOverlap> overlaps;    // one for every pair
};

/// Times the largest alltoall between nodes, allgather inside nodes and GEMM in `cases`, as far as there are any. Every
/// process must call it; processes that don't lead get an empty result.
LaneTimes bench_lanes(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings);

}  // namespace moe::measure
