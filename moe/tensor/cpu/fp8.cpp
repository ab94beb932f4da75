#include "moe/tensor/cpu/fp8.h"

#include <algorithm>
#include <array>
#include <vector>

#include "moe/base/check.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

// A block of a matrix: rows [row, end_row) and columns [column, end_column).
struct Block {
  int64_t row, column, end_row, end_column;
};

// Calls body(block, scale) for each block of a matrix, where `scale` is a reference. Threads share the rows of blocks.
template <class Body>
void for_each_block(const Fp8Matrix& m, int64_t element_bytes, Body body) {
  const int64_t height = m.tiles ? kFp8Block : 1, down = (m.rows + height - 1) / height, across = fp8_blocks(m.cols);
  parallel_for(down, height * m.cols * element_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < across; ++j)
        body(
            Block{i * height, j * kFp8Block, std::min(m.rows, (i + 1) * height), std::min(m.cols, (j + 1) * kFp8Block)},
            m.scales[m.tiles ? i * m.scale_stride + j : j * m.scale_stride + i]);
  });
}

template <class T>
void round_blocks(const Matrix& from, const Fp8Matrix& to) {
  const int64_t down = from.transposed ? 1 : from.stride, right = from.transposed ? from.stride : 1;
  const T* data = static_cast<const T*>(from.data);
  for_each_block(to, int64_t{sizeof(T)}, [&](const Block& b, float& scale) {
    T most = 0;
    bool finite = true;
    for (int64_t i = b.row; i < b.end_row; ++i)
      for (int64_t j = b.column; j < b.end_column; ++j) {
        const T size = std::abs(data[i * down + j * right]);
        finite &= std::isfinite(size);
        most = std::max(most, size);
      }
    scale = fp8_scale(finite ? most : NAN);
    const T inverse = 1 / static_cast<T>(scale);
    for (int64_t i = b.row; i < b.end_row; ++i)
      for (int64_t j = b.column; j < b.end_column; ++j)
        to.data[i * to.cols + j] = to_fp8(static_cast<double>(data[i * down + j * right] * inverse));
  });
}

template <class T>
std::vector<T> widened(const Fp8Matrix& m) {
  static const auto kNumbers = [] {
    std::array<float, 256> all{};
    for (size_t bits = 0; bits < all.size(); ++bits) all[bits] = from_fp8(static_cast<uint8_t>(bits));
    return all;
  }();
  std::vector<T> out(m.rows * m.cols);
  for_each_block(m, int64_t{sizeof(T)}, [&](const Block& b, float scale) {
    for (int64_t i = b.row; i < b.end_row; ++i)
      for (int64_t j = b.column; j < b.end_column; ++j)
        out[i * m.cols + j] = static_cast<T>(kNumbers[m.data[i * m.cols + j]]) * static_cast<T>(scale);
  });
  return out;
}

}  // namespace

void round_fp8(const Matrix& from, const Fp8Matrix& to) {
  with_element(from.dtype, [&](auto zero) { round_blocks<decltype(zero)>(from, to); });
}

void gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into) {
  with_element(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> left = widened<T>(a), right = widened<T>(b);
    gemm({left.data(), a.rows, a.cols, a.cols, out.dtype}, {right.data(), b.rows, b.cols, b.cols, out.dtype, true}, out,
         into);
  });
}

}  // namespace moe
