#pragma once
// The sum on the host that all communicators share, so that their results are equal to the last bit.
#include <algorithm>
#include <array>
#include <cstdint>

#include "moe/base/numbers.h"

namespace moe {

/// Sums elements [begin, end) of `sources` arrays in their order, piece by piece. `array(i)` returns the start of array
/// i, and store(piece, at, count) takes each finished piece. A piece is stored after it was read from all arrays, so
/// `store` may write to one of them. 16-bit elements are added in float32 and rounded once.
template <class T, class Array, class Store>
void sum_in_order(int sources, Array&& array, int64_t begin, int64_t end, Store&& store) {
  constexpr int64_t kPiece = 1024;  // elements: a piece stays in the nearest cache while all arrays are read
  std::array<Accumulator<T>, kPiece> piece;
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t count = std::min(kPiece, end - at);
    const T* first = array(0) + at;
    for (int64_t i = 0; i < count; ++i) piece[i] = widened(first[i]);
    for (int source = 1; source < sources; ++source) {
      const T* more = array(source) + at;
      for (int64_t i = 0; i < count; ++i) piece[i] += widened(more[i]);
    }
    if constexpr (std::is_same_v<T, Accumulator<T>>) {
      store(static_cast<const T*>(piece.data()), at, count);
    } else {
      std::array<T, kPiece> rounded;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) round_to(piece[i], rounded[i]);
      store(static_cast<const T*>(rounded.data()), at, count);
    }
  }
}

}  // namespace moe
