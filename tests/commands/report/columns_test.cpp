#include "commands/report/columns.h"

#include <cmath>
#include <gtest/gtest.h>

namespace moe::report {
namespace {

TEST(Columns, WriteOnceWhatAllRowsShare) {
  Columns columns;
  for (const char* name : {"tutel", "fsmoe", "tutel"}) {
    columns.add_row();
    columns.set("schedule", name);
    columns.set("emulated", true);
  }
  columns.set(1, "seconds", 0.5);
  EXPECT_EQ(columns.json().dump(), R"({"rows":3,"columns":{"schedule":{"values":["tutel","fsmoe","tutel"]},)"
                                   R"("emulated":{"all":true},"seconds":{"values":[null,0.5,null]}}})");
}

// 2 and "2" are two values; an index behind the 64th takes two digits of every row.
TEST(Columns, NameRepeatedValuesByDigits) {
  for (const int distinct : {3, 64, 65, 5000}) {
    Columns columns;
    std::vector<Json> expected;
    for (int row = 0; row < 4 * distinct; ++row) {
      const int value = row * 7 % distinct;
      expected.push_back(value == 0 ? Json() : value == 1 ? Json("2") : Json(value));
      columns.add_row();
      columns.set("value", expected.back());
    }
    const Json found = columns.json()["columns"]["value"];
    const std::string at = found.at("at");
    const size_t width = distinct <= 64 ? 1 : distinct <= 64 * 64 ? 2 : 3;
    ASSERT_EQ(at.size(), width * expected.size());
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t row = 0; row < expected.size(); ++row) {
      size_t index = 0;
      for (size_t i = 0; i < width; ++i) index = index * 64 + digits.find(at[row * width + i]);
      EXPECT_EQ(found.at("words").at(index), expected[row]) << distinct << " distinct values, row " << row;
    }
  }
}

TEST(Columns, OfNoRowsAreEmpty) { EXPECT_EQ(Columns().json().dump(), R"({"rows":0,"columns":{}})"); }

TEST(Rounded, KeepsNineDigitsAndNoNumberIsNull) {
  EXPECT_EQ(rounded(0.12345678949).dump(), "0.123456789");
  EXPECT_EQ(rounded(1.0 / 3 * 1e-6).dump(), "3.33333333e-07");
  EXPECT_EQ(rounded(17).dump(), "17");
  EXPECT_TRUE(rounded(std::nan("")).is_null());
}

}  // namespace
}  // namespace moe::report
