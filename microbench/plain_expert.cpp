#include "microbench/plain_expert.h"

#include <cmath>
#include <numbers>

#include "moe/layer/parameter.h"

namespace moe::microbench {
namespace {

constexpr int64_t kSampled = 3;  // sampled rows, and sampled indices of H

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double distribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Place {
  const Matrix& of;
  int64_t row = 0, col = 0;
};

void compare(const measure::SumCheck& check, const Place& found, const measure::ExactSum& sum,
             measure::WrongElements& wrong) {
  check.compare(found.row * found.of.cols + found.col, measure::element_of(found.of, found.row, found.col), sum, wrong);
}

}  // namespace

// The values at one row and one index of H: the activation's inputs (x w1 and x w3), and the gradient of its output.
struct PlainExpert::Hidden {
  bool gated = false;
  measure::ExactSum in, gate, d_out;
  double out() const { return in.value * (gated ? sigmoid(in.value) * gate.value : distribution(in.value)); }
  double d_in() const {
    const double x = in.value, s = sigmoid(x);
    return d_out.value * (gated ? gate.value * s * (1 + x * (1 - s)) : distribution(x) + x * density(x));
  }
  double d_gate() const { return d_out.value * in.value * sigmoid(in.value); }
};

PlainExpert::PlainExpert(std::map<std::string, Weight> weights, Matrix x, Matrix d_y, DType stored)
    : weights_(std::move(weights)),
      x_(x),
      d_y_(d_y),
      w1_(weights_.at(std::string(kW1)).value),
      w2_(weights_.at(std::string(kW2)).value),
      stored_(stored),
      gated_(weights_.contains(std::string(kW3))) {
  if (gated_) w3_ = weights_.at(std::string(kW3)).value;
}

// Returns the tolerance of a sum. In 16-bit layers, each term was rounded before it was added in float32.
measure::SumCheck PlainExpert::check_of(std::string what, int64_t terms) const {
  return {std::move(what), bytes_of(stored_) < 4 ? 0 : terms, stored_, stored_};
}

PlainExpert::Hidden PlainExpert::hidden(int64_t row, int64_t h) const {
  Hidden v{gated_, {}, {}, {}};
  for (int64_t m = 0; m < x_.cols; ++m) {
    v.in.add(measure::element_of(x_, row, m), measure::element_of(w1_, m, h));
    if (gated_) v.gate.add(measure::element_of(x_, row, m), measure::element_of(w3_, m, h));
    v.d_out.add(measure::element_of(d_y_, row, m), measure::element_of(w2_, h, m));
  }
  return v;
}

std::vector<PlainExpert::Hidden> PlainExpert::hidden_of_row(int64_t row) const {
  std::vector<Hidden> all;
  for (int64_t h = 0; h < w2_.rows; ++h) all.push_back(hidden(row, h));
  return all;
}

std::vector<PlainExpert::Hidden> PlainExpert::hidden_of_column(int64_t h) const {
  std::vector<Hidden> all;
  for (int64_t row = 0; row < x_.rows; ++row) all.push_back(hidden(row, h));
  return all;
}

measure::WrongElements PlainExpert::wrong_output(const Matrix& found) const {
  const measure::SumCheck check = check_of("output", w2_.rows);
  measure::WrongElements wrong;
  for (const int64_t row : measure::evenly_spaced(x_.rows, kSampled)) {
    const std::vector<Hidden> all = hidden_of_row(row);
    for (int64_t col = 0; col < x_.cols; ++col) {
      measure::ExactSum sum;
      for (int64_t h = 0; h < w2_.rows; ++h) sum.add(all[h].out(), measure::element_of(w2_, h, col));
      compare(check, {found, row, col}, sum, wrong);
    }
  }
  return wrong;
}

void PlainExpert::check_input_gradient(const Matrix& d_x, measure::WrongElements& wrong) const {
  const measure::SumCheck check = check_of("input gradient", w2_.rows);
  for (const int64_t row : measure::evenly_spaced(x_.rows, kSampled)) {
    const std::vector<Hidden> all = hidden_of_row(row);
    for (int64_t m = 0; m < x_.cols; ++m) {
      measure::ExactSum sum;
      for (int64_t h = 0; h < w2_.rows; ++h) {
        sum.add(all[h].d_in(), measure::element_of(w1_, m, h));
        if (gated_) sum.add(all[h].d_gate(), measure::element_of(w3_, m, h));
      }
      compare(check, {d_x, row, m}, sum, wrong);
    }
  }
}

measure::WrongElements PlainExpert::wrong_gradients(const Matrix& d_x) const {
  measure::WrongElements wrong;
  check_input_gradient(d_x, wrong);
  for (const int64_t h : measure::evenly_spaced(w2_.rows, kSampled)) {
    const std::vector<Hidden> all = hidden_of_column(h);
    // Checks index h of a gradient, a column for w1 and w3, a row for w2: sums of `of` (rows, M) times `by` over rows.
    const auto check = [&](std::string_view name, const Matrix& of, auto by) {
      const Matrix& found = weights_.at(std::string(name)).gradient;
      for (int64_t m = 0; m < x_.cols; ++m) {
        measure::ExactSum sum;
        for (int64_t row = 0; row < x_.rows; ++row) sum.add(measure::element_of(of, row, m), by(all[row]));
        const bool column = name != kW2;
        compare(check_of(fmt::format("gradient of {}", name), x_.rows), {found, column ? m : h, column ? h : m}, sum,
                wrong);
      }
    };
    check(kW1, x_, [](const Hidden& v) { return v.d_in(); });
    if (gated_) check(kW3, x_, [](const Hidden& v) { return v.d_gate(); });
    check(kW2, d_y_, [](const Hidden& v) { return v.out(); });
  }
  return wrong;
}

}  // namespace moe::microbench
