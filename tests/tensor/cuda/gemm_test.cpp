// Products on a device against loops over the same numbers in float64: transposes, sums into what is there, blocks of
// columns, batches, empty extents, unaligned parts, and the choice among algorithms.
#include "moe/tensor/cuda/gemm.h"

#include <gtest/gtest.h>

#include "tests/layer/cuda/device_values.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

using Kind = std::tuple<cuda::AlgorithmChoice, DType>;

class CudaGemmTest : public testing::TestWithParam<Kind> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }
  Pair random(std::initializer_list<int64_t> shape, uint64_t stream) const {
    return {shape, dtype(), *memory_, stream};
  }
  /// Of sums of up to 100 products of numbers of about 1; float32 keeps 24 bits of each.
  double tolerance() const { return 4 * tolerance_for(dtype()); }

  struct Of {
    Matrix device, reference;
  };
  static Of whole(const Pair& p) { return {matrix(p.device), matrix(p.reference)}; }
  static Of turned(const Pair& p) { return {transpose(matrix(p.device)), transpose(matrix(p.reference))}; }

  void multiply(const Of& a, const Of& b, const Of& out, Into into, Batch batch = {}) {
    batch.fastest = std::get<0>(GetParam()) == cuda::AlgorithmChoice::by_batch;
    gemm_->run(a.device, b.device, out.device, {into, batch}, nullptr);
    plain_->run(a.reference, b.reference, out.reference, {into, batch}, nullptr);
  }

  std::unique_ptr<MemorySpace> memory_ = make_test_memory();
  std::unique_ptr<cuda::Gemm> gemm_ = make_test_gemm(std::get<0>(GetParam())), plain_ = make_plain_gemm();
};

TEST_P(CudaGemmTest, MultipliesEveryTransposeOverwritingAndAdding) {
  struct Extents {
    int64_t rows, inner, cols;
  };
  for (const auto& [rows, inner, cols] : {Extents{1, 1, 1}, {5, 7, 3}, {64, 32, 96}, {33, 100, 17}}) {
    SCOPED_TRACE(fmt::format("({}, {}) ({}, {})", rows, inner, inner, cols));
    const Pair a = random({rows, inner}, 1), at = random({inner, rows}, 2);
    const Pair b = random({inner, cols}, 3), bt = random({cols, inner}, 4), out = random({rows, cols}, 5);
    for (const Of& left : {whole(a), turned(at)})
      for (const Of& right : {whole(b), turned(bt)})
        for (const Into into : {Into::overwrite, Into::add}) {
          multiply(left, right, whole(out), into);
          expect_near(out.device, out.reference, tolerance(), "product");
        }
  }
}

TEST_P(CudaGemmTest, WritesNothingOutsideItsColumns) {
  const Pair a = random({4, 6}, 1), b = random({6, 9}, 2), out = random({4, 8}, 3);
  const auto block = [](const Pair& p, int64_t first, int64_t count) {
    return Of{columns(p.device, first, count), columns(p.reference, first, count)};
  };
  multiply(block(a, 1, 3), {transpose(columns(b.device, 4, 3)), transpose(columns(b.reference, 4, 3))},
           block(out, 2, 6), Into::overwrite);
  expect_near(out.device, out.reference, tolerance(), "all eight columns");
}

TEST_P(CudaGemmTest, BatchesStepThroughEachOperand) {
  constexpr int64_t kCount = 3, kRows = 8, kInner = 16, kCols = 24;
  const Pair a = random({kCount * kRows, kInner}, 1), b = random({kCount * kInner, kCols}, 2);
  const Pair out = random({kCount * kRows, kCols}, 3);
  const auto one = [](const Pair& p, int64_t rows) {
    const int64_t cols = p.device.view().size(1);
    return Of{matrix(p.device.view().part(0, {rows, cols})), matrix(p.reference.view().part(0, {rows, cols}))};
  };
  for (const int64_t step_a : {int64_t{0}, kRows * kInner})
    for (const int64_t step_b : {int64_t{0}, kInner * kCols})
      for (const Into into : {Into::overwrite, Into::add}) {
        multiply(one(a, kRows), one(b, kInner), one(out, kRows), into, {kCount, step_a, step_b, kRows * kCols});
        expect_near(out.device, out.reference, tolerance(), "batch");
      }
}

TEST_P(CudaGemmTest, AnEmptySumIsZeroOrAddsNothing) {
  const Pair none = random({4, 0}, 1), other = random({0, 6}, 2), out = random({4, 6}, 3);
  multiply(whole(none), whole(other), whole(out), Into::add);
  expect_near(out.device, out.reference, 0, "added to");
  multiply(whole(none), whole(other), whole(out), Into::overwrite);
  for (const double v : values_of(out.device)) ASSERT_EQ(v, 0);
  const Pair no_rows = random({0, 4}, 4), square = random({4, 4}, 5), into = random({0, 4}, 6);
  EXPECT_NO_THROW(multiply(whole(no_rows), whole(square), whole(into), Into::overwrite));
}

// Elements that no 16 bytes begin at.
TEST_P(CudaGemmTest, TakesUnalignedParts) {
  const Pair a = random({200}, 1), b = random({200}, 2), out = random({200}, 3);
  const auto part = [](const Pair& p, int64_t first) {
    return Of{matrix(p.device.view().part(first, {8, 12})), matrix(p.reference.view().part(first, {8, 12}))};
  };
  const Of right = part(b, 3);
  multiply(part(a, 1), {transpose(right.device), transpose(right.reference)},
           {matrix(out.device.view().part(5, {8, 8})), matrix(out.reference.view().part(5, {8, 8}))}, Into::overwrite);
  expect_near(out.device, out.reference, tolerance(), "part");
}

// What an algorithm is timed on must not be what the caller adds to.
TEST_P(CudaGemmTest, AddsOnceHoweverItsAlgorithmWasChosen) {
  const Pair a = random({16, 16}, 1), b = random({16, 16}, 2), out = random({16, 16}, 3);
  for (int run = 0; run < 3; ++run) multiply(whole(a), whole(b), whole(out), Into::add);
  expect_near(out.device, out.reference, 3 * tolerance(), "sum of three");
}

TEST_P(CudaGemmTest, GivesTheSameBitsAgain) {
  const Pair a = random({48, 80}, 1), b = random({80, 32}, 2);
  const Tensor one({48, 32}, dtype(), *memory_), two({48, 32}, dtype(), *memory_);
  for (const Tensor* out : {&one, &two}) gemm_->run(matrix(a.device), matrix(b.device), matrix(*out), {}, nullptr);
  expect_near(two, one, 0, "again");
}

std::string name_of_kind(const testing::TestParamInfo<Kind>& row) {
  constexpr const char* kNames[] = {"first", "as_asked", "timed"};
  return fmt::format("{}_{}", kNames[static_cast<size_t>(std::get<0>(row.param))], name_of(std::get<1>(row.param)));
}

INSTANTIATE_TEST_SUITE_P(All, CudaGemmTest,
                         testing::Combine(testing::Values(cuda::AlgorithmChoice::first, cuda::AlgorithmChoice::by_batch,
                                                          cuda::AlgorithmChoice::timed),
                                          testing::ValuesIn(kDTypes)),
                         name_of_kind);

}  // namespace
}  // namespace moe
