// Runs FSMoE's two steps (sections 5.2 and 5.3).
#include <algorithm>
#include <ranges>

#include "moe/base/check.h"
#include "moe/search/partition.h"
#include "moe/search/partition_search.h"

namespace moe {
namespace {

// Returns the most of `waiting` bytes whose AllReduce takes no longer than the window: g_inv, in whole elements.
int64_t hidden_bytes(const PartitionProblem& problem, double window_s, int64_t waiting) {
  const auto elements = std::views::iota(int64_t{1}, waiting / problem.element_bytes + 1);
  const auto first_too_long = std::ranges::partition_point(
      elements, [&](int64_t n) { return problem.allreduce_seconds(n * problem.element_bytes) <= window_s; });
  return (first_too_long - elements.begin()) * problem.element_bytes;
}

// Holds step 2's variables as shares in [0, 1], one for each layer that has anything to choose.
class Step2 {
 public:
  Step2(const PartitionProblem& problem, const Partition& first, search::PartitionSearch& search)
      : problem_(problem), first_(first), search_(search), spare_(problem.layers.size()) {
    int64_t waiting = problem.waiting_bytes;
    for (size_t i = 0; i < spare_.size(); ++i) {
      spare_[i] = waiting -= first.layers[i].bytes();
      waiting += problem.layers[i].made_bytes;
    }
    for (size_t i = spare_.size(); i-- > 1;) spare_[i - 1] = std::min(spare_[i - 1], spare_[i]);
    for (size_t i = 0; i < spare_.size(); ++i) dimensions_ += is_open(i);
  }

  int dimensions() const { return dimensions_; }

  std::vector<LayerSlices> slices(std::span<const double> shares) const {
    std::vector<LayerSlices> slices = first_.layers;
    int64_t put = 0;
    size_t next = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      if (!is_open(i)) continue;
      const double most = static_cast<double>((spare_[i] - put) / problem_.element_bytes);
      const int64_t bytes = static_cast<int64_t>(shares[next++] * most) * problem_.element_bytes;
      slices[i].moe_bytes += bytes;
      put += bytes;
    }
    return slices;
  }

  double seconds(std::span<const double> shares) {
    const std::vector<LayerSlices> chosen = slices(shares);
    int64_t tail = problem_.total_bytes();
    double seconds = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      seconds += search_.seconds(i, chosen[i].moe_bytes, chosen[i].dense_bytes);
      tail -= chosen[i].bytes();
    }
    return seconds + problem_.allreduce_seconds(tail);
  }

 private:
  bool is_open(size_t layer) const { return spare_[layer] > 0 && problem_.layers[layer].has_moe_part; }

  const PartitionProblem& problem_;
  const Partition& first_;
  search::PartitionSearch& search_;
  std::vector<int64_t> spare_;  // of what waits after a layer, what no later window of step 1 needs
  int dimensions_ = 0;
};

}  // namespace

Partition partition_step1(const PartitionProblem& problem) {
  const search::PartitionSearch search(problem);
  std::vector<LayerSlices> slices;
  int64_t waiting = problem.waiting_bytes;
  for (const PartitionLayer& layer : problem.layers) {
    LayerSlices s;
    s.dense_bytes = hidden_bytes(problem, layer.dense_window_s, waiting);
    s.moe_bytes = hidden_bytes(problem, layer.moe_window_s, waiting - s.dense_bytes);
    waiting += layer.made_bytes - s.bytes();
    slices.push_back(s);
  }
  return search.finish(std::move(slices));
}

Partition partition_step2(const PartitionProblem& problem, const Partition& first,
                          const DifferentialEvolution& settings) {
  search::PartitionSearch search(problem);
  check_partition(problem, first);
  Step2 step(problem, first, search);
  const auto size = static_cast<size_t>(step.dimensions());
  const Evolved best =
      minimise(settings, step.dimensions(), [&](std::span<const double> shares) { return step.seconds(shares); },
               {std::vector<double>(size, 0.0), std::vector<double>(size, 1.0)});
  return search.finish(step.slices(best.x));
}

Partition partition_paper(const PartitionProblem& problem, const DifferentialEvolution& settings) {
  const Partition first = partition_step1(problem);
  Partition both = partition_step2(problem, first, settings);
  both.search_s += first.search_s;
  return both;
}

}  // namespace moe
