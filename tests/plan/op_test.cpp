#include "moe/plan/op.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace moe {
namespace {

TEST(Op, NamesFindTheirOps) {
  for (const OpTable table : {OpTable::comm, OpTable::compute, OpTable::module})
    for (const std::string_view name : names_of(table)) {
      const auto op = find_op(name);
      ASSERT_TRUE(op) << name;
      EXPECT_EQ(name_of(*op), name);
      EXPECT_EQ(facts_of(*op).table, table) << name;
    }
  EXPECT_EQ(names_of(OpTable::compute), (std::vector<std::string_view>{"gemm", "expert", "copy", "host_copy"}));
  EXPECT_EQ(find_op("all2all"), std::nullopt);
}

TEST(Op, CollectivesAreThoseThatProfilesPrice) {
  EXPECT_EQ(collectives(), (std::vector<Op>{Op::alltoall, Op::allgather, Op::reducescatter, Op::allreduce}));
  for (const Op op : collectives()) EXPECT_EQ(facts_of(op).table, OpTable::comm) << name_of(op);
  EXPECT_EQ(std::ranges::count_if(collectives(), [](Op op) { return facts_of(op).sums; }), 2);
}

// The factors of nccl-tests' PERFORMANCE.md.
TEST(Op, BusBandwidthOverAlgorithmBandwidthIsNcclTests) {
  for (const int ranks : {2, 4, 48}) {
    const double n = ranks;
    for (const Op op : {Op::alltoall, Op::allgather, Op::reducescatter})
      EXPECT_DOUBLE_EQ(wire_share(op, ranks), (n - 1) / n) << name_of(op);
    EXPECT_DOUBLE_EQ(wire_share(Op::allreduce, ranks), 2 * (n - 1) / n);
  }
  EXPECT_EQ(wire_share(Op::sendrecv, 2), 1);
}

}  // namespace
}  // namespace moe
