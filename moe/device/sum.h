#pragma once
// The one way in which the host sums for communicators, so that their results are equal to the last bit.
#include <algorithm>
#include <array>
#include <cstdint>

namespace moe {

/// Sums elements [begin, end) of `sources` arrays in their order, piece by piece: `array(i)` is where the i-th starts,
/// and each piece is handed to store(piece, at, count). A piece is stored after all of it has been read, so `store` may
/// write where it came from.
template <class T, class Array, class Store>
void sum_in_order(int sources, Array&& array, int64_t begin, int64_t end, Store&& store) {
  constexpr int64_t kPiece = 1024;  // stays in the nearest cache while the arrays pass by
  std::array<T, kPiece> piece;
  for (int64_t at = begin; at < end; at += kPiece) {
    const int64_t count = std::min(kPiece, end - at);
    std::copy_n(array(0) + at, count, piece.begin());
    for (int source = 1; source < sources; ++source) {
      const T* more = array(source) + at;
      for (int64_t i = 0; i < count; ++i) piece[static_cast<size_t>(i)] += more[i];
    }
    store(static_cast<const T*>(piece.data()), at, count);
  }
}

}  // namespace moe
