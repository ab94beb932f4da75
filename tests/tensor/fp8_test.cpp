// FP8 numbers against LibTorch's, and what rounding matrices to them promises.
#include "moe/tensor/fp8.h"

#include <ATen/ATen.h>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "moe/tensor/math.h"
#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

// LibTorch's saturates nothing either: what rounds beyond 448 is no number.
uint8_t torchs(float v) { return c10::Float8_e4m3fn(v).x; }

bool is_number(uint8_t bits) { return (bits & 0x7f) != 0x7f; }

TEST(Fp8, HasTheNumbersOfLibTorchs) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto one = static_cast<uint8_t>(bits);
    const float expected = static_cast<float>(c10::Float8_e4m3fn(one, c10::Float8_e4m3fn::from_bits()));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(from_fp8(one))) << bits;
      continue;
    }
    EXPECT_EQ(from_fp8(one), expected) << bits;
    EXPECT_EQ(to_fp8(expected), one) << bits;
  }
  EXPECT_EQ(from_fp8(to_fp8(kMaxFp8)), kMaxFp8);
}

TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = from_fp8(static_cast<uint8_t>(bits)), high = from_fp8(static_cast<uint8_t>(bits + 1));
    const float middle = (low + high) / 2;
    for (const float v : {middle, std::nextafter(middle, low), std::nextafter(middle, high), low, high})
      for (const float sign : {1.0F, -1.0F}) EXPECT_EQ(to_fp8(sign * v), torchs(sign * v)) << v;
    // Of float64 not by way of float32, where this were a tie.
    const double above = double{middle} * (1 + 0x1p-50);
    EXPECT_EQ(to_fp8(above), bits + 1) << above;
  }
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto v = static_cast<float>(random_normal(3, 1, i) * std::exp2(random_normal(3, 2, i) * 6));
    ASSERT_EQ(to_fp8(v), torchs(v)) << v;
  }
}

TEST(Fp8, HasNoInfinities) {
  for (const double v : {464.1, 1e9, double{INFINITY}, double{NAN}}) {
    EXPECT_FALSE(is_number(to_fp8(v))) << v;
    EXPECT_FALSE(is_number(to_fp8(-v))) << v;
  }
}

TEST(Fp8, AScaleIsTheLeastPowerOfTwoThatBringsABlockIntoReach) {
  EXPECT_EQ(fp8_scale(448), 1);
  EXPECT_EQ(fp8_scale(std::nextafter(448.0, 449.0)), 2);
  EXPECT_EQ(fp8_scale(224), 0.5F);
  EXPECT_EQ(fp8_scale(0), 0x1p-100F);
  EXPECT_EQ(fp8_scale(1e-300), 0x1p-100F);
  EXPECT_TRUE(std::isnan(fp8_scale(INFINITY)));
  EXPECT_TRUE(std::isnan(fp8_scale(NAN)));
  for (uint64_t i = 0; i < 10000; ++i) {
    const double most = std::exp2(random_normal(4, 1, i) * 20);
    const double scale = fp8_scale(most);
    EXPECT_EQ(scale, std::exp2(std::ceil(std::log2(most / 448)))) << most;
  }
}

// A matrix as FP8 numbers.
struct Rounded {
  Rounded(int64_t rows, int64_t cols, bool tiles)
      : data(static_cast<size_t>(round_up_to_4(rows) * cols)),
        scales(static_cast<size_t>(fp8_scales(rows, cols, tiles))),
        m{data.data(), scales.data(), rows, cols, tiles} {}
  double scale(int64_t i, int64_t j) const {
    const int64_t block = j / kFp8Block;
    return scales.at(
        static_cast<size_t>(m.tiles ? i / kFp8Block * m.scale_stride + block : block * m.scale_stride + i));
  }
  double at(int64_t i, int64_t j) const { return from_fp8(data.at(i * m.cols + j)) * scale(i, j); }
  std::vector<uint8_t> data;
  std::vector<float> scales;
  Fp8Matrix m;
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 1}, {3, 128}, {130, 257}, {128, 384}, {5, 1000}};

TEST(Fp8, RoundsMatricesBlockByBlock) {
  for (const auto& [rows, cols] : kShapes)
    for (const bool tiles : {false, true}) {
      SCOPED_TRACE(fmt::format("({}, {}), tiles {}", rows, cols, tiles));
      Tensor t = random_tensor({rows, cols + 3}, 5);
      for (int64_t i = 0; i < t.view().elements(); ++i) t.view().as<double>()[i] *= std::exp2(i % 17 - 8);
      const Matrix from = columns(t, 2, cols);
      Rounded rounded(rows, cols, tiles), turned(cols, rows, true);
      cpu_math().round_fp8(from, rounded.m, tiles ? &turned.m : nullptr);
      const int64_t height = tiles ? kFp8Block : 1;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) {
          double most = 0;  // of its block
          for (int64_t y = i / height * height; y < std::min(rows, (i / height + 1) * height); ++y)
            for (int64_t x = j / kFp8Block * kFp8Block; x < std::min(cols, (j / kFp8Block + 1) * kFp8Block); ++x)
              most = std::max(most, std::abs(t.view().as<double>()[y * (cols + 3) + 2 + x]));
          const double v = t.view().as<double>()[i * (cols + 3) + 2 + j], scale = rounded.scale(i, j);
          ASSERT_LE(most, 448 * scale);
          ASSERT_GT(most, 224 * scale);
          ASSERT_LE(std::abs(rounded.at(i, j) - v), std::max(std::abs(v) * 0x1p-4, scale * 0x1p-10));
          ASSERT_TRUE(!tiles || turned.at(j, i) == rounded.at(i, j));
        }
    }
}

TEST(Fp8, WhatIsNotFiniteMakesItsBlockNoNumbers) {
  for (const double bad : {double{INFINITY}, double{NAN}}) {
    Tensor t = random_tensor({2, 256}, 6);
    t.view().as<double>()[130] = bad;
    Rounded rounded(2, 256, false);
    cpu_math().round_fp8(matrix(t), rounded.m);
    for (int64_t j = 0; j < 256; ++j) {
      EXPECT_EQ(std::isnan(rounded.at(0, j)), j >= 128);
      EXPECT_FALSE(std::isnan(rounded.at(1, j)));
    }
  }
}

TEST(Fp8, MultipliesWhatTheNumbersStandFor) {
  for (const auto& [rows, inner, cols] : {std::tuple{1, 1, 1}, {7, 128, 130}, {5, 300, 3}, {0, 128, 4}}) {
    const Tensor a = random_tensor({rows, inner}, 1), b = random_tensor({cols, inner}, 2);
    Rounded left(rows, inner, false), right(cols, inner, true);
    cpu_math().round_fp8(matrix(a), left.m);
    cpu_math().round_fp8(matrix(b), right.m);
    for (const Into into : {Into::overwrite, Into::add}) {
      const Tensor out = random_tensor({rows, cols}, 3), before = random_tensor({rows, cols}, 3);
      cpu_math().gemm_fp8(left.m, right.m, matrix(out), into);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols; ++j) {
          double sum = into == Into::add ? before.view().as<double>()[i * cols + j] : 0;
          for (int64_t k = 0; k < inner; ++k) sum += left.at(i, k) * right.at(j, k);
          ASSERT_NEAR(out.view().as<double>()[i * cols + j], sum, 1e-12);
        }
    }
  }
}

}  // namespace
}  // namespace moe
