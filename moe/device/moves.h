#pragma once
// Work that every device knows: copies, and sums in a fixed order.
#include <cstdint>
#include <vector>

#include "moe/base/units.h"

namespace moe {

/// A copy, whose two places don't overlap or are the same.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t bytes = 0;
};

/// A sum: all `from`, added element by element in their order, go to every one of `to`, of which each is one
/// of `from` or overlaps none. float16 and bfloat16 are added in float32 and rounded once.
struct Sum {
  std::vector<const void*> from;
  std::vector<void*> to;
  int64_t elements = 0;
  DType dtype = DType::float32;
};

/// Moves that are done in any order, so that none of them may need another's result.
struct Moves {
  std::vector<Copy> copies;
  Sum sum;
};

/// Moves at once, in the host's memory, on the calling thread.
void move_on_host(const Moves& moves);

}  // namespace moe
