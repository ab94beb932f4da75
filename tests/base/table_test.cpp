// Tables and lines on outputs of some width.
#include "moe/base/table.h"

#include <cstdlib>
#include <fmt/format.h>
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
  table.hide_first({"second", "unknown", "first"}, "--all");
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
  table.hide_first({"third"}, "--all");
  EXPECT_EQ(table.text(14), folded.substr(0, folded.rfind("\n\n") + 1) + "  not shown: third (--all)\n");
}

TEST(Table, JoinsRowsThatAreEqual) {
  Table table({"name", "first", "second"});
  for (const auto& row : std::vector<std::vector<std::string>>{
           {"a", "1", "22.5"}, {"b", "2", "22.5"}, {"c", "1", "22.5"}, {"d", "2", "22.6"}, {"e", "1", "22.5"}})
    table.add(row);
  const auto has_rows = [&](std::optional<int> columns, std::string_view names) {
    std::string text = table.text(columns);
    for (const char name : std::string_view("abcde"))
      EXPECT_EQ(text.find(fmt::format("\n  {}  ", name)) != std::string::npos, names.find(name) != std::string::npos)
          << name << '\n'
          << text;
    return text;
  };
  EXPECT_EQ(has_rows({}, "abcde").find("equal"), std::string::npos);
  table.join_equal_rows("--all");
  EXPECT_TRUE(has_rows({}, "abd").ends_with("\n  equal: c, e as a (--all)\n"));
  EXPECT_TRUE(has_rows(19, "abd").ends_with("\n  equal: c, e as a\n    (--all)\n"));
  EXPECT_EQ(has_rows(kWidened, "abcde").find("equal"), std::string::npos);
  table.hide_first({"second"}, "--all");
  EXPECT_TRUE(has_rows(16, "abd").ends_with("\n  equal: c, e as\n    a (--all)\n  not shown: second (--all)\n"));
}

TEST(Lines, BreakBetweenWordsUnlessTheyAreCommands) {
  ::setenv("COLUMNS", "40", 1);
  EXPECT_EQ(line_within_columns("       indented words stay behind their indent"),
            "       indented words stay behind their\n  indent");
  EXPECT_EQ(text_within_columns("WHY    aaaaaaaaaa bbbbbbbbbb cccccccccc dddddddddd eeeeeeeeee ffffffffff\nend\n", 7),
            "WHY    aaaaaaaaaa bbbbbbbbbb cccccccccc\n       dddddddddd eeeeeeeeee ffffffffff\nend\n");
  const std::string command = "NEXT   ./moetune simulate --cluster testbed-b --schedule fsmoe\n";
  EXPECT_EQ(text_within_columns(command), command);
  widen_output();
  EXPECT_EQ(output_columns(), 1000000);
  ::unsetenv("COLUMNS");
  const std::string word(200, 'x');
  EXPECT_EQ(line_within_columns(word), word);
}

}  // namespace
}  // namespace moe
