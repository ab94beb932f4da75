#pragma once
// Decides where a whole model's gradients are sent during its backward (FSMoE section 5): beside the dense part of a
// layer, inside its MoE part, or after everything else, in the exposed tail. Declares the paper's two steps and an
// exact search.
//
// Layers are generalised layers (an MoE layer with the operations before the next one) in backward order, the last one
// first. Gradients of a layer's backward can be sent only by layers visited later and by the tail; each byte is sent
// once.
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "moe/base/units.h"
#include "moe/search/differential_evolution.h"

namespace moe {

struct PartitionLayer {
  int64_t made_bytes = 0;    // gradients of the layer, which exist after its backward
  bool has_moe_part = true;  // false: a dense layer, whose `seconds` is infinite if `moe_bytes` > 0
  /// Returns the seconds of its backward that sends `moe_bytes` in the MoE part and `dense_bytes` beside the dense
  /// part; rises with both.
  std::function<double(int64_t moe_bytes, int64_t dense_bytes)> seconds;
  /// For partition_exact: the bends, which are the bytes at which the slope of `seconds` changes in one argument, for
  /// any value of the other, ascending. A jump gives its last bytes before and its first after (0 and one element are
  /// implied). `seconds` is linear beyond the last bend.
  std::vector<int64_t> moe_bends, dense_bends;
  bool bends_known = false;  // false: all multiples of the grain (ExactPartition) are tried
  /// Returns candidates for the bytes in the MoE part, of `bytes` in both places; one of them is best unless it is best
  /// to have all in one place. Empty: the best is at a bend.
  std::function<std::vector<int64_t>(int64_t bytes)> best_splits = {};
  double moe_window_s = 0, dense_window_s = 0;  // for step 1: t_olp, the AllReduce seconds that each part hides
  std::string key;                              // layers with equal keys have equal `seconds` and bends; empty: unique
};

struct PartitionProblem {
  std::vector<PartitionLayer> layers;                      // in backward order
  std::function<double(int64_t bytes)> allreduce_seconds;  // rises; 0 for 0 bytes, else including its start-up time
  bool is_straight = true;    // false: allreduce_seconds is not linear; all multiples of the grain are tried
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
  double seconds = 0;       // predicted: all backwards and the tail
  int64_t evaluations = 0;  // number of evaluations of PartitionLayer::seconds
  double search_s = 0;      // wall time
};

/// Throws BadInput for a problem without functions, with negative sizes, or with bytes that are not whole elements.
void check_problem(const PartitionProblem& problem);
/// Throws WrongResult unless every byte is sent exactly once, after it exists, in whole elements.
void check_partition(const PartitionProblem& problem, const Partition& partition);
/// Returns the sum of the layers' seconds and the tail's.
double partition_seconds(const PartitionProblem& problem, const Partition& partition);

/// Puts everything into the tail: the baseline.
Partition partition_none(const PartitionProblem& problem);

/// Runs step 1 (FSMoE section 5.2, equations 3 and 4 without their misprint). Each window in turn, the dense part's
/// first, takes as many of the waiting bytes as it hides: the most whose AllReduce, with its start-up time, is no
/// longer than the window. The rest goes to the tail.
Partition partition_step1(const PartitionProblem& problem);

/// Runs step 2 (section 5.3, equation 5 with the tail): gradients that step 1 left to the tail are put into MoE parts
/// by differential evolution, for each layer a share of the bytes that may still be put there. These are the bytes that
/// wait at the layer and that no later window of `first` needs (as a stack: a window takes the newest). The result is
/// never worse than `first`.
Partition partition_step2(const PartitionProblem& problem, const Partition& first,
                          const DifferentialEvolution& settings = {});

/// Runs both steps; the result has the effort of both.
Partition partition_paper(const PartitionProblem& problem, const DifferentialEvolution& settings = {});

struct ExactPartition {
  /// Bytes by which two states differ. 0: 1 MiB, or more for a model of many layers or an AllReduce that bends.
  int64_t grain_bytes = 0;
};

/// Finds a partition by dynamic programming over the waiting bytes. A layer sends nothing, all that waits, a multiple
/// of the grain, or the bytes of one bend or two; within one grain, the cheapest and the most promising state are kept.
/// The result is exact if the grain is one element; otherwise it is off by about a grain's time at most.
Partition partition_exact(const PartitionProblem& problem, ExactPartition options = {});

}  // namespace moe

// Support for the strategies of partition.h: counts evaluations, measures the time, checks the result.

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
