// Algorithm 1 (FSMoE section 4.3): its questions and cases, its minima against a fine grid, its degrees against all.
#include "moe/search/algorithm1.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <set>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "tests/search/algorithm1_draws.h"

namespace moe {
namespace {

using algorithm1_draws::random_costs;

constexpr uint64_t kSeed = 20250511;
constexpr int kMax = 64;

std::string text_of(const PhaseCosts& c) {
  const auto line = [](const ChunkTime& l) { return fmt::format("{:.9g} + {:.9g} / r", l.alpha_s, l.whole_s); };
  return fmt::format("a2a {}, ag {}, rs {}, exp {}, gar {:.9g}", line(c.alltoall), line(c.allgather),
                     line(c.reducescatter), line(c.expert), c.gar_s);
}

// Chunk times at r = 3 that are easy to follow by hand.
PhaseCosts chunks_of_3(double a2a, double ag, double rs, double exp, double gar) {
  return {{a2a, 0}, {ag, 0}, {rs, 0}, {exp, 0}, gar};
}

TEST(Algorithm1, EveryQuestionByHand) {
  // r = 3: 3 t_e > 4 t_a (Q2), 3 t_e > 2 (t_g + t_s) (Q3), and so on; one cost is moved across each limit.
  const struct {
    PhaseCosts no, yes;
    size_t question;
  } limits[] = {{chunks_of_3(2, 2, 1, 1, 0), chunks_of_3(2.1, 2, 1, 1, 0), 1},
                {chunks_of_3(3, 1, 1, 4, 0), chunks_of_3(3, 1, 1, 4.1, 0), 2},
                {chunks_of_3(1, 2, 1, 2, 0), chunks_of_3(1, 2, 1, 2.1, 0), 3},
                {chunks_of_3(3, 1, 1, 1, 2), chunks_of_3(3, 1, 1, 1, 2.1), 4},
                {chunks_of_3(3, 1, 1, 6, 8), chunks_of_3(3, 1, 1, 6, 8.1), 5},   // 18 - 12 + 2
                {chunks_of_3(1, 3, 1, 1, 8), chunks_of_3(1, 3, 1, 1, 8.1), 6},   // 12 - 4
                {chunks_of_3(1, 2, 1, 3, 8), chunks_of_3(1, 2, 1, 3, 8.1), 7}};  // 3 + 9 - 4
  for (const auto& [no, yes, question] : limits) {
    EXPECT_FALSE(case_conditions(no, 3)[question - 1]) << "Q" << question << ": equality is no";
    EXPECT_TRUE(case_conditions(yes, 3)[question - 1]) << "Q" << question;
  }
}

TEST(Algorithm1, EveryCaseByHand) {
  const struct {
    PhaseCosts costs;
    int which;
    double seconds;
  } cases[] = {{chunks_of_3(3, 1, 1, 1, 5), 1, 23},   // Q1 !Q2 Q4: 6 AlltoAlls, then 5
               {chunks_of_3(3, 1, 1, 6, 9), 1, 27},   // Q1 Q2 Q5
               {chunks_of_3(1, 3, 1, 1, 9), 1, 15},   // !Q1 !Q3 Q6
               {chunks_of_3(1, 2, 1, 3, 9), 1, 15},   // !Q1 Q3 Q7
               {chunks_of_3(3, 1, 1, 6, 8), 2, 26},   // Q1 Q2 !Q5: 6 + 2 + 18
               {chunks_of_3(1, 2, 1, 3, 8), 2, 14},   // !Q1 Q3 !Q7: 2 + 3 + 9
               {chunks_of_3(3, 1, 1, 1, 2), 3, 20},   // 18 + 2
               {chunks_of_3(1, 3, 1, 1, 8), 4, 14}};  // 2 + 12
  for (const auto& [costs, which, seconds] : cases) {
    EXPECT_EQ(case_of(case_conditions(costs, 3)), which) << text_of(costs);
    EXPECT_DOUBLE_EQ(predicted_seconds(costs, 3), seconds) << text_of(costs);
  }
}

// Section 5.2's three formulas.
TEST(Algorithm1, OverlappablePartByHand) {
  EXPECT_DOUBLE_EQ(overlappable_seconds(chunks_of_3(3, 1, 1, 6, 0), 3), 8);  // case 2: 18 + 2 - 12
  EXPECT_DOUBLE_EQ(overlappable_seconds(chunks_of_3(3, 1, 1, 1, 0), 3), 2);  // case 3
  EXPECT_DOUBLE_EQ(overlappable_seconds(chunks_of_3(1, 3, 1, 1, 9), 3), 8);  // case 4: 12 - 4, whatever is sent
}

TEST(Algorithm1, CasesAreTheLongestPathWhereGatherAndScatterTakeEquallyLong) {
  std::array<std::array<int, 2>, 7> answers{};
  std::array<int, 4> cases{};
  for (uint64_t i = 0; i < 20000; ++i) {
    const PhaseCosts c = random_costs(kSeed, i, true);
    const double r = 1 + static_cast<double>(i % 160) / 10;
    const CaseConditions q = case_conditions(c, r);
    for (size_t k = 0; k < q.size(); ++k) ++answers[k][q[k]];
    ++cases[case_of(q) - 1];
    const double longest =
        std::max({case_seconds(1, c, r), case_seconds(2, c, r), case_seconds(3, c, r), case_seconds(4, c, r)});
    ASSERT_NEAR(predicted_seconds(c, r), longest, 1e-12 * longest) << "r " << r << ", " << text_of(c);
  }
  for (size_t k = 0; k < answers.size(); ++k)
    for (const int yes : {0, 1}) EXPECT_GT(answers[k][yes], 500) << "Q" << k + 1 << ", " << yes;
  for (size_t k = 0; k < cases.size(); ++k) EXPECT_GT(cases[k], 500) << "case " << k + 1;
}

// Costs of small whole numbers: ties, differences that vanish everywhere, times that do not depend on r.
PhaseCosts degenerate_costs(uint64_t i) {
  uint64_t stream = 0;
  const auto number = [&] { return static_cast<double>(random_bits(kSeed, stream++, i) % 4); };
  const auto line = [&] {
    const double alpha = number();
    return ChunkTime{alpha, 4 * number()};
  };
  PhaseCosts costs{line(), line(), line(), line(), 0};
  costs.gar_s = i % 2 == 0 ? 0 : 3 * number();
  return costs;
}

// No case that a fine grid would find is missed, none is invented, and no point of the grid is better.
TEST(Algorithm1, MinimaAreThoseOfAFineGrid) {
  constexpr double kStep = 1.0 / 128;
  std::array<int, 4> found{};
  int sends_pieces = 0;
  double worst = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const PhaseCosts c = i < 1500 ? random_costs(kSeed + 1, i, i % 3 != 0) : degenerate_costs(i);
    const auto minima = case_minima(c, kMax);
    std::array<double, 4> least;
    least.fill(std::numeric_limits<double>::infinity());
    std::array<std::set<int>, 4> pieces;
    int piece = 0, before = 0;
    for (double r = 1; r <= kMax; r += kStep) {
      const int which = case_of(case_conditions(c, r));
      const auto at = static_cast<size_t>(which - 1);
      piece += which != before;
      before = which;
      pieces[at].insert(piece);
      least[at] = std::min(least[at], case_seconds(which, c, r));
    }
    for (size_t k = 0; k < 4; ++k) {
      sends_pieces += pieces[k].size() > 1;
      ASSERT_TRUE(minima[k] || pieces[k].empty()) << "case " << k + 1 << " missed: " << text_of(c);
      if (!minima[k]) continue;
      const int which = static_cast<int>(k) + 1;
      ASSERT_LE(minima[k]->seconds, least[k] * (1 + 1e-9)) << "case " << which << ": " << text_of(c);
      ASSERT_NEAR(minima[k]->seconds, case_seconds(which, c, minima[k]->degree), 1e-12 * minima[k]->seconds);
      const double r = minima[k]->degree, nudge = 1e-7 * r;  // the limit at an open end: the case is beside it
      EXPECT_TRUE(case_of(case_conditions(c, r)) == which || case_of(case_conditions(c, r + nudge)) == which ||
                  case_of(case_conditions(c, std::max(1.0, r - nudge))) == which)
          << "case " << which << " does not hold at r " << r << ": " << text_of(c);
      ++found[k];
      if (!pieces[k].empty()) worst = std::max(worst, least[k] / minima[k]->seconds - 1);
    }
  }
  fmt::print(
      "2000 draws: minima of cases 1 to 4: {}, {}, {}, {}; {} of them over several ranges of r; a grid of 1/128 "
      "is worse by at most {:.2f} %\n",
      found[0], found[1], found[2], found[3], sends_pieces, 100 * worst);
  for (const int count : found) EXPECT_GT(count, 100);
  EXPECT_GT(sends_pieces, 10) << "ranges in pieces were not tried";
}

// Rounding the real degree against trying every integer by the same formulas.
TEST(Algorithm1, DegreesAgainstEveryInteger) {
  std::array<int, 2> missed{};
  std::array<double, 2> worst{};
  constexpr int kDraws = 5000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const PhaseCosts c = random_costs(kSeed + 2, i, true);
    double least = std::numeric_limits<double>::infinity(), least_power = least;
    for (int r = 1; r <= kMax; ++r) least = std::min(least, predicted_seconds(c, r));
    for (const int r : {1, 2, 4, 8}) least_power = std::min(least_power, predicted_seconds(c, r));
    const Algorithm1Result near = algorithm1(c, kMax), snapped = algorithm1(c, kMax, DegreeRounding::powers_of_two);
    for (const auto* result : {&near, &snapped}) {
      EXPECT_EQ(result->seconds, predicted_seconds(c, result->degree)) << text_of(c);
      EXPECT_EQ(result->which_case, case_of(case_conditions(c, result->degree))) << text_of(c);
      EXPECT_LE(result->real.seconds, result->seconds * (1 + 1e-12)) << text_of(c);
    }
    EXPECT_LT(std::abs(near.degree - near.real.degree), 1) << text_of(c);
    EXPECT_GE(near.seconds, least) << text_of(c);
    EXPECT_GE(snapped.seconds, least_power) << text_of(c);
    EXPECT_TRUE(std::set({1, 2, 4, 8}).contains(snapped.degree)) << text_of(c);
    const std::array lost{near.seconds / least - 1, snapped.seconds / least - 1};
    for (size_t k = 0; k < 2; ++k) {
      missed[k] += lost[k] > 1e-12;
      worst[k] = std::max(worst[k], lost[k]);
    }
  }
  fmt::print(
      "{} draws against the best integer: floor or ceil misses it in {} (worst {:.2f} %), {{1, 2, 4, 8}} in {} "
      "(worst {:.1f} %)\n",
      kDraws, missed[0], 100 * worst[0], missed[1], 100 * worst[1]);
  EXPECT_LT(missed[0], kDraws / 50);
}

TEST(Algorithm1, KeepsToTheLargestDegree) {
  PhaseCosts c{{1e-9, 1}, {0, 0.1}, {0, 0.1}, {1e-9, 5}, 0};  // the more chunks the better
  for (const int most : {1, 2, 3, 7, 64}) {
    EXPECT_EQ(algorithm1(c, most).degree, most);
    const int power = algorithm1(c, most, DegreeRounding::powers_of_two).degree;
    EXPECT_EQ(power, most >= 8 ? 8 : most >= 4 ? 4 : std::min(most, 2));
  }
  EXPECT_EQ(algorithm1({}, 64).degree, 1) << "nothing to do: ties go to the smaller degree";
  EXPECT_THROW(algorithm1(c, 0), BadInput);
}

}  // namespace
}  // namespace moe
