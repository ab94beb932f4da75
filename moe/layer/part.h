#pragma once
// The arguments from which every part of a layer is made. Weights and their gradients belong to the layer, not to the
// parts: each micro-batch of a layer has separate parts, which use the same weights.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/layer/parameter.h"
#include "moe/sharding/layer_buffers.h"
#include "moe/tensor/math.h"

namespace moe {

class Attention;

/// A view of one tensor of a TensorStore. The view keeps the store alive.
class Weight {
 public:
  Weight() = default;
  Weight(std::shared_ptr<TensorStore> store, TensorView view) : store_(std::move(store)), view_(view) {}
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  std::shared_ptr<TensorStore> store_;
  TensorView view_;
};

struct PartSetup {
  const RankShape& rank;
  LayerSeed seed = {};
  Math& math = cpu_math();
  std::shared_ptr<TensorStore> weights = std::make_shared<TensorStore>();  // weights and their gradients
  std::string_view prefix = {};                                            // prefix of the names of an expert's weights
  LayerMemory memory = {};                                                 // a pass's activations and gradients
  std::span<Attention* const> parts_before = {};  // attention of the earlier parts of the samples

  /// Returns a weight or its gradient (TensorStore::tensor).
  Weight weight(std::string_view name, std::initializer_list<int64_t> shape, DType dtype) const {
    return {weights, weights->tensor(name, shape, dtype, math.memory())};
  }
};

}  // namespace moe
