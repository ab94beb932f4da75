#pragma once
// A gate's decision for one rank's tokens: which experts, with what weight, and in which row of T_rank.
#include <cstdint>
#include <vector>

#include "moe/layer/tensor.h"

namespace moe {

struct RoutingShape {
  int64_t tokens = 0, top_k = 0, experts = 0;
  int64_t rows = 0;  // T_rank: rows that this rank may fill of each expert
  int64_t pairs() const { return tokens * top_k; }
};

/// Pair p = token * top_k + choice, choices from the most to the least preferred.
struct Routing : RoutingShape {
  static constexpr int32_t kDropped = -1;

  std::vector<int32_t> expert;  // of each pair
  std::vector<int32_t> row;     // of each pair: in [0, rows), or kDropped: the pair's weight is lost
  std::vector<int64_t> filled;  // of each expert: rows [0, filled) hold a token, the others are empty
  Tensor weight;                // (tokens, top_k)

  Routing(const RoutingShape& shape, DType dtype);
};

/// Gives every pair its row from `expert`: all first choices in token order, then all second choices, ...; what comes
/// to a full expert is dropped (GShard, section 2.2).
void assign_rows(Routing& routing);

}  // namespace moe
