#pragma once
// Serves the strategies of partition.h: counts evaluations, takes the time, checks the result.
#include <chrono>

#include "moe/search/partition.h"

namespace moe::search {

class PartitionSearch {
 public:
  explicit PartitionSearch(const PartitionProblem& problem) : problem_(problem) { check_problem(problem); }

  double seconds(size_t layer, int64_t moe_bytes, int64_t dense_bytes) {
    ++evaluations_;
    return problem_.layers[layer].seconds(moe_bytes, dense_bytes);
  }

  /// Returns the partition with these slices and the rest in the tail, checked.
  Partition finish(std::vector<LayerSlices> slices) const;

 private:
  const PartitionProblem& problem_;
  int64_t evaluations_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace moe::search
