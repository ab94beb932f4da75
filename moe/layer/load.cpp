#include "moe/layer/load.h"

#include <algorithm>

#include "moe/plan/volumes.h"

namespace moe {
namespace {

double over(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Names the first numbers of load_on, of one rank or summed over ranks. After them come, by expert, the pairs that want
// it.
enum Count : size_t { pairs, dropped, filled, most_filled, kCounts };

}  // namespace

std::vector<double> load_on(const MoeLayer& rank) {
  const Routing& r = rank.routing();
  const int64_t own_pairs = r.group_tokens * r.choices, group = rank.shape().own_group;
  std::vector<double> load(kCounts + static_cast<size_t>(r.experts));
  for (int64_t p = group * own_pairs; p < (group + 1) * own_pairs; ++p) {
    const int32_t expert = r.expert[static_cast<size_t>(p)];
    if (expert < 0) continue;  // Expert Choice: not taken
    ++load[kCounts + static_cast<size_t>(expert)], ++load[pairs];
    load[dropped] += r.row[static_cast<size_t>(p)] == Routing::kDropped;
  }
  for (int64_t e = group * r.experts; e < (group + 1) * r.experts; ++e) {
    const auto rows = static_cast<double>(r.filled[static_cast<size_t>(e)]);
    load[filled] += rows;
    load[most_filled] = std::max(load[most_filled], rows);
  }
  return load;
}

RoutingLoad load_of(const RankShape& any, std::span<const std::vector<double>> ranks) {
  std::vector<double> sum(kCounts + static_cast<size_t>(any.experts.total));
  double most = 0;
  for (const std::vector<double>& rank : ranks) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += rank.at(i);
    most = std::max(most, rank[most_filled]);
  }
  double sent = sum[filled];  // unequal blocks
  const auto blocks = static_cast<double>(ranks.size()) * static_cast<double>(any.experts.total);
  if (any.shape.layer.capacity_factor)
    sent = blocks * static_cast<double>(any.rows);
  else if (pads_to_largest_load(any.shape))
    sent = blocks * static_cast<double>(padded_rows(any.shape, static_cast<int64_t>(most)));
  RoutingLoad load;
  load.pairs = static_cast<int64_t>(sum[pairs]);
  load.dropped = static_cast<int64_t>(sum[dropped]);
  load.drop_rate = over(sum[dropped], sum[pairs]);
  load.most_load = *std::max_element(sum.begin() + kCounts, sum.end());
  load.mean_load = sum[pairs] / static_cast<double>(any.experts.total);
  load.imbalance = over(load.most_load, load.mean_load);
  load.padding = over(sent - sum[filled], sent);
  return load;
}

RoutingLoad load_of(std::span<MoeLayer* const> ranks) {
  std::vector<std::vector<double>> loads;
  for (const MoeLayer* rank : ranks) loads.push_back(load_on(*rank));
  return load_of(ranks.front()->shape(), loads);
}

}  // namespace moe
