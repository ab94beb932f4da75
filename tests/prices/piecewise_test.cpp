#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/prices/curve_fit.h"
#include "tests/base/error_of.h"
#include "tests/prices/random_curve.h"

namespace moe {
namespace {

// (size, seconds) at powers of 2 on a curve whose knots are given.
Points on_the_curve(const Points& knots, int sizes) {
  const PiecewiseCurve curve{knots, {}};
  Points samples;
  for (int i = 0; i < sizes; ++i) samples.push_back({std::ldexp(512, i), curve.seconds(std::ldexp(512, i))});
  return samples;
}

double worst_error(const PiecewiseCurve& pieces, const Points& samples) {
  double worst = 0;
  for (const auto& [size, seconds] : samples) worst = std::max(worst, std::abs(pieces.seconds(size) / seconds - 1));
  return worst;
}

TEST(Curve, OfALineAreOne) {
  const Points samples = on_the_curve({{512, 1e-5 + 512e-12}, {1 << 30, 1e-5 + 1e-12 * (1 << 30)}}, 21);
  const PiecewiseCurve pieces = fit_pieces(samples, "line");
  ASSERT_EQ(pieces.knots.size(), 2u);
  EXPECT_NEAR(pieces.seconds(1e6) / (1e-5 + 1e-6), 1, 1e-9);
  EXPECT_NEAR(pieces.seconds(1e12) / 1, 1, 1e-4) << "goes on beyond the largest";
  EXPECT_NEAR(*pieces.held_out_worst(), 0, 1e-9);
}

// Knots at powers of 2 come back as they are.
TEST(Curve, RecoverACurveOfPiecesExactly) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Points knots = random_knots(seed);
    const Points samples = on_the_curve(knots, 21);
    const PiecewiseCurve pieces = fit_pieces(samples, "pieces");
    EXPECT_LT(worst_error(pieces, samples), 1e-7) << seed;
    ASSERT_EQ(pieces.knots.size(), knots.size()) << seed;
    for (size_t i = 0; i < knots.size(); ++i) {
      EXPECT_EQ(pieces.knots[i][0], knots[i][0]) << seed;
      EXPECT_NEAR(pieces.knots[i][1] / knots[i][1], 1, 1e-7) << seed;
    }
  }
}

TEST(Curve, RiseAndJoinWhateverWasMeasured) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const Points samples = random_samples(seed);
    const int most = 1 + static_cast<int>(seed % 4);
    const PiecewiseCurve pieces = fit_pieces(samples, "random", most);
    const auto [least, largest] = std::ranges::minmax_element(samples);
    ASSERT_LE(pieces.knots.size(), static_cast<size_t>(most) + 1) << seed;
    EXPECT_EQ(pieces.knots.front()[0], (*least)[0]) << seed;
    EXPECT_EQ(pieces.knots.back()[0], (*largest)[0]) << seed;
    for (size_t i = 0; i < pieces.knots.size(); ++i) {
      EXPECT_GT(pieces.knots[i][1], 0) << seed;
      EXPECT_NEAR(pieces.seconds(pieces.knots[i][0]) / pieces.knots[i][1], 1, 1e-12) << seed;
      if (i == 0) continue;
      EXPECT_GT(pieces.knots[i][0], pieces.knots[i - 1][0]) << seed;
      EXPECT_GE(pieces.knots[i][1], pieces.knots[i - 1][1]) << seed;
    }
    EXPECT_GE(pieces.seconds(0), -1e-12 * pieces.knots[0][1]) << seed;
    EXPECT_TRUE(pieces.held_out.size() == samples.size() || pieces.held_out.empty()) << seed;
  }
}

TEST(Curve, OfANoisyCurveErrAsMuchAsItsNoise) {
  double sum = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Points samples = on_the_curve(random_knots(seed), 21);
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i][1] *= 1 + 0.02 * random_normal(seed, random_stream_id("noise of a curve"), i);
    sum += *fit_pieces(samples, "noisy").held_out_error();
  }
  EXPECT_LT(sum / 20, 0.04);
  EXPECT_GT(sum / 20, 0.01);
}

TEST(Curve, DoNotDependOnTheOrderOfSamples) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Points samples = random_samples(seed);
    const PiecewiseCurve one = fit_pieces(samples, "x");
    std::ranges::reverse(samples);
    const PiecewiseCurve other = fit_pieces(samples, "x");
    EXPECT_EQ(one.knots, other.knots) << seed;
    EXPECT_EQ(one.held_out, other.held_out) << seed;
  }
}

TEST(Curve, HoldNothingOutOfTwoSizes) {
  const PiecewiseCurve pieces = fit_pieces({{2, 3}, {1, 1}}, "two");
  EXPECT_EQ(pieces.knots.size(), 2u);
  EXPECT_NEAR(pieces.seconds(2), 30.0 / 13, 1e-12) << "from 0 on: the least of (b - 1)^2 + (2 b / 3 - 1)^2";
  EXPECT_FALSE(pieces.held_out_error() || pieces.held_out_worst());
}

TEST(Curve, RefuseWhatIsNoCurve) {
  const auto message = [](Points samples, int most = 6) {
    return error_of<BadInput>([&] { fit_pieces(std::move(samples), "alltoall", most); });
  };
  EXPECT_EQ(message({{1, 1}, {1, 2}}), "alltoall: found 1 sizes, expected at least 2 for a curve");
  EXPECT_EQ(message({{1, 1}, {2, -1}}), "alltoall: found size 2 in -1 s, expected both > 0");
  EXPECT_EQ(message({{1, 1}, {2, 2}}, 0), "alltoall: found 0 pieces, expected at least 1");
}

}  // namespace
}  // namespace moe
