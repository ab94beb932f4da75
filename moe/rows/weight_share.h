#pragma once
// ZeRO 1 (Rajbhandari et al. 2020): of the ranks that hold a weight alike each keeps the optimizer's states of a share
// of it, and takes the steps of that share.
#include <array>
#include <cstdint>

#include "moe/rows/rank_shape.h"

namespace moe {

/// Selects elements of a tensor: `count` of each `every`, from `first` on; `every` 0: all of them, however many.
struct OwnElements {
  int64_t first = 0, count = 0, every = 0;
};

struct WeightShare {
  std::array<ShardRange, 3> axes;  // of the whole weight
  OwnElements elements;            // of this rank's part of it, row-major
};

/// Returns share `rank` of `ranks` of a part of a weight: share_of() of axis 1, or of axis 2 where axis 1 has one
/// element. It may be empty. Throws BadInput for a rank that is none of them.
WeightShare weight_share(const std::array<ShardRange, 3>& part, int rank, int ranks);

}  // namespace moe
