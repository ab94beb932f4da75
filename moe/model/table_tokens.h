#pragma once
// The tokens of a micro-batch, sorted by their rows of an embedding's table, in the memory of the device that looks
// them up. With this order, gradients of a row are summed in the order of its tokens, without atomics.
#include <span>
#include <vector>

#include "moe/sharding/rank_shape.h"
#include "moe/tensor/math.h"

namespace moe::model {

class TableTokens {
 public:
  /// `own`: the rows of the whole table that this rank has.
  TableTokens(int64_t tokens, const ShardRange& own, MemorySpace& memory);
  /// Sets each token's row of the whole table. Blocking.
  void set(std::span<const int32_t> rows);
  TokenRows view() const;

 private:
  ShardRange own_;
  size_t tokens_;
  int64_t used_ = 0;
  std::vector<int32_t> host_tables_;  // row, table_row, begin and by_row of TokenRows, one after the other
  Array<int32_t> device_tables_;
};

}  // namespace moe::model
