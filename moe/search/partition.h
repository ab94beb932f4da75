#pragma once
// Decides where a whole model's gradients are sent during its backward (FSMoE section 5): beside the dense part of a
// layer, inside its MoE part, or after everything else, the exposed tail. Declares the paper's two steps, and an exact
// search beside them.
//
// Layers are generalised layers (an MoE layer with the operations before the next one) in backward order, the last one
// first. What a layer's backward makes can be sent by layers visited later and by the tail alone; all bytes are sent,
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
  int64_t made_bytes = 0;    // gradients of its own, there once its backward has ended
  bool has_moe_part = true;  // false: a dense layer, whose `seconds` is infinite if `moe_bytes` > 0
  /// Returns the seconds of its backward that sends `moe_bytes` in the MoE part and `dense_bytes` beside the dense
  /// part; rises with both.
  std::function<double(int64_t moe_bytes, int64_t dense_bytes)> seconds;
  /// These hold for partition_exact the bytes at which `seconds` bends, in the one argument whatever the other is,
  /// ascending; at a jump the last bytes before it and the first after it (0 and one element are known). Beyond the
  /// last bend `seconds` is straight.
  std::vector<int64_t> moe_bends, dense_bends;
  bool bends_known = false;  // false: nothing is assumed, every grain of either slice is tried
  /// Returns bytes in the MoE part, of so many in both places, one of which is best unless all are better in one place.
  /// Empty: the best is at a bend.
  std::function<std::vector<int64_t>(int64_t bytes)> best_splits = {};
  double moe_window_s = 0, dense_window_s = 0;  // for step 1: t_olp, what either part hides of an AllReduce
  std::string key;                              // layers of equal key have equal `seconds` and bends; empty: like none
};

struct PartitionProblem {
  std::vector<PartitionLayer> layers;                      // in backward order
  std::function<double(int64_t bytes)> allreduce_seconds;  // rises; 0 for 0 bytes, else with its start-up time
  bool is_straight = true;    // false: allreduce_seconds bends between sizes, so that partition_exact tries every grain
  int64_t waiting_bytes = 0;  // made before the first layer's backward (a model's head)
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
  int64_t evaluations = 0;  // of PartitionLayer::seconds, to find it
  double search_s = 0;      // wall time
};

/// Throws BadInput for a problem without functions, with negative sizes, or with bytes that are no whole elements.
void check_problem(const PartitionProblem& problem);
/// Throws WrongResult unless every byte is sent exactly once, none before it exists, in whole elements.
void check_partition(const PartitionProblem& problem, const Partition& partition);
/// Returns the sum of the layers' seconds and the tail's.
double partition_seconds(const PartitionProblem& problem, const Partition& partition);

/// Puts everything into the tail: the baseline.
Partition partition_none(const PartitionProblem& problem);

/// Runs step 1 (section 5.2, equations 3 and 4 without their misprint): each window in turn, the dense part's first,
/// takes what is hidden in it: the most bytes whose AllReduce fits, of those that wait. Non-empty slices pay the
/// start-up time.
Partition partition_step1(const PartitionProblem& problem);

/// Runs step 2 (section 5.3, equation 5 with the tail): what step 1 left to the tail is put into MoE parts by
/// differential evolution, by layer a share of what may still be put there. Of the bytes that wait at a layer, those
/// that no later window of `first` needs may be (a stack: a window takes the newest). The result is never worse than
/// `first`.
Partition partition_step2(const PartitionProblem& problem, const Partition& first,
                          const DifferentialEvolution& settings = {});

/// Runs both steps and adds up their effort.
Partition partition_paper(const PartitionProblem& problem, const DifferentialEvolution& settings = {});

struct ExactPartition {
  /// Bytes that tell two states apart. 0: 1 MiB, more for a model of many layers or an AllReduce that bends.
  int64_t grain_bytes = 0;
};

/// Finds a partition by dynamic programming over the bytes that wait. A layer sends nothing, all that waits, a multiple
/// of the grain, or the bytes of a bend or of two; of states within one grain the cheapest and the most promising go
/// on. The result is exact where the grain is one element, else off by about a grain's time at most.
Partition partition_exact(const PartitionProblem& problem, ExactPartition options = {});

}  // namespace moe

// Serves the strategies of partition.h: counts evaluations, takes the time, checks the result.

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
