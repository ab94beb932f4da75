#pragma once
// Checks of results before anything is timed.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "moe/tensor/math.h"

namespace moe::measure {

/// The number of wrong elements in a result, and a description of the first one.
struct WrongElements {
  int64_t count = 0;
  std::string first;  // position, found and expected value of the first; empty if there is none
};

/// The exact value of a sum of products in float64, and the sum of its terms' magnitudes, which limits the rounding
/// error.
struct ExactSum {
  double value = 0, size = 0;
  void add(double a, double b = 1) { value += a * b, size += std::abs(a * b); }
};

/// Compares numbers with their exact sums. A number is right if its error can be explained by rounding: of `terms`
/// terms summed in type `sums` (float32 or float64) in any order, and of the result in the type `stored`.
class SumCheck {
 public:
  SumCheck(std::string what, int64_t terms, DType stored, DType sums);
  void compare(int64_t element, double found, const ExactSum& expected, WrongElements& wrong) const;

 private:
  std::string what_;
  double of_size_, of_value_;
};

/// Returns `count` evenly spread numbers of [0, size), including the first and the last; all if `size` <= `count`.
std::vector<int64_t> evenly_spaced(int64_t size, int64_t count);

/// Returns an element of a float32 or float64 matrix in the host's memory, considering Matrix's layout.
double element_of(const Matrix& m, int64_t row, int64_t col);

/// Checks a sample of the elements of out = a b against their exact sums. The matrices are in the host's memory, in
/// float32 or float64. `stored`: the type that `out` was rounded to.
WrongElements wrong_products(const Matrix& a, const Matrix& b, const Matrix& out, DType stored);

}  // namespace moe::measure
