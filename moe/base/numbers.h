#pragma once
// The C++ type of each element type on the host. 16-bit types are for storage only, not for arithmetic.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "moe/base/units.h"

namespace moe {

struct Bfloat16 {
  uint16_t bits = 0;  // upper half of a float32
};
struct Float16 {
  uint16_t bits = 0;  // IEEE 754 binary16
};

/// The type in which numbers are summed: float64 for float64, else float32.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float to_float(Bfloat16 v) { return std::bit_cast<float>(uint32_t{v.bits} << 16); }
inline float to_float(Float16 v) {
  const uint32_t sign = uint32_t{v.bits} >> 15 << 31, exponent = v.bits >> 10 & 31, fraction = v.bits & 1023;
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24F));
  return std::bit_cast<float>(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}
template <class T>
Accumulator<T> widened(T v) {
  if constexpr (std::is_same_v<T, Accumulator<T>>)
    return v;
  else
    return to_float(v);
}

/// Rounds once, to nearest even, to a number with these many bits of exponent and fraction.
template <int kExponent, int kFraction>
uint16_t narrowed(double v) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1, kShift = 52 - kFraction;
  constexpr uint64_t kInfinite = ((uint64_t{1} << kExponent) - 1) << kFraction;
  const auto sign = std::bit_cast<uint64_t>(v) >> 63 << 15, bits = std::bit_cast<uint64_t>(v) << 1 >> 1;
  uint64_t rounded = 0;
  if (std::isnan(v))
    rounded = kInfinite | uint64_t{1} << (kFraction - 1);
  else if (std::abs(v) < std::bit_cast<double>(uint64_t{1024 - kBias} << 52))  // below the least normal number
    rounded =
        static_cast<uint64_t>(std::rint(std::abs(v) * std::bit_cast<double>(uint64_t{1022 + kBias + kFraction} << 52)));
  else
    rounded = std::min(kInfinite, ((bits + (uint64_t{1} << (kShift - 1)) - 1 + (bits >> kShift & 1)) >> kShift) -
                                      (uint64_t{1023 - kBias} << kFraction));
  return static_cast<uint16_t>(sign | rounded);
}

inline void round_to(double v, Float16& out) { out.bits = narrowed<5, 10>(v); }
inline void round_to(double v, Bfloat16& out) { out.bits = narrowed<8, 7>(v); }
inline void round_to(float v, Float16& out) { out.bits = narrowed<5, 10>(static_cast<double>(v)); }
inline void round_to(float v, Bfloat16& out) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1), nan = bits | 0x400000;  // its low half may be all 0
  out.bits = static_cast<uint16_t>((std::isnan(v) ? nan : nearest) >> 16);
}
template <class From>
void round_to(From v, float& out) {
  out = static_cast<float>(v);
}
template <class From>
void round_to(From v, double& out) {
  out = static_cast<double>(v);
}

/// Calls body(T{}), where T is the type that `dtype` names.
template <class Body>
decltype(auto) with_number_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::float32:
      return body(float{});
    case DType::float64:
      return body(double{});
    case DType::bfloat16:
      return body(Bfloat16{});
    case DType::float16:
      return body(Float16{});
  }
  throw std::invalid_argument("unknown element type");
}

/// Calls body(T{}), where T is the type of sums that `dtype` names: float32 or float64.
template <class Body>
decltype(auto) with_accumulation_type(DType dtype, Body&& body) {
  if (dtype == DType::float32) return body(float{});
  if (dtype == DType::float64) return body(double{});
  throw std::invalid_argument("a 16-bit type where sums are kept");
}

}  // namespace moe
