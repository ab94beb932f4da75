#pragma once
// 8-bit numbers in the format e4m3 (Micikevicius et al., FP8 Formats for Deep Learning, 2022): a sign, 4 bits of
// exponent (bias 7) and 3 of fraction. The largest value is 448, the smallest step 2^-9; there are no infinities, and
// an exponent and fraction of all ones is NaN. The range is small, so each block of numbers has a scale, which is a
// power of two. Scaled values are therefore exact in every element type, unless they exceed the range of float16.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "moe/base/units.h"

namespace moe {

inline constexpr float kMaxFp8 = 448;

/// Rounds up to a multiple of 4, because cuBLASLt reads scales and multiplies rows in groups of four.
constexpr int64_t round_up_to_4(int64_t count) { return (count + 3) / 4 * 4; }
constexpr int64_t fp8_blocks(int64_t width) { return (width + kFp8Block - 1) / kFp8Block; }

/// A view of a row-major matrix of e4m3 numbers, each of which is multiplied by the scale of its block. A block has
/// kFp8Block columns of one row, or of kFp8Block rows if `tiles`; the last blocks may be smaller. Scales are indexed
/// [block of columns][row], or [block of rows][block of columns] if `tiles`. Numbers and scales are aligned to 16
/// bytes. Without tiles, `data` has room for round_up_to_4(rows) rows, the last of them undefined.
struct Fp8Matrix {
  Fp8Matrix() = default;
  Fp8Matrix(uint8_t* numbers, float* their_scales, int64_t height, int64_t width, bool has_tiles = false)
      : data(numbers),
        scales(their_scales),
        rows(height),
        cols(width),
        scale_stride(round_up_to_4(has_tiles ? fp8_blocks(width) : height)),
        tiles(has_tiles) {}

  uint8_t* data = nullptr;
  float* scales = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t scale_stride = 0;  // scales per block of columns, or per block of rows if `tiles`
  bool tiles = false;
};

/// Returns the number of scales of a matrix.
constexpr int64_t fp8_scales(int64_t rows, int64_t cols, bool tiles) {
  return tiles ? fp8_blocks(rows) * round_up_to_4(fp8_blocks(cols)) : fp8_blocks(cols) * round_up_to_4(rows);
}

/// Returns the value of an e4m3 number.
inline float from_fp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float size = exponent == 0 ? static_cast<float>(fraction) * 0x1p-9F
                                   : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (bits & 0x7f) == 0x7f ? NAN : bits & 0x80 ? -size : size;
}

/// Returns the e4m3 number nearest to v, ties to even. Magnitudes that round to more than 448 become NaN.
inline uint8_t to_fp8(double v) {
  const double size = std::abs(v);
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint64_t>(v) >> 63 << 7);
  if (size < 0x1p-6) return static_cast<uint8_t>(sign | static_cast<int>(std::rint(size * 0x1p9)));
  const uint64_t bits = std::bit_cast<uint64_t>(size);
  const uint64_t rounded = ((bits + (uint64_t{1} << 48) - 1 + (bits >> 49 & 1)) >> 49) - (uint64_t{1023 - 7} << 3);
  return static_cast<uint8_t>(sign | (rounded < 0x7f ? rounded : 0x7f));
}

/// Returns the scale of a block whose largest magnitude is `most`: the least power of two s >= 2^-100 for which
/// most / s <= 448; NaN if `most` isn't finite.
inline float fp8_scale(double most) {
  if (!std::isfinite(most)) return NAN;
  int exponent = 0;
  const double fraction = std::frexp(most, &exponent);  // in [0.5, 1); 448 is 0.875 2^9
  return std::ldexp(1.0F, std::max(most > 0 ? exponent - 9 + (fraction > 0.875 ? 1 : 0) : -100, -100));
}

}  // namespace moe
