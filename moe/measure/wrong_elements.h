#pragma once
// Checks results before anything is timed.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "moe/tensor/math.h"

namespace moe::measure {

/// The number of values that differ from the right result.
struct WrongElements {
  int64_t count = 0;
  std::string first;  // the first wrong value: its place, what was found and expected; empty: none
};

/// The exact value of a sum of products, in float64, and the size of its terms, by which rounding is judged.
struct ExactSum {
  double value = 0, size = 0;
  void add(double a, double b = 1) { value += a * b, size += std::abs(a * b); }
};

/// Compares numbers with their exact sums. A number is right if it is off by no more than rounding in `sums` (float32
/// or float64), in any order of `terms` terms, and in the type that it is stored in.
class SumCheck {
 public:
  SumCheck(std::string what, int64_t terms, DType stored, DType sums);
  void compare(int64_t element, double found, const ExactSum& expected, WrongElements& wrong) const;

 private:
  std::string what_;
  double of_size_, of_value_;
};

/// Returns `count` of [0, size), spread evenly, the first and the last among them; all if `size` is no larger.
std::vector<int64_t> spread_over(int64_t size, int64_t count);

/// Returns an element of a float32 or float64 matrix in the host's memory, as Matrix reads it.
double element_of(const Matrix& m, int64_t row, int64_t col);

/// Checks elements of out = a b, spread over all of it, against the sums that define them; matrices in the host's
/// memory, of float32 or float64. `stored`: the type that `out` was rounded to.
WrongElements wrong_products(const Matrix& a, const Matrix& b, const Matrix& out, DType stored);

}  // namespace moe::measure
