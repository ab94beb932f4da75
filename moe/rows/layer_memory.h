#pragma once
// Holds what a layer's pass over a micro-batch makes, by how long it is needed. Passes that take turns share stores, as
// their plan's memory slots say (moe/plan/lifetimes.h).
#include <memory>

#include "moe/plan/lifetimes.h"
#include "moe/tensor/tensor_store.h"

namespace moe {

class LayerMemory {
 public:
  /// Makes stores for one pass alone. Its phases take turns.
  LayerMemory() {
    for (auto& store : stores_) store = std::make_shared<TensorStore>();
    share(Lifetime::dense_backward, stores_[static_cast<size_t>(Lifetime::dense_forward)]);
    share(Lifetime::moe_backward, stores_[static_cast<size_t>(Lifetime::moe_forward)]);
  }
  void share(Lifetime lifetime, std::shared_ptr<TensorStore> store) {
    stores_[static_cast<size_t>(lifetime)] = std::move(store);
  }
  TensorStore& of(Lifetime lifetime) const { return *stores_[static_cast<size_t>(lifetime)]; }

 private:
  std::array<std::shared_ptr<TensorStore>, kLifetimes> stores_;
};

}  // namespace moe
