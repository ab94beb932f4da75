#pragma once
// Loops over one row, written so that compilers vectorise them. Rows that are passed to one call must not overlap.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace moe {

/// Computes to = by * from.
template <class T>
void scale_row(const T* __restrict from, T by, T* __restrict to, int64_t width) {
  for (int64_t j = 0; j < width; ++j) to[j] = by * from[j];
}

/// Computes to += by * from.
template <class T>
void add_scaled(const T* __restrict from, T by, T* __restrict to, int64_t width) {
  for (int64_t j = 0; j < width; ++j) to[j] += by * from[j];
}

/// Returns the sum of term(j) for j in [0, width). The partial sums are independent, because compilers may not reorder
/// floating-point additions to vectorise a single sum.
template <class T, class Term>
T sum_of(int64_t width, Term term) {
  constexpr int64_t kLanes = 64 / sizeof(T);
  std::array<T, kLanes> lanes{};
  int64_t j = 0;
  for (; j + kLanes <= width; j += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(j + lane);
  T sum = 0;
  for (; j < width; ++j) sum += term(j);
  for (const T lane : lanes) sum += lane;
  return sum;
}

template <class T>
T dot(const T* __restrict a, const T* __restrict b, int64_t width) {
  return sum_of<T>(width, [&](int64_t j) { return a[j] * b[j]; });
}

/// Computes to = by * from and returns the dot product of `from` and `with`. Both passes run block by block, so that
/// the second finds `from` in the first-level cache.
template <class T>
T scale_and_dot(const T* __restrict from, T by, const T* __restrict with, T* __restrict to, int64_t width) {
  constexpr int64_t kBlock = 256;
  T sum = 0;
  for (int64_t j = 0; j < width; j += kBlock) {
    const int64_t block = std::min(kBlock, width - j);
    sum += dot(from + j, with + j, block);
    scale_row(from + j, by, to + j, block);
  }
  return sum;
}

}  // namespace moe
