// Series of records without changes being looked for, and what is no history.
#include <cmath>
#include <nlohmann/json.hpp>

#include "commands/regress/history.h"
#include "moe/base/check.h"
#include "tests/commands/cli/program.h"
#include "tests/commands/regress/compare_files.h"

namespace moe::regress {
namespace {

Run run_at(int hour, std::vector<CaseRecord> cases) {
  Run run;
  run.header = made_header();
  run.header.started = fmt::format("2025-01-01T{:02}:00:00Z", hour);
  run.cases = std::move(cases);
  return run;
}

std::vector<Series> series(const std::vector<Run>& runs, const std::string& by = "family") {
  CaseFilter all({});
  return series_of(runs, all, by);
}

TEST(HistorySeries, OfTheSameCasesAreGeometricMeans) {
  const auto found = series(
      {run_at(2, {made_op("a", 8), made_op("a2", 1)}), run_at(1, {made_op("a", 2), made_op("a2", 2)})}, "backend");
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].points.size(), 2U);
  EXPECT_EQ(found[0].points[0].started, "2025-01-01T01:00:00Z") << "by time";
  EXPECT_NEAR(found[0].points[0].value_s, 2, 1e-9);
  EXPECT_NEAR(found[0].points[1].value_s, std::sqrt(8.0), 1e-9);
}

TEST(HistorySeries, ACaseThatComesMovesNoValue) {
  std::vector<moe::Run> runs;
  for (int i = 0; i < 9; ++i) {
    runs.push_back(run_at(i, {made_layer("A", "fsmoe", 1)}));
    if (i > 4) runs.back().cases.push_back(made_layer("B", "fsmoe", 100));
    if (i == 7) runs.back().cases.erase(runs.back().cases.begin());
  }
  const auto found = series(runs);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].cases, 2);
  for (const SeriesPoint& p : found[0].points) EXPECT_NEAR(p.value_s, 10, 1e-6) << p.started;
}

TEST(HistorySeries, WhatIsNoTimeIsNotInThem) {
  CaseRecord wrong = made_op("a", 1), nan = made_op("a", std::nan("")), other = made_op("a", 1);
  wrong.status = CaseStatus::wrong;
  EXPECT_TRUE(series({run_at(0, {wrong}), run_at(1, {nan})}).empty());
  other.parameters.set("dtype", "bfloat16");
  EXPECT_EQ(series({run_at(0, {other}), run_at(1, {made_op("a", 1)})}).size(), 2U) << "another case";
  EXPECT_THROW(series({run_at(0, {made_op("a", 1)})}, "nosuch"), BadInput);
}

class HistoryVerb : public RecordFiles {
 protected:
  Printed history(std::vector<std::string> words) const {
    words.insert(words.begin(), "history");
    return run_program(MOETUNE_PROGRAM, words, folder_);
  }
};

TEST_F(HistoryVerb, FewRunsNeedNoPython) {
  file("deep/down/a.jsonl",
       lines_of(made_header(), {made_op("alltoall", 2)}) + lines_of(made_header(), {made_op("alltoall", 2)}));
  file("b.jsonl", {made_op("alltoall", 2)});
  const Printed text = history({"."});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("op alltoall      1     3  2.00 s  0123456789ab  too few runs"), std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("made up, 8 cores, 16.00 GiB, x86_64, threads 2\n"), std::string::npos) << text.out;
  const auto json = nlohmann::json::parse(history({".", "--json"}).out);
  EXPECT_EQ(json["series"].at(0)["points"].size(), 3U);
  EXPECT_TRUE(json["series"].at(0)["changes"].empty());
}

TEST_F(HistoryVerb, AFileThatIsTornIsPassedOverWithAWarning) {
  file("good.jsonl", {made_op("alltoall", 2)});
  file("empty.jsonl", std::string());
  file("bad.jsonl", "no records\n");
  const Printed printed = history({"."});
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_NE(printed.err.find("skipped a file: ./bad.jsonl:1: "), std::string::npos) << printed.err;
  EXPECT_EQ(std::ranges::count(printed.err, '\n'), 1);
}

TEST_F(HistoryVerb, WhatIsNoHistoryIsBadInput) {
  EXPECT_EQ(history({}).exit_code, 2);
  EXPECT_EQ(history({"nosuch"}).exit_code, 2);
  EXPECT_EQ(history({"."}).exit_code, 2) << "empty";
  file("a.jsonl", {made_op("alltoall", std::nan(""))});
  const Printed none = history({"."});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("no measured case in 1 runs"), std::string::npos) << none.err;
  file("b.jsonl", {made_op("alltoall", 1)});
  EXPECT_EQ(history({".", "--filter", "op=nosuch"}).exit_code, 2);
  EXPECT_EQ(history({".", "--by", "nosuch"}).exit_code, 2);
  EXPECT_EQ(history({"a.jsonl"}).exit_code, 2) << "no folder";
}

}  // namespace
}  // namespace moe::regress
