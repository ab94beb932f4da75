#pragma once
// An expert by the loops that define it, at some rows and some numbers of H: what experts' results are held against.
#include <map>
#include <string>
#include <vector>

#include "moe/measure/wrong_elements.h"

namespace moe::microbench {

class PlainExpert {
 public:
  /// Works in the host's memory, in float32.
  struct Weight {
    Matrix value, gradient;
  };
  /// `weights`: one expert's w1, w2 and, where it is gated, w3 by their names (parameter.h). `x`, `d_y`: its input and
  /// its output's gradient (rows, M). `stored`: what the expert rounds its results to, and what lies between them.
  PlainExpert(std::map<std::string, Weight> weights, Matrix x, Matrix d_y, DType stored = DType::float32);

  measure::WrongElements wrong_output(const Matrix& found) const;
  /// Counts wrong elements of the input's gradient and of the weights'.
  measure::WrongElements wrong_gradients(const Matrix& d_x) const;

 private:
  struct Hidden;
  Hidden hidden(int64_t row, int64_t h) const;
  std::vector<Hidden> hidden_of_row(int64_t row) const;
  std::vector<Hidden> hidden_of_column(int64_t h) const;
  measure::SumCheck check_of(std::string what, int64_t terms) const;
  void check_input_gradient(const Matrix& d_x, measure::WrongElements& wrong) const;

  std::map<std::string, Weight> weights_;
  Matrix x_, d_y_, w1_, w2_, w3_;
  DType stored_;
  bool gated_;
};

}  // namespace moe::microbench
