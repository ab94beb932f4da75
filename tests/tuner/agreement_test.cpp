// Speedups, ranking and errors of measured layers, on times made up so that each figure is known.
#include <gtest/gtest.h>

#include "tests/tuner/made_up_runs.h"
#include "tuner/verify/verified_report.h"

namespace moe::tuner {
namespace {

commands::LayerOutcome of(const std::string& layer, std::vector<CaseRecord> runs, std::vector<CaseRecord> tried = {}) {
  commands::LayerOutcome outcome{layer, {}, std::move(tried)};
  for (CaseRecord& record : runs) outcome.runs.push_back({std::move(record)});
  return outcome;
}

TEST(Agreement, SpeedupIsTheMeanOfRatiosOverLayersThatHaveBoth) {
  const std::vector<commands::LayerOutcome> outcomes{
      of("first", {run("tutel", 4, 6), run("fsmoe", 2, 2, 3)}), of("second", {run("tutel", 3, 3), run("fsmoe", 3, 3)}),
      of("third", {failed(run("tutel", 9, 99), CaseStatus::invalid, "slow"), run("fsmoe", 1, 1, 5)})};
  const MeasuredSchedule fsmoe = measured_schedule(outcomes, "fsmoe");
  EXPECT_EQ(fsmoe.layers, 2);
  EXPECT_DOUBLE_EQ(fsmoe.measured, 2);
  EXPECT_DOUBLE_EQ(fsmoe.predicted, 1.5);
  EXPECT_EQ(fsmoe.differing_degrees, 1);
  EXPECT_DOUBLE_EQ(measured_schedule(outcomes, "tutel").measured, 1);
  EXPECT_EQ(measured_schedule(outcomes, "lina").layers, 0);
}

TEST(Agreement, CountsRunsOnSlowCores) {
  std::vector<CaseRecord> runs{run("a", 1, 1), run("b", 1, 9), run("c", 1, 3)};
  runs[1].summary.set("core_slowdown", 1.5);
  runs[2].summary.set("core_slowdown", 1.05);
  const Agreement a = figures_of({of("one", runs)}).agreement;
  EXPECT_EQ(a.on_slow_cores, 1);
  EXPECT_EQ(a.worst_slowdown, 1.5);
  EXPECT_EQ(a.fast_median, 1);
  EXPECT_EQ(a.fast_worst, 2);
  EXPECT_EQ(figures_of({of("one", {run("a", 1, 1)})}).agreement.worst_slowdown, 1);
}

TEST(Agreement, TauCountsClearPairsAlone) {
  // b over a is as predicted, c over a and c over b are not; d is too close to a, and 2 % from no other by less.
  const std::vector<commands::LayerOutcome> outcomes{
      of("one", {run("a", 1, 1), run("b", 2, 2), run("c", 3, 0.5), run("d", 1.015, 0.9)})};
  const Ranking r = ranking(outcomes);
  EXPECT_EQ(r.pairs, 5);  // a b, a c, b c, b d, c d
  EXPECT_EQ(r.agree, 2);  // a b, b d
  EXPECT_DOUBLE_EQ(r.tau(), (2.0 - 3.0) / 5);
  EXPECT_EQ(Ranking{}.tau(), 0);
}

// Forward seconds by degree, then backward seconds.
CaseRecord tried(int degree, double forward_s, double backward_s) {
  CaseRecord record;
  record.degree_forward = record.degree_backward = degree;
  record.summary = {{"forward_s", forward_s}, {"backward_s", backward_s}, {"total_s", forward_s + backward_s}};
  record.prediction = {{"forward_s", 1.0}, {"backward_s", 1.0 + degree}, {"total_s", 2.0 + degree}};
  return record;
}

TEST(Agreement, BestDegreesAreThoseOfTheShortestPhases) {
  const std::vector<commands::LayerOutcome> outcomes{
      of("apart", {}, {tried(1, 4, 3), tried(2, 2, 5)}),       // best 2 and 1: 5, equal 7
      of("hardly", {}, {tried(1, 2, 3), tried(2, 1.999, 5)}),  // best 2 and 1: 4.999, equal 5
      of("equal", {}, {tried(1, 2, 3), tried(2, 3, 5)}),       // best 1 and 1
      of("broken", {}, {failed(tried(1, 2, 3), CaseStatus::invalid, ""), tried(2, 1, 5)}),
      of("untried", {run("tutel", 1, 1)})};
  const BestDegrees measured = best_degrees(outcomes, Times::measured);
  EXPECT_EQ(measured.layers, 3);
  EXPECT_EQ(measured.differing_degrees, 2);
  EXPECT_EQ(measured.apart_by_1_percent, 1);
  EXPECT_EQ(best_degrees(outcomes, Times::predicted).differing_degrees, 0);
}

TEST(Agreement, TimesOfALayerCountOnceAndRepeatsOfEachRun) {
  const auto timed = [](double timed_s, int64_t repeats) {
    CaseRecord record = run("a", 1, 1);
    record.summary.set("proving_wall_s", 1.0);
    record.summary.set("unpaced_wall_s", 0.5);
    record.summary.set("timed_wall_s", timed_s);
    record.summary.set("repeats", repeats);
    return record;
  };
  const std::vector<commands::LayerOutcome> outcomes{of("one", {timed(4, 1), timed(4, 0)}, {timed(4, 2)}),
                                                     of("two", {timed(7, 0), run("tutel", 1, 1)}),
                                                     of("three", {run("a", 1, 1)})};
  const RunTime t = run_time(outcomes);
  EXPECT_EQ(t.proving_s, 2);
  EXPECT_EQ(t.unpaced_s, 1);
  EXPECT_EQ(t.timed_s, 11);
  EXPECT_EQ(t.repeats, 3);
  EXPECT_EQ(t.longest, &outcomes[1].runs[0].record);
  EXPECT_EQ(run_time({}).longest, nullptr);
}

// An invalid run, whose time is far off, changes no figure, and is named.
TEST(Agreement, NoFigureCountsARunThatIsNotSound) {
  CaseRecord without_time = run("c", 1, 1);
  without_time.summary = {};
  const std::vector<commands::LayerOutcome> sound{
      of("one", {run_of_passes("tutel", 4, {4, 4, 4}), run_of_passes("fsmoe", 2, {2, 2.2, 2.4})}),
      of("two", {run_of_passes("tutel", 3, {3, 3, 3})})};
  std::vector<commands::LayerOutcome> outcomes = sound;
  const CaseRecord slow = failed(run_of_passes("fsmoe", 1, {9, 99, 999}), CaseStatus::invalid, "90 % outlasted");
  outcomes[0].runs.push_back({failed(run_of_passes("ds-moe", 1, {99, 99, 99}), CaseStatus::invalid, "slow")});
  outcomes[1].runs.push_back({slow});
  outcomes[1].runs.push_back({failed(without_time, CaseStatus::unsupported, "no")});
  outcomes[1].tried = {slow};
  const RunFigures all = figures_of(outcomes), kept = figures_of(sound);
  EXPECT_EQ(all.layers, 2);
  EXPECT_EQ(all.agreement.sound, 3);
  EXPECT_EQ(all.agreement.runs, 6) << "what is unsupported never was to run";
  EXPECT_NEAR(all.agreement.worst_error, 0.1, 1e-12);
  EXPECT_EQ(all.agreement.median_error, kept.agreement.median_error);
  EXPECT_EQ(all.ranking.pairs, 1);
  EXPECT_EQ(all.ranking.agree, 1);
  EXPECT_EQ(all.errors.total, kept.errors.total);
  EXPECT_EQ(all.choice.layers, 1);
  EXPECT_EQ(all.choice.mean, kept.choice.mean);
  EXPECT_EQ(all.best_measured.layers, 0);
  EXPECT_EQ(measured_schedule(outcomes, "fsmoe").layers, 1);
  EXPECT_EQ(all.left_out_reasons,
            (std::map<std::string, int>{{"invalid: too many tasks took longer than their modelled time", 3},
                                        {"unsupported: no", 1}}));
  EXPECT_TRUE(kept.left_out_reasons.empty());
}

TEST(Agreement, FewerThanHalfOfTheRunsSoundIsDoubtful) {
  const auto doubtful = [](int sound, int invalid, int unsupported) {
    std::vector<CaseRecord> runs(sound, run("a", 1, 1));
    for (int i = 0; i < invalid; ++i) runs.push_back(failed(run("b", 1, 1), CaseStatus::invalid, ""));
    for (int i = 0; i < unsupported; ++i) runs.push_back(failed(run("c", 1, 1), CaseStatus::unsupported, ""));
    return figures_of({of("one", runs)}).is_doubtful();
  };
  EXPECT_FALSE(doubtful(3, 3, 0));
  EXPECT_TRUE(doubtful(3, 4, 0));
  EXPECT_FALSE(doubtful(1, 0, 9));
  EXPECT_TRUE(doubtful(0, 0, 2));
}

}  // namespace
}  // namespace moe::tuner
