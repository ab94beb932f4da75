#pragma once
// Work that every device can do: copies, and sums in a fixed order.
#include <cstdint>
#include <vector>

#include "moe/base/units.h"

namespace moe {

/// A copy, whose source and destination are the same or do not overlap.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t bytes = 0;
};

/// A sum: the arrays in `from`, added element by element in their order, are written to every array in `to`, each of
/// which is one of `from` or overlaps none. float16 and bfloat16 are added in float32 and rounded once.
struct Sum {
  std::vector<const void*> from;
  std::vector<void*> to;
  int64_t elements = 0;
  DType dtype = DType::float32;
};

/// Copies and a sum that run in any order, so none may need the result of another.
struct Moves {
  std::vector<Copy> copies;
  Sum sum;
};

/// Does the moves at once, in host memory, on the calling thread.
void execute_moves_on_host(const Moves& moves);

}  // namespace moe
