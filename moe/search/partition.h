#pragma once
// The partition of a whole model's gradients over the places where its backward can send them (FSMoE section 5): beside
// the dense part of each layer, inside its MoE part, or after everything else, in the exposed tail. There are the
// paper's two steps and an exact search.
//
// Layers are generalised layers (an MoE layer with the dense operations before the next one) in backward order, the
// last layer first. The gradients of a layer can be sent only by layers later in this order and by the tail; each byte
// is sent once.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "moe/base/units.h"
#include "moe/search/differential_evolution.h"

namespace moe {

struct PartitionLayer {
  int64_t made_bytes = 0;    // gradient bytes of the layer, which exist after its backward
  bool has_moe_part = true;  // false: a dense layer, whose `seconds` is infinite if `moe_bytes` > 0
  /// Returns the seconds of the layer's backward if it sends `moe_bytes` in the MoE part and `dense_bytes` beside the
  /// dense part; nondecreasing in both.
  std::function<double(int64_t moe_bytes, int64_t dense_bytes)> seconds;
  /// For partition_exact: the bends of `seconds` in each argument, for all values of the other: ascending bytes at
  /// which its slope changes. A jump counts as two bends, the last bytes before it and the first after it (0 and one
  /// element are implied). `seconds` is linear beyond the last bend.
  std::vector<int64_t> moe_breakpoints, dense_breakpoints;
  bool breakpoints_known = false;  // false: all multiples of ExactPartition::grain_bytes are tried instead
  /// Returns candidates for the bytes in the MoE part if both places have `bytes` in total: the best split is one of
  /// them, or has all bytes in one place. Empty function: the best split is at a bend.
  std::function<std::vector<int64_t>(int64_t bytes)> best_splits = {};
  double moe_window_s = 0, dense_window_s = 0;  // t_olp of step 1: the AllReduce seconds that each part hides
  /// Layers with equal keys have equal `seconds` and bends; empty: no other layer is equal.
  std::string key;
};

struct PartitionProblem {
  std::vector<PartitionLayer> layers;  // in backward order
  /// Nondecreasing; includes the start-up time, except that 0 bytes take 0.
  std::function<double(int64_t bytes)> allreduce_seconds;
  bool is_straight = true;    // false: allreduce_seconds is not linear, so all multiples of the grain are tried
  int64_t waiting_bytes = 0;  // gradients that exist before the first layer's backward (a model's head)
  int64_t element_bytes = 4;  // slices are whole elements
  int64_t total_bytes() const;
};

struct LayerSlices {
  int64_t moe_bytes = 0, dense_bytes = 0;
  int64_t bytes() const { return moe_bytes + dense_bytes; }
};

struct Partition {
  std::vector<LayerSlices> layers;  // in backward order
  int64_t tail_bytes = 0;
  double seconds = 0;       // predicted seconds of all backwards and the tail
  int64_t evaluations = 0;  // number of evaluations of PartitionLayer::seconds
  double search_s = 0;      // wall time
};

/// Throws BadInput if a function is missing, a size is negative, or bytes are not whole elements.
void check_problem(const PartitionProblem& problem);
/// Throws WrongResult unless every byte is sent exactly once, after it exists, in whole elements.
void check_partition(const PartitionProblem& problem, const Partition& partition);
/// Returns the sum of the layers' seconds and the tail's.
double partition_seconds(const PartitionProblem& problem, const Partition& partition);

/// Puts everything into the tail: the baseline.
Partition partition_none(const PartitionProblem& problem);

/// Returns the result of step 1 (FSMoE section 5.2, equations 3 and 4 without their misprint). In each layer, first the
/// dense part's window and then the MoE part's takes as many of the waiting bytes as it hides: the largest number whose
/// AllReduce, with its start-up time, is no longer than the window. The rest goes to the tail.
Partition partition_step1(const PartitionProblem& problem);

/// Returns the result of step 2 (section 5.3, equation 5 with the tail): differential evolution puts gradients that
/// step 1 left to the tail into MoE parts. Its variable for each layer is a share of the spare bytes there: those that
/// wait at the layer and that no later window of `first` needs, if each window takes the newest bytes. The result is
/// never worse than `first`.
Partition partition_step2(const PartitionProblem& problem, const Partition& first,
                          const DifferentialEvolution& settings = {});

/// Returns the result of both steps; its evaluations and search_s include both.
Partition partition_paper(const PartitionProblem& problem, const DifferentialEvolution& settings = {});

struct ExactPartition {
  /// Size of a grain of waiting bytes. 0: 1 MiB, or more for a model of many layers or an AllReduce that is not linear.
  int64_t grain_bytes = 0;
};

/// Returns a partition by dynamic programming over the waiting bytes. A layer sends nothing, all waiting bytes, a
/// multiple of the grain, or bytes at one or two bends; in each grain, the cheapest and the most promising state are
/// kept. The result is exact if the grain is one element; otherwise its error is at most about the time of one grain.
Partition partition_exact(const PartitionProblem& problem, ExactPartition options = {});

}  // namespace moe

// A helper of the strategies above: counts evaluations, measures the time and checks the result.

namespace moe::search {

class PartitionSearch {
 public:
  explicit PartitionSearch(const PartitionProblem& problem) : problem_(problem) { check_problem(problem); }

  double seconds(size_t layer, int64_t moe_bytes, int64_t dense_bytes) {
    ++evaluations_;
    return problem_.layers[layer].seconds(moe_bytes, dense_bytes);
  }

  /// Returns the checked partition with these slices and the remaining bytes in the tail.
  Partition finish(std::vector<LayerSlices> slices) const;

 private:
  const PartitionProblem& problem_;
  int64_t evaluations_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace moe::search
