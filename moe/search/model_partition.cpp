// A stage's backward as a partition problem, its layers' seconds from replays.
#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/search/model_search.h"

namespace moe {
namespace {

// MoE part and dense part follow each other, so that a path through both slices is as long as those through one.
bool separable(const SplitPaths& p) { return std::abs(p.first + p.second - p.neither - p.both) <= 1e-9 * p.neither; }

// Bytes whose AllReduce takes `seconds`, and one element more; nothing where it takes longer already.
void add_bend(const LayerPricer& pricer, double seconds, std::vector<int64_t>& bends) {
  const double start = pricer.gradient_seconds(0), element = static_cast<double>(bytes_of(pricer.shape().layer.dtype));
  const double a_megabyte = pricer.gradient_seconds(1'000'000) - start;
  if (seconds <= start || a_megabyte <= 0) return;
  const double bytes = (seconds - start) / a_megabyte * 1e6;
  if (bytes > 1e15) return;
  const auto floor = static_cast<int64_t>(bytes / element) * static_cast<int64_t>(element);
  bends.push_back(floor);
  bends.push_back(floor + static_cast<int64_t>(element));
}

void tidy(std::vector<int64_t>& bends) {
  std::erase_if(bends, [](int64_t bytes) { return bytes <= 0; });
  std::ranges::sort(bends);
  bends.erase(std::unique(bends.begin(), bends.end()), bends.end());
}

}  // namespace

PartitionProblem partition_problem(const Schedule& schedule, const LayerPricer& pricer, int layers,
                                   const std::vector<SplitPaths>& by_degree) {
  const bool in_moe = schedule.gradients == GradientPolicy::adaptive;
  PartitionLayer layer;
  layer.key = "like all others";
  layer.made_bytes = pricer.gradient_bytes();
  layer.seconds = [&pricer, &by_degree, in_moe](int64_t moe_bytes, int64_t dense_bytes) {
    double least = std::numeric_limits<double>::infinity();
    if (!in_moe && moe_bytes > 0) return least;
    const double moe_s = pricer.slice_seconds(moe_bytes), dense_s = pricer.slice_seconds(dense_bytes);
    for (const SplitPaths& paths : by_degree) least = std::min(least, paths.seconds(moe_s, dense_s));
    return least;
  };
  layer.bends_known = pricer.gradient_bends().empty() && std::ranges::all_of(by_degree, separable);
  const SplitPaths* best = &by_degree.front();
  for (const SplitPaths& flat : by_degree) {
    if (flat.neither < best->neither) best = &flat;
    add_bend(pricer, flat.neither - flat.second, layer.dense_bends);
    for (const SplitPaths& steep : by_degree)
      if (in_moe) add_bend(pricer, flat.neither - steep.first, layer.moe_bends);
  }
  tidy(layer.moe_bends);
  tidy(layer.dense_bends);
  layer.moe_window_s = in_moe ? best->neither - best->first : 0;
  layer.dense_window_s = best->neither - best->second;
  PartitionProblem problem;
  problem.layers.assign(static_cast<size_t>(layers), layer);
  problem.allreduce_seconds = [&pricer](int64_t bytes) { return pricer.slice_seconds(bytes); };
  problem.element_bytes = bytes_of(pricer.shape().layer.dtype);
  return problem;
}

}  // namespace moe
