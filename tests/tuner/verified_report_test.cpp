// What `tune` says of runs of which some are not sound.
#include "tuner/verify/verified_report.h"

#include <gtest/gtest.h>

#include "tests/tuner/made_up_runs.h"

namespace moe::tuner {
namespace {

CaseRecord of_layer(const std::string& layer, CaseRecord record) {
  record.parameters.set("layer", layer);
  record.summary.set("worst_error", 0.0);
  return record;
}

// Three layers; on `sound` of them fsmoe kept its rules.
VerifiedResults results_with(int sound) {
  VerifiedResults results;
  results.cluster = find_profile("testbed-b");
  results.schedules = results.verified = {&find_schedule("tutel"), &find_schedule("fsmoe")};
  results.grid.layers = {{"one", {}, {}}};
  for (int i = 0; i < 3; ++i) {
    const std::string layer = fmt::format("layer {}", i);
    CaseRecord fsmoe = of_layer(layer, run("fsmoe", 2, i < sound ? 2 : 99));
    if (i >= sound) fsmoe = failed(fsmoe, CaseStatus::invalid, "90 % outlasted");
    results.outcomes.push_back({layer, {}, {}});
    results.outcomes.back().runs.push_back({of_layer(layer, run("tutel", 3, 3))});
    results.outcomes.back().runs.push_back({std::move(fsmoe)});
  }
  results.rows = commands::sweep({results.cluster, results.grid, results.schedules, {}, {}});
  return results;
}

std::string said_of(const VerifiedResults& results) { return text_of(results, figures_of(results.outcomes)); }

TEST(VerifiedReport, SaysOfHowManyLayersAMeanIs) {
  const std::string text = said_of(results_with(1));
  EXPECT_NE(text.find("measured: the 3 verified ones, or as many of them as (N) says)"), std::string::npos) << text;
  EXPECT_NE(text.find(" 1.500x (1) "), std::string::npos) << text;
  EXPECT_EQ(text.find("1.000x ("), std::string::npos) << "tutel ran well on all of them: " << text;
  EXPECT_NE(text.find("2 runs left out of means, errors and ranking: invalid: too many"), std::string::npos) << text;
  EXPECT_NE(text.find("0.00 % at worst"), std::string::npos) << text;
  EXPECT_NE(text.find("as predicted in 1 of 1 pairs"), std::string::npos) << text;
  EXPECT_EQ(text.find("without a time"), std::string::npos) << text;
}

TEST(VerifiedReport, SaysNothingOfWhatIsWhole) {
  const std::string text = said_of(results_with(3));
  EXPECT_NE(text.find("measured: the 3 verified ones)"), std::string::npos) << text;
  EXPECT_NE(text.find(" 1.500x "), std::string::npos) << text;
  for (const char* of_some : {"1.500x (", "left out"}) EXPECT_EQ(text.find(of_some), std::string::npos) << text;
}

TEST(VerifiedReport, TellsRunsOnSlowCoresFromTheOthers) {
  VerifiedResults results = results_with(3);
  results.emulated = false;
  EXPECT_EQ(said_of(results).find("slow cores"), std::string::npos);
  CaseRecord& slow = results.outcomes[1].runs[1].record;
  slow.summary.set("total_s", 3.0);
  slow.summary.set("core_slowdown", 1.5);
  const std::string text = said_of(results);
  EXPECT_NE(text.find("1 of 6 runs were timed on slow cores: a probe took up to 1.50 times its best time"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("50.00 % at worst"), std::string::npos) << text;
  const Json json = json_of(results, figures_of(results.outcomes));
  EXPECT_EQ(json["slow_cores"]["runs"], 1);
  EXPECT_EQ(json["slow_cores"]["worst"], 1.5);
  EXPECT_EQ(json["slow_cores"]["others_worst_error"], 0.0);
  EXPECT_NE(text.find("the others were 0.00 % off in the median, 0.00 % at worst\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("prices were measured on slow cores"), std::string::npos) << text;
  results.prices_slowdown = 1.8;
  EXPECT_NE(said_of(results).find("prices were measured on slow cores: a probe took 1.80 times its best time"),
            std::string::npos);
}

TEST(VerifiedReport, JsonHasTheSameFigures) {
  const VerifiedResults results = results_with(1);
  const Json json = json_of(results, figures_of(results.outcomes));
  EXPECT_EQ(json["summary"][1]["measured_layers"], 1);
  EXPECT_EQ(json["sound_runs"], 4);
  EXPECT_EQ(json["doubtful"], false);
  EXPECT_EQ(json["ranking_pairs"], 1);
  EXPECT_EQ(json["worst_error"], 0.0);
  EXPECT_EQ(json["left_out"]["invalid: too many tasks took longer than their modelled time"], 2);
  EXPECT_EQ(json["verified"][5]["measured_s"], 99.0) << "what was measured is still there";
}

}  // namespace
}  // namespace moe::tuner
