// max(x W1, 0) W2: sharding, GEMMs and gradients are those of every expert without biases.
#include <array>

#include "moe/layer/experts/feed_forward.h"
#include "moe/tensor/element.h"
#include "tests/adding/parts.h"

namespace moe {
namespace {

constexpr std::array kInputs{kW1};

void relu(Math&, std::span<const TensorView> before, TensorView after) {
  with_element(after.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < after.elements(); ++i) after.as<T>()[i] = std::max(T(0), before[0].as<T>()[i]);
  });
}

void relu_backward(Math&, std::span<const TensorView> before, std::span<const TensorView> d_before) {
  with_element(before[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < before[0].elements(); ++i)
      if (before[0].as<T>()[i] <= 0) d_before[0].as<T>()[i] = 0;
  });
}

}  // namespace

std::unique_ptr<Expert> make_relu_expert(const PartSetup& setup) {
  return make_feed_forward(setup, {kInputs, relu, relu_backward});
}

}  // namespace moe
