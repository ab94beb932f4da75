// gemm and gelu against loops, over transposes, blocks of columns, empty extents and both element types.
#include "moe/tensor/cpu/math.h"

#include <atomic>
#include <cmath>
#include <complex>
#include <gtest/gtest.h>
#include <thread>

#include "moe/base/random.h"
#include "moe/device/cpu/cores.h"
#include "moe/tensor/element.h"
#include "moe/tensor/tensor.h"
#include "tests/tensor/random_tensor.h"

namespace moe {
namespace {

template <class T>
Tensor drawn_tensor(std::initializer_list<int64_t> shape, DType dtype, uint64_t stream) {
  Tensor t(shape, dtype);
  fill_random<T>(t, stream);
  return t;
}

template <class T>
T element(Matrix m, int64_t i, int64_t j) {
  if (m.transposed) std::swap(i, j);
  return static_cast<const T*>(m.data)[i * m.stride + j];
}

template <class T>
void expect_gemm(Matrix a, Matrix b, Matrix out, Into into) {
  std::vector<double> expected;
  const int64_t inner = a.transposed ? a.rows : a.cols;
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.cols; ++j) {
      double sum = into == Into::add ? element<T>(out, i, j) : 0;
      for (int64_t k = 0; k < inner; ++k) sum += double{element<T>(a, i, k)} * element<T>(b, k, j);
      expected.push_back(sum);
    }
  gemm(a, b, out, into);
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.cols; ++j)
      EXPECT_NEAR(element<T>(out, i, j), expected[i * out.cols + j], sizeof(T) == 4 ? 1e-4 : 1e-12);
}

class GemmTest : public testing::TestWithParam<DType> {};

TEST_P(GemmTest, MultipliesEveryTransposeOverwritingAndAdding) {
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor a = drawn_tensor<T>({5, 7}, GetParam(), 1), at = drawn_tensor<T>({7, 5}, GetParam(), 2);
    const Tensor b = drawn_tensor<T>({7, 3}, GetParam(), 3), bt = drawn_tensor<T>({3, 7}, GetParam(), 4);
    const Tensor out = drawn_tensor<T>({5, 3}, GetParam(), 5);
    for (const Matrix& left : {matrix(a), transpose(matrix(at))})
      for (const Matrix& right : {matrix(b), transpose(matrix(bt))})
        for (const Into into : {Into::overwrite, Into::add}) expect_gemm<T>(left, right, matrix(out), into);
  });
}

// Three products on one and two threads, of factors with gaps between them, a shared one, and results side by side or
// apart.
TEST_P(GemmTest, MultipliesBatches) {
  constexpr int64_t kRows = 33, kInner = 70, kCols = 21, kCount = 3;
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    const auto at = [](Matrix m, int64_t elements) {
      m.data = static_cast<T*>(m.data) + elements;
      return m;
    };
    const Tensor a = drawn_tensor<T>({(kRows + 2) * kCount, kInner}, GetParam(), 1);
    const Tensor b = drawn_tensor<T>({kInner * kCount, kCols}, GetParam(), 2);
    for (const int threads : {1, 2})
      for (const bool turned : {false, true})
        for (const int64_t b_step : {kInner * kCols, int64_t{0}})
          for (const int64_t gap : {0, 5})
            for (const Into into : {Into::overwrite, Into::add}) {
              const cpu::ThreadCountScope use(threads);
              const Batch batch{kCount, (kRows + 2) * kInner, b_step, (kRows + gap) * kCols};
              const Tensor out = drawn_tensor<T>({(kRows + gap) * kCount, kCols}, GetParam(), 3);
              const Tensor before = drawn_tensor<T>({(kRows + gap) * kCount, kCols}, GetParam(), 3);
              const Matrix left{a.view().data(),
                                turned ? kInner : kRows,
                                turned ? kRows : kInner,
                                turned ? kRows : kInner,
                                GetParam(),
                                turned};
              const Matrix right = matrix(b.view().part(0, {kInner, kCols}));
              gemm(left, right, matrix(out.view().part(0, {kRows, kCols})), into, batch);
              for (int64_t e = 0; e < kCount; ++e)
                for (int64_t i = 0; i < kRows + gap; ++i)
                  for (int64_t j = 0; j < kCols; ++j) {
                    const int64_t place = e * batch.out + i * kCols + j;
                    double expected = before.view().as<T>()[place];
                    if (i < kRows) {
                      if (into == Into::overwrite) expected = 0;
                      for (int64_t k = 0; k < kInner; ++k)
                        expected +=
                            double{element<T>(at(left, e * batch.a), i, k)} * element<T>(at(right, e * batch.b), k, j);
                    }
                    ASSERT_NEAR(out.view().as<T>()[place], expected, sizeof(T) == 4 ? 1e-3 : 1e-11)
                        << threads << " threads, product " << e;
                  }
            }
  });
}

TEST_P(GemmTest, WritesNothingOutsideItsColumns) {
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor a = drawn_tensor<T>({4, 6}, GetParam(), 1), b = drawn_tensor<T>({6, 9}, GetParam(), 2);
    const Tensor out({4, 8}, GetParam());
    expect_gemm<T>(columns(a, 1, 3), transpose(columns(b, 4, 3)), columns(out, 2, 6), Into::overwrite);
    for (int64_t i = 0; i < 4; ++i)
      for (const int64_t j : {0, 1}) EXPECT_EQ(element<T>(matrix(out), i, j), T(0));
  });
}

TEST_P(GemmTest, TakesEmptyExtents) {
  const Tensor none({0, 4}, GetParam()), square({4, 4}, GetParam());
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    T* data = square.view().as<T>();
    std::fill_n(data, 16, T(3));
    gemm(matrix(none), matrix(square), matrix(none));
    gemm(transpose(matrix(none)), matrix(none), matrix(square), Into::add);
    EXPECT_EQ(data[5], T(3));
    gemm(transpose(matrix(none)), matrix(none), matrix(square));
    EXPECT_EQ(data[5], T(0));
    gelu(none, none);
  });
}

TEST_P(GemmTest, OverwritesNotANumber) {
  const Tensor one({1, 1}, GetParam()), out({1, 1}, GetParam());
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    *out.view().as<T>() = std::numeric_limits<T>::quiet_NaN();
    gemm(matrix(one), matrix(one), matrix(out));
    EXPECT_EQ(*out.view().as<T>(), T(0));
  });
}

TEST_P(GemmTest, GeluIsExactAndItsGradientToo) {
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor x = drawn_tensor<T>({100}, GetParam(), 6), d = drawn_tensor<T>({100}, GetParam(), 7);
    const Tensor y({100}, GetParam()), dx({100}, GetParam());
    gelu(x, y);
    gelu_backward(x, d, dx);
    const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
    for (int64_t i = 0; i < 100; ++i) {
      const double v = x.view().as<T>()[i], phi = 0.5 * std::erfc(-v / std::sqrt(2.0));
      EXPECT_NEAR(y.view().as<T>()[i], v * phi, tolerance);
      const double slope = phi + v * std::exp(-v * v / 2) / std::sqrt(2 * M_PI);
      EXPECT_NEAR(dx.view().as<T>()[i], d.view().as<T>()[i] * slope, 10 * tolerance);
    }
  });
}

TEST_P(GemmTest, SwigluIsItsFormulaAndItsGradientToo) {
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor a = drawn_tensor<T>({100}, GetParam(), 8), b = drawn_tensor<T>({100}, GetParam(), 9);
    const Tensor d = drawn_tensor<T>({100}, GetParam(), 10), y({100}, GetParam()), db({100}, GetParam());
    a.view().as<T>()[3] = T(-1000);  // exp overflows
    const std::vector<T> dy(d.view().as<T>(), d.view().as<T>() + 100);
    swiglu(a, b, y);
    swiglu_backward(a, b, d, d, db);
    const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-14;
    for (size_t i = 0; i < 100; ++i) {
      const double u = a.view().as<T>()[i], v = b.view().as<T>()[i], s = 1 / (1 + std::exp(-u));
      EXPECT_NEAR(y.view().as<T>()[i], u * s * v, tolerance);
      EXPECT_NEAR(d.view().as<T>()[i], dy[i] * v * (s + u * s * (1 - s)), tolerance);
      EXPECT_NEAR(db.view().as<T>()[i], dy[i] * u * s, tolerance);
    }
  });
}

TEST_P(GemmTest, RotatesPairsByTheirPlaceAndBack) {
  with_element(GetParam(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t kTokens = 10, kHeads = 3, kDim = 6, kSeq = 5, kWidth = kHeads * kDim;
    const Tensor x = drawn_tensor<T>({kTokens, kWidth}, GetParam(), 11), turns({kSeq, kDim}, GetParam());
    const auto angle = [](int64_t place, int64_t j) { return 0.3 * static_cast<double>(place * (j + 1)); };
    for (int64_t i = 0; i < kSeq * kDim / 2; ++i) {
      const int64_t place = i / 3, j = i % 3;
      turns.as<T>()[place * kDim + j] = static_cast<T>(std::cos(angle(place, j)));
      turns.as<T>()[place * kDim + j + 3] = static_cast<T>(std::sin(angle(place, j)));
    }
    const std::vector<T> before(x.as<T>(), x.as<T>() + kTokens * kWidth);
    cpu_math().rotate(x, kDim, turns, RotationDirection::forward);
    const double tolerance = sizeof(T) == 4 ? 1e-6 : 1e-14;
    for (int64_t i = 0; i < kTokens * kHeads * 3; ++i) {
      const int64_t head = i / 3, j = i % 3, low = head * kDim + j;
      const std::complex<double> pair(before[low], before[low + 3]);
      const std::complex<double> turned = pair * std::polar(1.0, angle(head / kHeads % kSeq, j));
      EXPECT_NEAR(x.as<T>()[low], turned.real(), tolerance);
      EXPECT_NEAR(x.as<T>()[low + 3], turned.imag(), tolerance);
    }
    cpu_math().rotate(x, kDim, turns, RotationDirection::back);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(x.as<T>()[i], before[i], tolerance);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, GemmTest, testing::Values(DType::float32, DType::float64),
                         [](const auto& row) { return std::string(name_of(row.param)); });

TEST(ParallelFor, GivesEveryPartToOneThread) {
  for (const int threads : {1, 3, 8})
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      cpu::set_thread_count(threads);
      std::vector<std::atomic<int>> met(count);
      std::atomic<int> calls = 0;
      parallel_for(count, 1 << 20, [&](int64_t begin, int64_t end) {
        ++calls;
        for (int64_t i = begin; i < end; ++i) ++met[i];
      });
      cpu::set_thread_count(1);
      for (const auto& times : met) EXPECT_EQ(times, 1);
      EXPECT_EQ(calls, std::min<int64_t>(count, threads));
    }
}

TEST(OwnThreads, RefuseNone) { EXPECT_THROW(cpu::set_thread_count(0), BadInput); }

TEST(WithElement, RefusesSixteenBits) {
  EXPECT_THROW(with_element(DType::bfloat16, [](auto) {}), BadInput);
}

}  // namespace
}  // namespace moe
