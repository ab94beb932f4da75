#pragma once
// The reference for experts: one expert by its defining loops, at some rows and some indices of H.
#include <map>
#include <string>
#include <vector>

#include "moe/measure/wrong_elements.h"

namespace moe::microbench {

class PlainExpert {
 public:
  /// Computes in the host's memory, in float32.
  struct Weight {
    Matrix value, gradient;
  };
  /// `weights`: one expert's w1, w2 and, if it is gated, w3, by name (parameter.h). `x`, `d_y`: its input and its
  /// output's gradient (rows, M). `stored`: the type of its results and of its intermediate values.
  PlainExpert(std::map<std::string, Weight> weights, Matrix x, Matrix d_y, DType stored = DType::float32);

  measure::WrongElements wrong_output(const Matrix& found) const;
  /// Counts wrong elements of the gradients of the input and of the weights.
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
