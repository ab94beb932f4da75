#include "moe/prices/detail/nnls.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

struct LeastSquares {
  Eigen::MatrixXd a;
  Eigen::VectorXd b;
  double residual(const Eigen::VectorXd& x) const { return (a * x - b).norm(); }
};

// Draws up to 8 columns; of every third problem two are alike, of every fifth one is 0.
LeastSquares drawn_squares(uint64_t seed) {
  const auto columns = static_cast<Eigen::Index>(1 + random_bits(seed, random_stream_id("columns"), 0) % 8);
  const auto rows = static_cast<Eigen::Index>(1 + random_bits(seed, random_stream_id("rows"), 0) % 12);
  LeastSquares drawn{Eigen::MatrixXd(rows, columns), Eigen::VectorXd(rows)};
  uint64_t draw = 0;
  for (Eigen::Index j = 0; j < columns; ++j)
    for (Eigen::Index i = 0; i < rows; ++i) drawn.a(i, j) = random_normal(seed, random_stream_id("a"), draw++);
  for (Eigen::Index i = 0; i < rows; ++i) drawn.b(i) = random_normal(seed, random_stream_id("b"), draw++);
  if (seed % 3 == 0) drawn.a.col(columns - 1) = drawn.a.col(0);
  if (seed % 5 == 0) drawn.a.col(columns / 2).setZero();
  return drawn;
}

// The least residual over all sets of columns whose own least squares are nowhere negative.
double least_over_sets(const LeastSquares& drawn) {
  double least = drawn.b.norm();
  for (unsigned set = 1; set < 1u << drawn.a.cols(); ++set) {
    std::vector<Eigen::Index> columns;
    for (Eigen::Index j = 0; j < drawn.a.cols(); ++j)
      if (set >> j & 1) columns.push_back(j);
    const Eigen::MatrixXd some = drawn.a(Eigen::all, columns);
    const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> factors(some);
    if (factors.rank() < some.cols()) continue;
    const Eigen::VectorXd x = factors.solve(drawn.b);
    if (x.minCoeff() >= 0) least = std::min(least, (some * x - drawn.b).norm());
  }
  return least;
}

TEST(Nnls, IsAsGoodAsTheBestOfAllActiveSets) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const LeastSquares drawn = drawn_squares(seed);
    const Eigen::VectorXd x = nnls(drawn.a, drawn.b);
    ASSERT_EQ(x.size(), drawn.a.cols());
    EXPECT_GE(x.minCoeff(), 0) << seed;
    EXPECT_NEAR(drawn.residual(x), least_over_sets(drawn), 1e-9) << seed;
  }
}

TEST(Nnls, DoesNotDependOnTheUnitsOfColumns) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const LeastSquares drawn = drawn_squares(seed);
    if (drawn.a.rows() < drawn.a.cols() || seed % 3 == 0) continue;  // more than one answer
    const Eigen::VectorXd x = nnls(drawn.a, drawn.b);
    Eigen::VectorXd units(x.size());
    for (Eigen::Index j = 0; j < x.size(); ++j) units(j) = std::pow(1e6, static_cast<double>(j % 3 - 1));
    const Eigen::VectorXd scaled = nnls(drawn.a * units.asDiagonal(), drawn.b);
    for (Eigen::Index j = 0; j < x.size(); ++j) EXPECT_NEAR(scaled(j) * units(j), x(j), 1e-9) << seed;
  }
}

TEST(Nnls, FindsWhatIsNowhereNegativeExactly) {
  Eigen::MatrixXd a(3, 2);
  a << 1, 1, 1, 2, 1, 3;
  const Eigen::VectorXd x = nnls(a, a * Eigen::Vector2d(4, 0.5));
  EXPECT_NEAR(x(0), 4, 1e-13);
  EXPECT_NEAR(x(1), 0.5, 1e-13);
  EXPECT_EQ(nnls(a, -Eigen::Vector3d::Ones()), Eigen::Vector2d::Zero());
}

TEST(Nnls, RefusesARightSideOfAnotherLength) {
  EXPECT_EQ(error_of<BadInput>([] { nnls(Eigen::MatrixXd::Ones(3, 2), Eigen::VectorXd::Ones(2)); }),
            "nnls: found 3 rows and 2 values, expected as many");
}

}  // namespace
}  // namespace moe
