#include "commands/regress/rule.h"

#include <cmath>
#include <gtest/gtest.h>

#include "commands/regress/self_test.h"
#include "moe/base/random.h"

namespace moe::regress {
namespace {

std::vector<Pair> pairs_of(int count, double ratio, double deviation, uint64_t draw) {
  std::vector<Pair> pairs;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<uint64_t>(2 * i);
    const double base = std::log(0.01) + deviation * random_normal(5, draw, at);
    pairs.push_back({base, std::log(0.01 * ratio) + deviation * random_normal(5, draw, at + 1)});
  }
  return pairs;
}

CaseJudgement judged_alone(const Evidence& evidence) { return judge({evidence}, Rule()).front(); }

TEST(Rule, EqualProgramsAreTheSame) {
  const CaseJudgement judged = judged_alone({pairs_of(6, 1, 0.003, 1), {}});
  EXPECT_EQ(judged.verdict, Verdict::same);
  EXPECT_NEAR(judged.ratio, 1, 0.01);
}

TEST(Rule, FreshPairsConfirm) {
  const Evidence slower{pairs_of(6, 1.06, 0.01, 1), pairs_of(14, 1.06, 0.01, 2)};
  const CaseJudgement judged = judged_alone(slower);
  EXPECT_EQ(judged.verdict, Verdict::slower);
  EXPECT_LE(judged.p, 0.005);
  EXPECT_NEAR(judged.ratio, 1.06, 0.02);
  // What only the first pairs show is not believed.
  EXPECT_NE(judged_alone({pairs_of(6, 1.06, 0.01, 1), pairs_of(14, 1, 0.01, 2)}).verdict, Verdict::slower);
  EXPECT_NE(judged_alone({pairs_of(6, 1.06, 0.01, 1), {}}).verdict, Verdict::slower);
}

TEST(Rule, ArmsExchangedTurnSlowIntoFast) {
  for (uint64_t draw = 0; draw < 200; ++draw) {
    const double ratio = 1 + 0.1 * random_uniform(6, draw, 0);
    Evidence evidence{pairs_of(6, ratio, 0.02, 2 * draw), pairs_of(20, ratio, 0.02, 2 * draw + 1)};
    const CaseJudgement there = judged_alone(evidence);
    for (auto* pairs : {&evidence.first, &evidence.second})
      for (Pair& pair : *pairs) std::swap(pair.base, pair.head);
    const CaseJudgement back = judged_alone(evidence);
    EXPECT_NEAR(there.ratio * back.ratio, 1, 1e-12);
    EXPECT_NEAR(there.p, back.p, 1e-12);
    EXPECT_EQ(there.verdict == Verdict::slower, back.verdict == Verdict::faster) << draw;
  }
}

// What is said to be seen by 19 of 20 gates, for quiet and rough cases, alone and among others.
TEST(Rule, SeesWhatItSaysToSee) {
  for (const double deviation : {0.01, 0.03, 0.08})
    for (const size_t cases : {size_t{1}, size_t{12}}) {
      const double log_visible = std::log1p(min_detectable_change(deviation, cases, Rule()));
      int found = 0;
      constexpr int kGates = 200;
      for (uint64_t gate = 0; gate < kGates; ++gate) {
        uint64_t at = 0;
        const auto measure = [&](int, const std::vector<bool>&) {
          std::vector<Pair> pairs(cases);
          for (Pair& pair : pairs) pair.head = deviation * random_normal(11, gate, at++);
          pairs.front().head += log_visible;
          return pairs;
        };
        found += run_gate(cases, Rule(), measure).judged.front().verdict == Verdict::slower;
      }
      EXPECT_GE(found, kGates * 9 / 10) << deviation << " " << cases;
    }
}

TEST(Rule, NeedsWhatItSaysToNeed) {
  const CaseJudgement unsure = judged_alone({pairs_of(6, 1.005, 0.03, 8), {}});
  ASSERT_EQ(unsure.verdict, Verdict::ambiguous);
  ASSERT_GT(unsure.pairs_needed, 6);
  EXPECT_EQ(judged_alone({pairs_of(unsure.pairs_needed * 2, 1.005, 0.03, 9), {}}).verdict, Verdict::same);
}

// A quarter of the head's launches lie 20 % higher: half of delta in the trimmed mean, a mode of its own.
TEST(Rule, AModeOfTheHeadAloneIsSlower) {
  Evidence evidence{pairs_of(6, 1, 0.005, 3), pairs_of(30, 1, 0.005, 4)};
  for (size_t i = 0; i < evidence.second.size(); i += 4) evidence.second[i].head += 0.18;
  const CaseJudgement judged = judged_alone(evidence);
  EXPECT_TRUE(judged.bimodal);
  EXPECT_EQ(judged.slow_head, 8);
  EXPECT_EQ(judged.slow_base, 0);
  EXPECT_EQ(judged.verdict, Verdict::slower);
  // In both arms it says nothing.
  for (size_t i = 1; i < evidence.second.size(); i += 4) evidence.second[i].base += 0.18;
  EXPECT_NE(judged_alone(evidence).verdict, Verdict::slower);
}

TEST(Rule, TenLaunchesOfAnArmAreNeededForModes) {
  Evidence evidence{pairs_of(3, 1, 0.005, 3), pairs_of(6, 1, 0.005, 4)};
  for (size_t i = 0; i < 3; ++i) evidence.second[i].head += 0.18;
  EXPECT_FALSE(judged_alone(evidence).bimodal);
}

TEST(Gate, EndsAfterTheFirstStageWithoutSuspects) {
  const auto measure = [](int pair, const std::vector<bool>& wanted) {
    EXPECT_EQ(wanted, (std::vector{true, true}));
    return std::vector<Pair>{pairs_of(1, 1, 0.002, static_cast<uint64_t>(pair)).front(),
                             pairs_of(1, 1, 0.002, static_cast<uint64_t>(pair) + 100).front()};
  };
  EXPECT_EQ(run_gate(2, Rule(), measure).pairs, 6);
}

TEST(Gate, MeasuresSuspectsAloneAndCountsNoNan) {
  int told = 0;
  const auto measure = [&](int pair, const std::vector<bool>& wanted) {
    EXPECT_EQ(wanted[0], pair < 6);
    std::vector<Pair> pairs{{0, 0}, {0, 0.08}};
    if (!wanted[0]) pairs[0] = {NAN, NAN};
    if (pair == 7) pairs[1] = {0, NAN};  // a launch that was invalid
    return pairs;
  };
  const auto tell = [&](int more, const std::vector<bool>& suspects) {
    told = more;
    EXPECT_EQ(suspects, (std::vector{false, true}));
  };
  const GateOutcome outcome = run_gate(2, Rule(), measure, tell);
  EXPECT_GE(told, 12);
  EXPECT_EQ(outcome.pairs, 6 + told);
  EXPECT_EQ(outcome.evidence[1].second.size(), static_cast<size_t>(told) - 1);
  EXPECT_EQ(outcome.judged[0].verdict, Verdict::same);
  EXPECT_EQ(outcome.judged[1].verdict, Verdict::slower);
}

// The claims of docs/ci.md, on fewer gates. The other rules are there to show that the machines are hard.
TEST(Study, TheRuleIsSeldomWrongWhereOthersAre) {
  for (const StudyRow& row : study_rules(Rule(), 8, 150, {0, 0.10}, 3)) {
    const double share = static_cast<double>(row.found) / static_cast<double>(row.gates);
    if (row.rule == GateRule::ours) {
      EXPECT_LE(share, row.slowdown == 0 ? 0.02 : 1) << row.noise;
      EXPECT_GE(share, row.slowdown == 0 ? 0 : 0.95) << row.noise;
    } else if (row.rule == GateRule::welch && row.slowdown == 0 && row.noise == "even") {
      EXPECT_GE(share, 0.1);
    }
  }
}

}  // namespace
}  // namespace moe::regress
