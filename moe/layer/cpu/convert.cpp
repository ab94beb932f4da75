#include <bit>
#include <cmath>

#include "moe/layer/cpu/math.h"
#include "moe/layer/element.h"

namespace moe {
namespace {

// bfloat16 is float32's upper half.
uint16_t encode(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);  // its payload may lie in the lower half
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// By way of float32, rounded to odd: two roundings to nearest could go the wrong way at a tie.
uint16_t encode(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return encode(nearest);
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;  // toward zero
  return encode(std::bit_cast<float>(bits | 1));
}

void compress(TensorView rows, TensorView wire) {
  with_element(rows.dtype(), [&](auto zero) {
    const auto* from = rows.as<const decltype(zero)>();
    auto* to = wire.as<uint16_t>();
    for (int64_t i = 0; i < rows.elements(); ++i) to[i] = encode(from[i]);
  });
}

void decompress(TensorView wire, TensorView rows) {
  with_element(rows.dtype(), [&](auto zero) {
    const auto* from = wire.as<const uint16_t>();
    auto* to = rows.as<decltype(zero)>();
    for (int64_t i = 0; i < rows.elements(); ++i) to[i] = std::bit_cast<float>(uint32_t{from[i]} << 16);
  });
}

}  // namespace

void convert(TensorView from, TensorView to) {
  require_equal(from.elements(), to.elements(), "elements to convert");
  if (to.dtype() == DType::bfloat16) return compress(from, to);
  require<Unsupported>(from.dtype() == DType::bfloat16, "conversion from {} to {}: unsupported by the CPU layer",
                       name_of(from.dtype()), name_of(to.dtype()));
  decompress(from, to);
}

}  // namespace moe
