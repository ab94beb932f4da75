// Kernels are looked at before they are timed; what is wrong is a record without a number.
#include "moe/measure/kernels/kernel_bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

#include "moe/base/random.h"
#include "moe/comm/local/local_world.h"
#include "moe/measure/ops/op_cases.h"
#include "moe/measure/ops/rank_ops.h"
#include "moe/record/reader.h"
#include "moe/tensor/cpu/math.h"
#include "tests/base/scratch.h"
#include "tests/measure/host_cluster.h"
#include "tests/tensor/random_tensor.h"

namespace moe::measure {
namespace {

struct Counted {
  int runs = 0;
  Kernel kernel(std::string name, WrongElements wrong = {}) {
    Kernel k{.name = std::move(name), .width = 4, .bytes = 100};
    k.run = [this] { ++runs; };
    k.check = [this, wrong] {
      EXPECT_EQ(runs, 1) << "looked at after another run than the first";
      return wrong;
    };
    return k;
  }
};

TEST(KernelBench, TimesWhatIsRightAndNothingElse) {
  const Scratch scratch;
  Counted one, two, three;
  Kernel right = one.kernel("right"), wrong = two.kernel("wrong", {3, "element 7"}), bound = three.kernel("bound");
  right.bound = {"bound", {bound.key()}, [](double seconds, double of) { return of / seconds; }};
  bound.bound = {"wrong", {wrong.key()}, [](double, double) { return 1.0; }};
  RecordWriter writer(scratch.path("kernels.jsonl"), RunInputs());
  KernelBench bench(writer, 4);
  bench.run(std::vector{right, wrong, bound});
  writer.end();
  EXPECT_EQ(two.runs, 1);
  EXPECT_GT(one.runs, 4);
  const auto records = read_last_run(scratch.path("kernels.jsonl")).cases;
  ASSERT_EQ(records.size(), 3U);
  ASSERT_EQ(records.size(), bench.records().size());
  EXPECT_EQ(records[0].status, CaseStatus::ok);
  ASSERT_EQ(records[0].samples.size(), 1U);
  EXPECT_EQ(records[0].samples[0].values.size(), 4U);
  const double least = records[0].summary.number("least_s", "");
  EXPECT_GT(least, 0);
  EXPECT_DOUBLE_EQ(records[0].summary.number("bytes_per_s", ""), 100 / least);
  EXPECT_DOUBLE_EQ(records[0].summary.number("share", ""), records[2].summary.number("least_s", "") / least);
  EXPECT_EQ(records[1].status, CaseStatus::wrong);
  EXPECT_EQ(records[1].reason, "3 wrong elements; element 7");
  EXPECT_TRUE(records[1].samples.empty() && records[1].summary.empty());
  EXPECT_FALSE(records[2].summary.has("share")) << "its bound is wrong";
}

TEST(KernelBench, GoesOnWhereItWasBrokenOff) {
  const Scratch scratch;
  const std::string path = scratch.path("kernels.jsonl");
  Counted done, open;
  {
    RecordWriter writer(path, RunInputs());
    KernelBench(writer, 2).run(std::vector{done.kernel("done")});
  }
  const int runs = done.runs;
  RecordWriter writer(path, RunInputs());
  KernelBench bench(writer, 2);
  bench.run(std::vector{done.kernel("done"), open.kernel("open")});
  EXPECT_EQ(done.runs, runs);
  EXPECT_GT(open.runs, 1);
  EXPECT_EQ(bench.records().size(), 2U);
}

TEST(KernelBench, AKernelThatThrowsEndsIt) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("kernels.jsonl"), RunInputs());
  Kernel kernel{.name = "none", .width = 1};
  kernel.run = [] { throw RankFailure("no memory"); };
  kernel.check = [] { return WrongElements{}; };
  EXPECT_THROW(KernelBench(writer, 1).run(std::vector{kernel}), RankFailure);
}

// Products of any shape, transposed or not: right as LibTorch makes them, and any that is off by a thousandth is found.
TEST(WrongProducts, AreThoseThatAreOff) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto draw = [&](uint64_t what, int64_t most) {
      return 1 + static_cast<int64_t>(random_bits(seed, what, 0) % static_cast<uint64_t>(most));
    };
    const int64_t n = draw(1, 90), k = draw(2, 300), m = draw(3, 90);
    const bool turn_a = seed % 2 == 0, turn_b = seed % 3 == 0;
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      const Tensor a = random_tensor<T>({turn_a ? k : n, turn_a ? n : k}, seed + 100);
      const Tensor b = random_tensor<T>({turn_b ? m : k, turn_b ? k : m}, seed + 200);
      const Tensor out({n, m}, a.view().dtype());
      const Matrix left = turn_a ? transpose(matrix(a)) : matrix(a), right = turn_b ? transpose(matrix(b)) : matrix(b);
      gemm(left, right, matrix(out));
      const WrongElements none = wrong_products(left, right, matrix(out), a.view().dtype());
      EXPECT_EQ(none.count, 0) << none.first;
      for (int64_t i = 0; i < n * m; ++i) out.template as<T>()[i] *= T(1.001);
      EXPECT_GT(wrong_products(left, right, matrix(out), a.view().dtype()).count, 0) << n << " " << k << " " << m;
    };
    run(float());
    run(double());
  }
}

// What never ran isn't right.
TEST(RankOps, NoOpIsTakenForRightUnseen) {
  const Profile host = host_cluster();
  std::set<Op> seen;
  LocalWorld world(4);
  std::vector<OpCase> cases = real_cases(host, "local");
  std::ranges::move(real_host_copies("local"), std::back_inserter(cases));
  for (const OpCase& c : cases) {
    if (!seen.insert(c.op).second) continue;
    std::atomic<int64_t> before = 0, after = 0;
    world.run([&](int rank) {
      RankOps ops(*world.communicator(rank), {});
      ops.prepare(c, true);
      before += ops.check(c).count;
      ops.begin(c, 1, {});
      ops.finish();
      const WrongElements wrong = ops.check(c);
      EXPECT_EQ(wrong.first, "") << c.key();
      after += wrong.count;
    });
    EXPECT_GT(before, 0) << c.key();
    EXPECT_EQ(after, 0) << c.key();
  }
  EXPECT_TRUE(seen.contains(Op::gemm));
  EXPECT_EQ(seen.size(), 7U);
}

// Pairs of three ranks: the third has no part in them. Each pair's second rank gets what its first has sent.
TEST(RankOps, RanksWithoutAGroupTakeNoPart) {
  Profile three;
  three.ranks_per_node = 3;
  const auto cases = real_cases(three, "gloo");
  const auto send = std::ranges::find(cases, Op::sendrecv, &OpCase::op);
  ASSERT_NE(send, cases.end());
  std::array<int64_t, 3> wrong_before{};
  LocalWorld world(3);
  world.run([&](int rank) {
    RankOps ops(*world.communicator(rank), {});
    ops.prepare(*send, true);
    wrong_before.at(rank) = ops.check(*send).count;
    ops.begin(*send, 2, {});
    ops.finish();
    EXPECT_EQ(ops.check(*send).first, "") << rank;
    EXPECT_EQ(ops.group_of(*send), rank < 2 ? 0 : 2);
  });
  EXPECT_EQ(wrong_before[0], 0) << "it only sends";
  EXPECT_GT(wrong_before[1], 0);
  EXPECT_EQ(wrong_before[2], 0);
}

}  // namespace
}  // namespace moe::measure
