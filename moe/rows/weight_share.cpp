#include "moe/rows/weight_share.h"

#include "moe/base/check.h"

namespace moe {

WeightShare weight_share(const std::array<ShardRange, 3>& part, int rank, int ranks) {
  require<BadInput>(rank >= 0 && rank < ranks, "share of a weight: found rank {} of {}, expected one of them", rank,
                    ranks);
  WeightShare share{part, {}};
  if (part[1].count * part[2].count == 0) return share;  // nothing to share out
  const size_t axis = part[1].count > 1 ? 1 : 2;
  const int64_t row = axis == 1 ? part[2].count : 1, rows = part[axis].count;
  const ShardRange own = share_of(rows, ranks, rank);
  share.axes[axis].first += own.first;
  share.axes[axis].count = own.count;
  share.elements = {own.first * row, own.count * row, part[1].count * part[2].count};
  return share;
}

}  // namespace moe
