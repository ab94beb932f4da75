#include "moe/layer/load.h"

#include <algorithm>

#include "moe/plan/volumes.h"

namespace moe {
namespace {

double over(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

RoutingLoad load_of(std::span<MoeLayer* const> ranks) {
  const RankShape& first = ranks.front()->shape();
  std::vector<int64_t> wanted(static_cast<size_t>(first.experts.total));
  RoutingLoad load;
  int64_t filled = 0, most_filled = 0;
  for (MoeLayer* rank : ranks) {
    rank->fetch_routing();
    const Routing& r = rank->routing();
    const int64_t pairs = r.group_tokens * r.choices, group = rank->shape().own_group;
    for (int64_t p = group * pairs; p < (group + 1) * pairs; ++p) {
      const int32_t expert = r.expert[static_cast<size_t>(p)];
      if (expert < 0) continue;  // Expert Choice: not taken
      ++wanted[static_cast<size_t>(expert)], ++load.pairs;
      load.dropped += r.row[static_cast<size_t>(p)] == Routing::kDropped;
    }
    for (int64_t e = group * r.experts; e < (group + 1) * r.experts; ++e) {
      filled += r.filled[static_cast<size_t>(e)];
      most_filled = std::max(most_filled, r.filled[static_cast<size_t>(e)]);
    }
  }
  int64_t sent = filled;  // unequal blocks
  const auto blocks = static_cast<int64_t>(ranks.size()) * first.experts.total;
  if (first.shape.layer.capacity_factor)
    sent = blocks * first.rows;
  else if (pads_to_largest_load(first.shape))
    sent = blocks * most_filled;
  load.drop_rate = over(static_cast<double>(load.dropped), static_cast<double>(load.pairs));
  load.most_load = static_cast<double>(*std::ranges::max_element(wanted));
  load.mean_load = static_cast<double>(load.pairs) / static_cast<double>(wanted.size());
  load.imbalance = over(load.most_load, load.mean_load);
  load.padding = over(static_cast<double>(sent - filled), static_cast<double>(sent));
  return load;
}

}  // namespace moe
