#pragma once
// The reference for experts: computes one expert by the loops of its definition, at some rows and some indices of H.
#include <map>
#include <string>
#include <vector>

#include "moe/measure/wrong_elements.h"

namespace moe::microbench {

class PlainExpert {
 public:
  /// A weight and its gradient, float32 in the host's memory.
  struct Weight {
    Matrix value, gradient;
  };
  /// `weights`: w1, w2 and, for a gated expert, w3 of one expert, by name (parameter.h). `x`, `d_y`: the expert's input
  /// and the gradient of its output, both (rows, M). `stored`: the type of its results and intermediate values.
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
