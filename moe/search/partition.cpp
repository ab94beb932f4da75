#include "moe/search/partition.h"

#include "moe/base/check.h"
#include "moe/search/partition_search.h"

namespace moe {

int64_t PartitionProblem::total_bytes() const {
  int64_t total = waiting_bytes;
  for (const PartitionLayer& layer : layers) total += layer.made_bytes;
  return total;
}

void check_problem(const PartitionProblem& problem) {
  require<BadInput>(problem.element_bytes > 0, "partition: element of {} bytes, expected more than 0",
                    problem.element_bytes);
  require<BadInput>(problem.allreduce_seconds != nullptr, "partition: no allreduce_seconds");
  const auto check = [&](int64_t bytes, std::string_view of, size_t layer) {
    require<BadInput>(bytes >= 0 && bytes % problem.element_bytes == 0,
                      "partition: {} of layer {}: found {} bytes, expected whole elements of {} bytes", of, layer,
                      bytes, problem.element_bytes);
  };
  check(problem.waiting_bytes, "gradients before the backward", 0);
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    const PartitionLayer& layer = problem.layers[i];
    require<BadInput>(layer.seconds != nullptr, "partition: layer {} has no seconds", i);
    check(layer.made_bytes, "gradients", i);
    for (const auto* bends : {&layer.moe_bends, &layer.dense_bends})
      for (const int64_t bend : *bends) check(bend, "a bend", i);
  }
}

void check_partition(const PartitionProblem& problem, const Partition& partition) {
  require_equal(partition.layers.size(), problem.layers.size(), "partition: layers");
  int64_t waiting = problem.waiting_bytes;
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    const LayerSlices& slices = partition.layers[i];
    for (const int64_t bytes : {slices.moe_bytes, slices.dense_bytes})
      require<WrongResult>(bytes >= 0 && bytes % problem.element_bytes == 0,
                           "partition: layer {} sends a slice of {} bytes, expected whole elements of {} bytes", i,
                           bytes, problem.element_bytes);
    require<WrongResult>(slices.bytes() <= waiting, "partition: layer {} sends {} bytes where {} bytes wait", i,
                         slices.bytes(), waiting);
    waiting += problem.layers[i].made_bytes - slices.bytes();
  }
  require_equal(partition.tail_bytes, waiting, "partition: bytes in the tail");
}

double partition_seconds(const PartitionProblem& problem, const Partition& partition) {
  double seconds = problem.allreduce_seconds(partition.tail_bytes);
  for (size_t i = 0; i < problem.layers.size(); ++i)
    seconds += problem.layers[i].seconds(partition.layers[i].moe_bytes, partition.layers[i].dense_bytes);
  return seconds;
}

Partition search::PartitionSearch::finish(std::vector<LayerSlices> slices) const {
  Partition p;
  p.layers = std::move(slices);
  p.tail_bytes = problem_.total_bytes();
  for (const LayerSlices& layer : p.layers) p.tail_bytes -= layer.bytes();
  check_partition(problem_, p);
  p.seconds = partition_seconds(problem_, p);
  p.evaluations = evaluations_;
  p.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return p;
}

Partition partition_none(const PartitionProblem& problem) {
  return search::PartitionSearch(problem).finish(std::vector<LayerSlices>(problem.layers.size()));
}

}  // namespace moe
