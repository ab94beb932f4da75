// docs/reproduction.md and docs/reproduction/ are what the command writes, and every table says what it must.
#include "commands/reproduce/page.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "commands/reproduce/report.h"
#include "commands/shared/printed.h"
#include "moe/base/check.h"

namespace moe::reproduce {
namespace {

class Page : public testing::Test {
 protected:
  static void SetUpTestSuite() { reports = new std::vector<Report>(all_reports()); }
  static void TearDownTestSuite() { delete reports; }
  static inline std::vector<Report>* reports;
};

const std::filesystem::path kFile = MOETUNE_SOURCE_DIR "/docs/reproduction.md";
const std::filesystem::path kFolder = MOETUNE_SOURCE_DIR "/docs/reproduction";

void expect_same_lines(const std::string& text, const MarkdownPage& page) {
  std::istringstream found(text), expected(page.text);
  std::string a, b;
  for (int line = 1; std::getline(expected, b); ++line) {
    std::getline(found, a);
    ASSERT_EQ(a, b) << page.path.string() << ':' << line
                    << ": write it anew by ./moetune reproduce --all --write docs/reproduction.md";
  }
  EXPECT_EQ(text.size(), page.text.size()) << page.path;
}

TEST_F(Page, PagesAreThoseInDocs) {
  std::set<std::filesystem::path> written;
  for (const MarkdownPage& page : pages_of(*reports, kFile, kFolder)) {
    std::ostringstream text;
    text << std::ifstream(page.path).rdbuf();
    expect_same_lines(text.str(), page);
    written.insert(page.path);
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    EXPECT_TRUE(written.contains(entry.path())) << entry.path() << " is written by no command";
}

TEST_F(Page, EveryReportIsOnOnePaperPageThatTheSummaryLinksTo) {
  const std::vector<MarkdownPage> pages = pages_of(*reports, "out/all.md", "out/all");
  EXPECT_EQ(pages.front().path, "out/all.md");
  for (size_t i = 1; i < pages.size(); ++i) {
    EXPECT_NE(pages.front().text.find("(all/" + pages[i].path.filename().string() + ")"), std::string::npos);
    EXPECT_NE(pages[i].text.find("(../all.md)"), std::string::npos) << pages[i].path;
  }
  for (const Report& report : *reports) {
    const std::string heading = "\n## " + name_of(report) + ": ";
    EXPECT_EQ(std::ranges::count_if(
                  pages, [&](const MarkdownPage& page) { return page.text.find(heading) != std::string::npos; }),
              1)
        << heading;
  }
}

TEST_F(Page, LinesHaveAtMost120Columns) {
  for (const MarkdownPage& page : pages_of(*reports, kFile, kFolder)) {
    std::istringstream text(page.text);
    for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 120U) << line;
  }
}

TEST_F(Page, EveryTableComparesAndSaysItsConventions) {
  std::set<std::string> keys;
  for (const Report& report : *reports) {
    keys.insert(report.key);
    EXPECT_FALSE(report.source.empty()) << report.key;
    EXPECT_FALSE(report.conventions.empty()) << report.key;
    size_t figures = 0, open = 0;
    for (const Comparison& c : report.comparisons)
      for (const Figure& f : c.figures) ++figures, open += !f.ours;
    EXPECT_GT(figures, 0U) << report.key;
    if (open > 0) {
      EXPECT_FALSE(report.not_computable.empty()) << report.key << " leaves figures open without a word";
    }
  }
  for (const commands::PaperTable& table : commands::kPaperTables)
    EXPECT_TRUE(keys.contains(std::string(table.name))) << table.name;
}

TEST_F(Page, MeansOfWholeIterationsAreThoseOfTheirCases) {
  const Report& report = *std::ranges::find(*reports, "beyond", &Report::key);
  const std::vector<Figure>& means = report.comparisons[0].figures;  // cluster, memory, m
  const std::vector<Figure>& cases = report.comparisons[1].figures;  // cluster, case, m, memory
  EXPECT_EQ(means.size(), 5U * 3 * 4 + 4U * 3 * 3);                  // on one stage, on several
  for (const Figure& mean : means) {
    double product = 1;
    int count = 0;
    for (const Figure& figure : cases) {
      if (std::vector{figure.labels[0], figure.labels[3], figure.labels[2]} != mean.labels) continue;
      EXPECT_GE(*figure.ours, 1) << figure.labels[1];
      product *= *figure.ours;
      ++count;
    }
    EXPECT_NEAR(std::pow(product, 1.0 / count), *mean.ours, 1e-9);
    EXPECT_GT(*mean.ours, 1) << mean.labels[0] << ' ' << mean.labels[2];
  }
  for (size_t table : {3, 4})  // of each case: own, two, own with parts, bound
    for (const std::vector<std::string>& row : report.tables.at(table).rows) {
      EXPECT_LE(row[5], row[7]) << row[0] << ' ' << row[1];
      for (size_t gain : {5, 6, 7}) EXPECT_LE(row[gain], row[8]) << row[0] << ' ' << row[1];
    }
}

TEST_F(Page, AssumedReportsListWhatTheyAssume) {
  for (const Report& report : *reports) EXPECT_EQ(report.assumed.empty(), report.assuming.empty()) << report.key;
}

TEST_F(Page, RecordsHaveKeysOfTheirOwn) {
  std::set<std::string> keys;
  for (const Report& report : *reports)
    for (const CaseRecord& record : records_of(report)) EXPECT_TRUE(keys.insert(record.key).second) << record.key;
}

}  // namespace
}  // namespace moe::reproduce
