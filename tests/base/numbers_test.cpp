// 16-bit numbers: every one of them, and what lies between two neighbours.
#include "moe/base/numbers.h"

#include <gtest/gtest.h>
#include <limits>

namespace moe {
namespace {

template <class T>
struct NarrowNumbers : testing::Test {
  static double value(int bits) { return static_cast<double>(to_float(T{static_cast<uint16_t>(bits)})); }
  template <class From>
  static int rounded(From v) {
    T out;
    round_to(v, out);
    return out.bits;
  }
  static constexpr bool kBrain = std::is_same_v<T, Bfloat16>;
  static constexpr int kInfinite = kBrain ? 0x7f80 : 0x7c00, kSign = 0x8000;
};
using NarrowTypes = testing::Types<Bfloat16, Float16>;
TYPED_TEST_SUITE(NarrowNumbers, NarrowTypes);

TYPED_TEST(NarrowNumbers, AreWhatTheirBitsSay) {
  using N = TestFixture;
  EXPECT_EQ(N::value(N::kBrain ? 0x3f80 : 0x3c00), 1);
  EXPECT_EQ(N::value(N::kBrain ? 0xc040 : 0xc200), -3);
  EXPECT_EQ(N::value(1), N::kBrain ? 0x1p-133 : 0x1p-24);
  EXPECT_EQ(N::value(N::kInfinite - 1), N::kBrain ? 0x1.fep127 : 65504);
  EXPECT_EQ(N::value(N::kInfinite), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(N::value(N::kInfinite + 1)));
}

// From float64, and where it can say it from float32: at each number, beside it, and at the tie with its neighbour.
TYPED_TEST(NarrowNumbers, RoundToNearestEven) {
  using N = TestFixture;
  for (const int sign : {0, N::kSign})
    for (int bits = 0; bits < N::kInfinite; ++bits) {
      const double here = N::value(bits),
                   next = bits + 1 < N::kInfinite ? N::value(bits + 1) : 2 * here - N::value(bits - 1);
      const double tie = (here + next) / 2, s = sign == 0 ? 1 : -1;
      const auto is = [&](double v, int expected) {
        ASSERT_EQ(N::rounded(s * v), sign | expected) << v;
        if (static_cast<double>(static_cast<float>(v)) == v) {
          ASSERT_EQ(N::rounded(static_cast<float>(s * v)), sign | expected) << v;
        }
      };
      is(here, bits);
      is(std::nextafter(here, next), bits);
      is(std::nextafter(tie, here), bits);
      is(tie, bits + bits % 2);
      is(std::nextafter(tie, next), bits + 1);
      is(std::nextafter(next, here), bits + 1);
      const auto narrow = static_cast<float>(tie);  // float32's neighbours of a tie
      if (static_cast<double>(narrow) == tie && next < 0x1p127) {
        is(static_cast<double>(std::nextafter(narrow, 0.0F)), bits);
        is(static_cast<double>(std::nextafter(narrow, std::numeric_limits<float>::infinity())), bits + 1);
      }
    }
}

TYPED_TEST(NarrowNumbers, BeyondTheLargestAndNotANumber) {
  using N = TestFixture;
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const double v : {infinite, 1e300, 0x1p128}) {
    EXPECT_EQ(N::rounded(v), N::kInfinite);
    EXPECT_EQ(N::rounded(-v), N::kSign | N::kInfinite);
    EXPECT_EQ(N::rounded(static_cast<float>(v)), N::kInfinite);
  }
  EXPECT_TRUE(std::isnan(N::value(N::rounded(nan))));
  EXPECT_TRUE(std::isnan(N::value(N::rounded(static_cast<float>(nan)))));
  EXPECT_TRUE(std::isnan(N::value(N::rounded(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_EQ(N::rounded(-1e-300), N::kSign);
}

}  // namespace
}  // namespace moe
