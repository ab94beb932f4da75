#include "report/columns.h"

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
  EXPECT_EQ(columns.json().dump(), R"({"rows":3,"columns":{"schedule":{"words":["tutel","fsmoe"],"at":[0,1,0]},)"
                                   R"("emulated":{"all":true},"seconds":{"values":[null,0.5,null]}}})");
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
