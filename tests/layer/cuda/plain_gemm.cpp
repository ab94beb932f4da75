#include "moe/tensor/cuda/element.cuh"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

// By columns and steps of a row-major matrix, transposed or not.
template <class T>
struct Elements {
  Elements(const Matrix& m, int64_t first)
      : data(static_cast<T*>(m.data) + first), down(m.transposed ? 1 : m.stride), right(m.transposed ? m.stride : 1) {}
  T& at(int64_t i, int64_t j) const { return data[i * down + j * right]; }
  T* data;
  int64_t down, right;
};

// What the numbers of a matrix stand for, row by row.
std::vector<float> numbers(const Fp8Matrix& m) {
  std::vector<float> values;
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.cols; ++j) {
      const int64_t block = j / kFp8Block,
                    at = m.tiles ? i / kFp8Block * m.scale_stride + block : block * m.scale_stride + i;
      values.push_back(from_fp8(m.data[i * m.cols + j]) * m.scales[at]);
    }
  return values;
}

class PlainGemm final : public cuda::Gemm {
 public:
  void run(const Matrix& a, const Matrix& b, const Matrix& out, const cuda::GemmMode& mode, void*) override {
    const Batch& batch = mode.batch;
    const int64_t inner = a.transposed ? a.rows : a.cols;
    cuda::with_type(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t n = 0; n < batch.count; ++n) {
        const Elements<T> x(a, n * batch.a), y(b, n * batch.b), z(out, n * batch.out);
        for (int64_t i = 0; i < out.rows; ++i)
          for (int64_t j = 0; j < out.cols; ++j) {
            Accumulator<T> sum = mode.into == Into::add ? cuda::value_of(z.at(i, j)) : 0;
            for (int64_t k = 0; k < inner; ++k) sum += cuda::value_of(x.at(i, k)) * cuda::value_of(y.at(k, j));
            z.at(i, j) = cuda::rounded<T>(sum);
          }
      }
    });
  }

  // As on Hopper: of rows by fours, and not of float64.
  bool run_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into, void*) override {
    if (a.tiles || !b.tiles || a.rows % 4 != 0 || out.dtype == DType::float64) return false;
    const std::vector<float> x = numbers(a), y = numbers(b);
    cuda::with_type(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      const Elements<T> z(out, 0);
      for (int64_t i = 0; i < out.rows; ++i)
        for (int64_t j = 0; j < out.cols; ++j) {
          Accumulator<T> sum = into == Into::add ? cuda::value_of(z.at(i, j)) : 0;
          const float *of_row = x.data() + i * a.cols, *of_column = y.data() + j * b.cols;
          for (int64_t k = 0; k < a.cols; ++k) sum += of_row[k] * of_column[k];
          z.at(i, j) = cuda::rounded<T>(sum);
        }
    });
    return true;
  }
};

}  // namespace

std::unique_ptr<cuda::Gemm> make_plain_gemm() { return std::make_unique<PlainGemm>(); }

}  // namespace moe
