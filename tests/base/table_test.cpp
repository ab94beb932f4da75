// Tables and lines on outputs of some width.
#include "moe/base/table.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace moe {
namespace {

Table sample() {
  Table table({"name", "first", "second", "third"});
  table.add({"a", "1", "22.5", "333"});
  return table;
}

TEST(Table, LeavesOutWhatIsLeastImportantAndNamesIt) {
  Table table = sample();
  table.leave_out_first({"second", "unknown", "first"}, "--all");
  const std::string whole =
      "  name  first  second  third\n  ----  -----  ------  -----\n  a         1    22.5    333\n";
  EXPECT_EQ(table.text(std::nullopt), whole);
  EXPECT_EQ(table.text(28), whole);
  const std::string without = "  name  first  third\n  ----  -----  -----\n  a         1    333\n";
  for (const int columns : {27, 20})
    EXPECT_EQ(table.text(columns), without + "  not shown: second (--all)\n") << columns;
  EXPECT_EQ(table.text(19), "  name  third\n  ----  -----\n  a       333\n  not shown: second, first (--all)\n");
}

TEST(Table, WhatStillDoesNotFitGoesOnBelow) {
  const std::string folded =
      "  name  first\n  ----  -----\n  a         1\n\n  name  second\n  ----  ------\n  a       22.5\n\n"
      "  name  third\n  ----  -----\n  a       333\n";
  EXPECT_EQ(sample().text(14), folded);
  Table table = sample();
  table.leave_out_first({"third"}, "--all");
  EXPECT_EQ(table.text(14), folded.substr(0, folded.rfind("\n\n") + 1) + "  not shown: third (--all)\n");
}

TEST(Lines, BreakBetweenWordsUnlessTheyAreCommands) {
  ::setenv("COLUMNS", "40", 1);
  EXPECT_EQ(fitted_line("       indented words stay behind their indent"),
            "       indented words stay behind their\n  indent");
  EXPECT_EQ(fitted_text("WHY    aaaaaaaaaa bbbbbbbbbb cccccccccc dddddddddd eeeeeeeeee ffffffffff\nend\n", 7),
            "WHY    aaaaaaaaaa bbbbbbbbbb cccccccccc\n       dddddddddd eeeeeeeeee ffffffffff\nend\n");
  const std::string command = "NEXT   ./moetune simulate --cluster testbed-b --schedule fsmoe\n";
  EXPECT_EQ(fitted_text(command), command);
  widen_output();
  EXPECT_EQ(output_columns(), 1000000);
  ::unsetenv("COLUMNS");
  const std::string word(200, 'x');
  EXPECT_EQ(fitted_line(word), word);
}

}  // namespace
}  // namespace moe
