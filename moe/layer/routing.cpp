#include "moe/layer/routing.h"

#include <algorithm>

namespace moe {

Routing::Routing(const RoutingShape& shape, DType dtype)
    : RoutingShape(shape),
      expert(static_cast<size_t>(pairs())),
      row(static_cast<size_t>(pairs()), kDropped),
      filled(static_cast<size_t>(experts)),
      weight({tokens, top_k}, dtype) {}

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
