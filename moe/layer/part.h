#pragma once
// What every part of a layer is made from. Weights and their gradients belong to the layer, not to the parts that use
// them: a layer's micro-batches have parts of their own over the same weights.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"
#include "moe/tensor/tensor.h"

namespace moe {

/// Holds one rank's weights of a layer and their gradients by name.
class WeightStore {
 public:
  /// Returns the tensor of this name, zeroed when it is made. Throws WrongResult where it was made or lent with another
  /// number of elements.
  TensorView tensor(std::string_view name, std::initializer_list<int64_t> shape, DType dtype, MemorySpace& memory);
  /// Makes `elements` what that name gets, which must outlive the store.
  void lend(std::string_view name, TensorView elements) { tensors_[std::string(name)] = elements; }

 private:
  std::vector<Tensor> owned_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

/// Shows one tensor of a store, and keeps the store alive.
class Weight {
 public:
  Weight() = default;
  Weight(std::shared_ptr<WeightStore> store, TensorView view) : store_(std::move(store)), view_(view) {}
  TensorView view() const { return view_; }
  operator TensorView() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  std::shared_ptr<WeightStore> store_;
  TensorView view_;
};

struct PartSetup {
  const RankShape& rank;
  LayerSeed seed = {};
  Math& math = cpu_math();
  std::shared_ptr<WeightStore> weights = std::make_shared<WeightStore>();
  std::string_view prefix = {};  // of the names of an expert's weights

  /// Returns a weight or its gradient (WeightStore::tensor).
  Weight weight(std::string_view name, std::initializer_list<int64_t> shape, DType dtype) const {
    return {weights, weights->tensor(name, shape, dtype, math.memory())};
  }
};

}  // namespace moe
