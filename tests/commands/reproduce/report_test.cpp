// Reports as text, JSON and records.
#include "commands/reproduce/report.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "commands/reproduce/page.h"
#include "moe/base/check.h"

namespace moe::reproduce {
namespace {

Report sample() {
  Report report{.key = "table", .title = "title", .source = "source"};
  Comparison c{.caption = "caption", .label_names = {"testbed", "op"}};
  c.quantity = kMilliseconds;
  c.figures = {{{"a", "x"}, "one", 2e-3, 3e-3},
               {{"a", "y"}, "one", 4e-3, std::nullopt},
               {{"a", "x"}, "two", 2e-3, 1e-3},
               {{"b", "x"}, "two", std::nullopt, 5e-3}};
  report.comparisons = {c};
  return report;
}

TEST(Report, DifferenceIsOursAgainstThePaper) {
  EXPECT_EQ(difference(1.5, 2.0), "-25.0 %");
  EXPECT_EQ(difference(2.5, 2.0), "+25.0 %");
  EXPECT_EQ(difference(std::nullopt, 2.0), "-");
  EXPECT_EQ(difference(2.0, std::nullopt), "-");
  EXPECT_EQ(difference(2.0, 0.0), "-");
}

TEST(Report, AComparisonHasARowALabelAndAColumnAConvention) {
  const TextTable table = comparison_table(sample().comparisons.front());
  EXPECT_EQ(table.header,
            (std::vector<std::string>{"testbed", "op", "paper, ms", "one", "difference", "two", "difference"}));
  const std::vector<std::vector<std::string>> rows{{"a", "x", "2.00", "3.00", "+50.0 %", "1.00", "-50.0 %"},
                                                   {"a", "y", "4.00", "-", "-", "-", "-"},
                                                   {"b", "x", "-", "-", "-", "5.00", "-"}};
  EXPECT_EQ(table.rows, rows);
}

TEST(Report, AFigureHasAsManyLabelsAsItsComparison) {
  Comparison c = sample().comparisons.front();
  c.figures.front().labels.pop_back();
  EXPECT_THROW(comparison_table(c), WrongResult);
}

TEST(Report, ProseIsBrokenAtBlanksAndKeepsItsWords) {
  const std::string prose =
      "One slowdown of the two networks closes what is left, and averyveryverylongwordthatfitsnowhere stays whole.";
  for (const size_t columns : {20U, 40U, 118U}) {
    std::istringstream lines(wrapped(prose, "- ", columns));
    std::string joined, line;
    for (bool first = true; std::getline(lines, line); first = false) {
      EXPECT_EQ(line.substr(0, 2), first ? "- " : "  ");
      if (line.size() > columns) {
        EXPECT_EQ(line.find(' ', 2), std::string::npos) << line;
      }
      if (!first) joined += ' ';
      joined += line.substr(2);
    }
    EXPECT_EQ(joined, prose);
  }
}

TEST(Report, JsonHasEveryFigureInSeconds) {
  const Json json = to_json(sample());
  ASSERT_EQ(json["figures"].size(), 4U);
  EXPECT_EQ(json["figures"][0]["quantity"], "time_s");
  EXPECT_EQ(json["figures"][0]["paper"], 2e-3);
  EXPECT_EQ(json["figures"][0]["ours"], 3e-3);
  EXPECT_NEAR(json["figures"][0]["difference"].get<double>(), 0.5, 1e-12);
  EXPECT_TRUE(json["figures"][1]["ours"].is_null());
  EXPECT_FALSE(json["figures"][3].contains("difference"));
}

TEST(Report, ARecordAFigureWithThePapersNumberAsItsSummary) {
  const auto records = records_of(sample());
  ASSERT_EQ(records.size(), 4U);
  std::set<std::string> keys;
  for (const CaseRecord& record : records) EXPECT_TRUE(keys.insert(record.key).second) << record.key;
  EXPECT_EQ(records[0].summary.number("time_s", ""), 2e-3);
  EXPECT_EQ(records[0].prediction.number("time_s", ""), 3e-3);
  EXPECT_EQ(records[0].parameters.text("op", ""), "x");
  EXPECT_EQ(records[1].status, CaseStatus::unsupported);
  EXPECT_FALSE(records[1].prediction.has("time_s"));
  EXPECT_FALSE(records[3].summary.has("time_s"));
}

TEST(Report, MarkdownFencesTables) {
  const std::string text = report_text(sample(), ReportStyle::markdown);
  EXPECT_NE(text.find("## table: title\n"), std::string::npos);
  EXPECT_NE(text.find("caption\n\n```text\n"), std::string::npos);
  EXPECT_EQ(report_text(sample(), ReportStyle::terminal).find("```"), std::string::npos);
}

TEST(Report, MarkdownIsAsWideOnANarrowTerminal) {
  const std::string text = report_text(sample(), ReportStyle::markdown);
  const std::string printed = report_text(sample(), ReportStyle::terminal);
  ::setenv("COLUMNS", "40", 1);
  EXPECT_EQ(report_text(sample(), ReportStyle::markdown), text);
  EXPECT_NE(report_text(sample(), ReportStyle::terminal), printed);
  ::unsetenv("COLUMNS");
}

TEST(Page, ListsFormulasThatDifferFromPrint) {
  const std::string page = pages_of({}, "all.md", "all").front().text;
  const size_t section = page.find("## Formulas that differ from print");
  ASSERT_NE(section, std::string::npos);
  for (const char* part : {"Expert Choice", "KeepTopK", "Zhou et al. (2022)", "MoNTA's equation 3", "equation 14"})
    EXPECT_NE(page.find(part, section), std::string::npos) << part;
}

}  // namespace
}  // namespace moe::reproduce
