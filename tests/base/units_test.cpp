#include "moe/base/units.h"

#include <array>
#include <gtest/gtest.h>

#include "moe/base/registry.h"
#include "tests/base/error_of.h"

namespace moe {
namespace {

TEST(Units, ElementTypesHaveNamesAndSizes) {
  EXPECT_EQ(bytes_of(DType::float32), 4);
  EXPECT_EQ(bytes_of(DType::float16), 2);
  EXPECT_EQ(bytes_of(DType::bfloat16), 2);
  EXPECT_EQ(bytes_of(DType::float64), 8);
  for (const auto dtype : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
    EXPECT_EQ(dtype_from(name_of(dtype), "--dtype"), dtype);
}

TEST(Units, UnknownElementTypeListsTheKnownOnes) {
  const auto message = error_of<BadInput>([] { dtype_from("half", "--dtype"); });
  EXPECT_EQ(message, "--dtype: unknown 'half', expected one of: float32, float16, bfloat16, float64");
}

TEST(Units, PeopleReadSeconds) {
  EXPECT_EQ(human_seconds(87.2e-6), "87.2 us");
  EXPECT_EQ(human_seconds(1.25e-3), "1.250 ms");
  EXPECT_EQ(human_seconds(3.1), "3.10 s");
  EXPECT_EQ(human_seconds(125), "2m05s");
}

TEST(Units, PeopleReadBytes) {
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(2048), "2.0 KiB");
  EXPECT_EQ(human_bytes(24.0 * kMiB), "24.0 MiB");
  EXPECT_EQ(human_bytes(1536.0 * kMiB), "1.50 GiB");
}

struct Row {
  std::string_view name;
  int value;
};
constexpr std::array<Row, 2> kTable{{{"one", 1}, {"two", 2}}};

TEST(Registry, FindsByName) { EXPECT_EQ(find_named(kTable, "two", "--number").value, 2); }

TEST(Registry, UnknownNameListsTheKnownOnes) {
  const auto message = error_of<BadInput>([] { find_named(kTable, "three", "--number"); });
  EXPECT_EQ(message, "--number: unknown 'three', expected one of: one, two");
}

TEST(Check, ErrorsNameBothOperands) {
  EXPECT_NO_THROW(require_equal(2, 2, "rows"));
  EXPECT_EQ(error_of<WrongResult>([] { require_equal(2, 3, "rows"); }), "rows: found 2, expected 3");
  EXPECT_EQ(error_of<BadInput>([] { require<BadInput>(false, "{}: no", "--x"); }), "--x: no");
}

TEST(Units, CountsHaveTheirNouns) {
  EXPECT_EQ(counted(0, "node"), "0 nodes");
  EXPECT_EQ(counted(1, "node"), "1 node");
  EXPECT_EQ(counted(3, "process"), "3 processes");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
}

}  // namespace
}  // namespace moe
