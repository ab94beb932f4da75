#include "moe/layer/routing.h"

#include <algorithm>

namespace moe {

Routing::Routing(int64_t tokens_, int64_t top_k_, int64_t experts_, int64_t rows_, DType dtype)
    : tokens(tokens_),
      top_k(top_k_),
      experts(experts_),
      rows(rows_),
      expert(static_cast<size_t>(tokens_ * top_k_)),
      row(static_cast<size_t>(tokens_ * top_k_), kDropped),
      filled(static_cast<size_t>(experts_)),
      weight({tokens_, top_k_}, dtype) {}

void assign_rows(Routing& r) {
  std::fill(r.filled.begin(), r.filled.end(), 0);
  for (int64_t choice = 0; choice < r.top_k; ++choice) {
    for (auto pair = static_cast<size_t>(choice); pair < r.expert.size(); pair += static_cast<size_t>(r.top_k)) {
      int64_t& filled = r.filled[static_cast<size_t>(r.expert[pair])];
      r.row[pair] = filled < r.rows ? static_cast<int32_t>(filled++) : Routing::kDropped;
    }
  }
}

}  // namespace moe
