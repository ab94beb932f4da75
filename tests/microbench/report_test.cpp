// What microbench prints, of records made up.
#include "microbench/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace moe::microbench {
namespace {

CaseRecord collective(double bytes, double seconds) {
  CaseRecord record;
  record.key = fmt::format("op/alltoall/inter/2/{:.0f}", bytes);
  record.parameters = {{"op", "alltoall"},   {"network", "inter"}, {"ranks", 2},
                       {"dtype", "float32"}, {"bytes", bytes},     {"wire_bytes", bytes / 2}};
  record.summary = {{"median_s", seconds}, {"least_s", seconds}, {"most_s", 1.1 * seconds}};
  return record;
}

CaseRecord gemm() {
  CaseRecord record;
  record.key = "op/gemm/float32/2000000000";
  record.emulated = true;
  record.parameters = {{"op", "gemm"}, {"dtype", "float32"}, {"flops", 2e9}};
  record.summary = {{"median_s", 0.5}, {"least_s", 0.5}, {"most_s", 0.5}};
  record.prediction = {{"median_s", 0.4}};
  return record;
}

std::string line_with(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  if (at == std::string::npos) return "";
  const size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

void expect_words(const std::string& line, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE((" " + line + " ").find(" " + word + " "), std::string::npos) << word << " in: " << line;
}

TEST(MicrobenchReport, BandwidthsAreOfTheVolumeAndOfTheWire) {
  MicrobenchResults results;
  results.records = {collective(4e6, 1e-3), gemm()};
  const std::string text = text_of(results);
  expect_words(line_with(text, "4000000"),
               {"alltoall inter", "2", "1000000", "float32", "1000.0", "10.0 %", "4.000", "2.000", "0", "-"});
  expect_words(line_with(text, "2 GFLOP"), {"gemm/float32", "500000.0", "0.0 %", "4.000", "1.2500", "ok"});
  results.checked = false;
  EXPECT_EQ(line_with(text_of(results), "4000000").find(" 0 "), std::string::npos) << "nothing was looked for";
}

TEST(MicrobenchReport, AWrongOpHasItsReasonForTimes) {
  MicrobenchResults results;
  results.records = {collective(8, 1)};
  results.records[0].status = CaseStatus::wrong;
  results.records[0].reason = "3 wrong elements; rank 1, element 0";
  results.records[0].summary = {};
  EXPECT_NE(text_of(results).find("3 wrong elements; rank 1, element 0"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(json_of(results))["ops"][0]["status"], "wrong");
}

TEST(MicrobenchReport, SizesAscendWithinTheirSeries) {
  CaseRecord slowdown;
  slowdown.key = "slowdown/inter/intra";
  std::vector<CaseRecord> records{slowdown, gemm(), collective(1e3, 1), collective(900, 1)};
  sort_by_series(records);
  std::vector<std::string> keys;
  for (const CaseRecord& record : records) keys.push_back(record.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"op/alltoall/inter/2/900", "op/alltoall/inter/2/1000",
                                            "op/gemm/float32/2000000000", "slowdown/inter/intra"}));
}

}  // namespace
}  // namespace moe::microbench
