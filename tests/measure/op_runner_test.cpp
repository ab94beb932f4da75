// Ops of four threads, run one by one and two at once.
#include <algorithm>
#include <gtest/gtest.h>

#include "moe/measure/ops/rank_ops.h"

namespace moe::measure {
namespace {

/// An op between nodes and one inside them, both paced.
std::vector<OpCase> paced_ops(double modelled_s, double dilation) {
  std::vector<OpCase> cases(2);
  for (OpCase& c : cases) {
    c.ranks = 2;
    c.bytes = 4096;
    c.real_elements = 64;
    c.modelled_s = modelled_s;
    c.dilation = dilation;
  }
  cases[0].op = Op::alltoall;
  cases[0].network = Network::inter;
  cases[1].op = Op::allgather;
  cases[1].network = Network::intra;
  return cases;
}

OpCase paced_product(int64_t dim, double modelled_s, double dilation) {
  OpCase product = paced_ops(modelled_s, dilation)[0];
  product.op = Op::gemm;
  product.network = Network::none;
  product.ranks = 1;
  product.real_dim = dim;
  return product;
}

double least(const OpSample& sample) { return *std::ranges::min_element(sample.seconds); }
double most(const OpSample& sample) { return *std::ranges::max_element(sample.seconds); }

TEST(OpRunner, SecondsAreOfOneIterationAndUndilated) {
  const std::vector<OpCase> cases = paced_ops(5e-3, 20);
  OpRunner runner({}, cases, 60);
  const OpSample sample = runner.run(0, 3);
  ASSERT_EQ(sample.seconds.size(), 4U);
  EXPECT_EQ(sample.overruns, 0);
  EXPECT_GE(least(sample), 5e-3 * (1 - 1e-6));
  EXPECT_LT(least(sample), 15e-3) << "three iterations' sum, or dilated";
}

TEST(OpRunner, EachGemmOfASampleIsPaced) {
  const std::vector cases = {paced_product(8, 5e-3, 4)};
  OpRunner runner({}, cases, 60);
  EXPECT_GE(least(runner.run(0, 3)), 5e-3 * (1 - 1e-6)) << "all three end behind the first one's pace";
}

// The machine sets their starts apart, so that both may take a little less than the longer one's time.
TEST(OpRunner, TwoOpsLastUntilTheLaterOneEnds) {
  const std::vector<OpCase> cases = paced_ops(100e-3, 1);
  OpRunner runner({}, cases, 60);
  EXPECT_GE(least(runner.run_both(0, 1, 1, 3)), 200e-3) << "the other one's three iterations";
  const OpSample beside = runner.run_beside(0, 1, 1, 5);
  EXPECT_GE(least(beside), 100e-3 * (1 - 1e-6));
  EXPECT_LT(most(beside), 500e-3) << "the other one's time";
}

TEST(OpRunner, WorkThatOutlastsItsPaceIsAnOverrun) {
  const std::vector cases = {paced_product(1024, 1e-12, 1)};  // 2 Gflop: many times as long as a wake-up explains
  OpRunner runner({}, cases, 60);
  constexpr int kMany = 3;
  const OpSample sample = runner.run(0, kMany);
  const int64_t every = kMany * std::ssize(sample.seconds);
  EXPECT_EQ(sample.overruns, every);
  EXPECT_EQ(runner.run(0, kMany).overruns, every) << "counted anew";
}

TEST(OpRunner, AChecksResultIsLookedAtAndUnpaced) {
  std::vector<OpCase> cases = paced_ops(10, 1);
  OpRunner runner({}, cases, 60);
  const OpSample sample = runner.run(1, 5, true);
  EXPECT_EQ(sample.wrong.count, 0) << sample.wrong.first;
  EXPECT_LT(most(sample), 10);
}

// Buffers are kept from op to op: 64 x 64 is as many elements as the collective's.
TEST(OpRunner, AProductAfterACollectiveOfAsManyElementsIsRight) {
  std::vector<OpCase> cases = paced_ops(0, 1);
  cases[0].real_elements = int64_t{64} * 64;
  OpCase product;
  product.op = Op::gemm;
  product.real_dim = 64;
  cases.push_back(product);
  OpRunner runner({}, cases, 60);
  for (const size_t op : {0, 2, 0, 2}) {
    const OpSample sample = runner.run(op, 1, true);
    EXPECT_EQ(sample.wrong.count, 0) << sample.wrong.first;
  }
}

}  // namespace
}  // namespace moe::measure
