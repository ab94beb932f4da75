// docs/reproduction.md is what the command writes, and every table says what it must.
#include "reproduce/page.h"

#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "moe/base/check.h"
#include "reproduce/report_data.h"
#include "verbs/paper_tables.h"

namespace moe::reproduce {
namespace {

class Page : public testing::Test {
 protected:
  static void SetUpTestSuite() { reports_ = new std::vector<Report>(all_reports()); }
  static void TearDownTestSuite() { delete reports_; }
  static inline std::vector<Report>* reports_;
};

TEST_F(Page, IsTheOneInDocs) {
  std::ostringstream text;
  text << std::ifstream(MOETUNE_SOURCE_DIR "/docs/reproduction.md").rdbuf();
  const std::string page = page_of(*reports_);
  std::istringstream found(text.str()), expected(page);
  std::string a, b;
  for (int line = 1; std::getline(expected, b); ++line) {
    std::getline(found, a);
    ASSERT_EQ(a, b) << "docs/reproduction.md:" << line
                    << ": write it anew by ./moetune reproduce --all --write docs/reproduction.md";
  }
  EXPECT_EQ(text.str().size(), page.size());
}

TEST_F(Page, LinesHaveAtMost120Columns) {
  std::istringstream page(page_of(*reports_));
  for (std::string line; std::getline(page, line);) EXPECT_LE(line.size(), 120U) << line;
}

TEST_F(Page, EveryTableComparesAndSaysItsConventions) {
  std::set<std::string> keys;
  for (const Report& report : *reports_) {
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
  for (const verbs::PaperTable& table : verbs::kPaperTables)
    EXPECT_TRUE(keys.contains(std::string(table.name))) << table.name;
}

TEST_F(Page, AssumedReportsListWhatTheyAssume) {
  for (const Report& report : *reports_) EXPECT_EQ(report.assumed.empty(), report.assuming.empty()) << report.key;
}

TEST_F(Page, RecordsHaveKeysOfTheirOwn) {
  std::set<std::string> keys;
  for (const Report& report : *reports_)
    for (const CaseRecord& record : records_of(report)) EXPECT_TRUE(keys.insert(record.key).second) << record.key;
}

}  // namespace
}  // namespace moe::reproduce
