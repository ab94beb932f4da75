#pragma once
// Arrays that an enum indexes.
#include <array>
#include <cstddef>

namespace moe {

/// An array with an element for each of the first `n` values of an enum. The values are its indices, as numbers are.
template <class Enum, class T, size_t n>
struct EnumArray : std::array<T, n> {
  using Numbered = std::array<T, n>;
  using Numbered::operator[];
  constexpr T& operator[](Enum value) { return Numbered::operator[](static_cast<size_t>(value)); }
  constexpr const T& operator[](Enum value) const { return Numbered::operator[](static_cast<size_t>(value)); }
};

}  // namespace moe
