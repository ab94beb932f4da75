#include "moe/measure/wrong_elements.h"

#include <algorithm>
#include <cmath>

#include "moe/tensor/element.h"

namespace moe::measure {
namespace {

constexpr double kRoundings = 8;  // roundings per square root of the number of terms, because errors have random signs
constexpr int64_t kSampledRows = 24;

double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 0x1p-53;
    case DType::float32:
      return 0x1p-24;
    case DType::float16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

}  // namespace

SumCheck::SumCheck(std::string what, int64_t terms, DType stored, DType sums)
    : what_(std::move(what)),
      of_size_(kRoundings * (1 + std::sqrt(static_cast<double>(terms))) * rounding_of(sums)),
      of_value_(2 * rounding_of(stored)) {}

void SumCheck::compare(int64_t element, double found, const ExactSum& expected, WrongElements& wrong) const {
  const double tolerance = of_size_ * expected.size + of_value_ * std::abs(expected.value);
  if (std::abs(found - expected.value) <= tolerance) return;  // false for NaN
  if (wrong.count++ == 0)
    wrong.first = fmt::format("{}, element {}: found {}, expected {}", what_, element, found, expected.value);
}

std::vector<int64_t> evenly_spaced(int64_t size, int64_t count) {
  std::vector<int64_t> all;
  const int64_t n = std::min(size, count);
  for (int64_t i = 0; i < n; ++i) all.push_back(n > 1 ? i * (size - 1) / (n - 1) : 0);
  return all;
}

double element_of(const Matrix& m, int64_t row, int64_t col) {
  const int64_t at = m.transposed ? col * m.stride + row : row * m.stride + col;
  return with_element(m.dtype,
                      [&](auto zero) { return static_cast<double>(static_cast<decltype(zero)*>(m.data)[at]); });
}

WrongElements wrong_products(const Matrix& a, const Matrix& b, const Matrix& out, DType stored) {
  const int64_t terms = a.transposed ? a.rows : a.cols;
  const SumCheck check("product", terms, stored, out.dtype);
  WrongElements wrong;
  for (const int64_t row : evenly_spaced(out.rows, kSampledRows))
    for (const int64_t col : evenly_spaced(out.cols, kSampledRows)) {
      ExactSum sum;
      for (int64_t i = 0; i < terms; ++i) sum.add(element_of(a, row, i), element_of(b, i, col));
      check.compare(row * out.cols + col, element_of(out, row, col), sum, wrong);
    }
  return wrong;
}

}  // namespace moe::measure
