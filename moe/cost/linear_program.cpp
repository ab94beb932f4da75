#include "moe/cost/linear_program.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace moe::cost {
namespace {

constexpr double kRounding = 1e-9;  // cells below are what rounding left
constexpr double kNoGain = 1e-15;   // of the largest gain
constexpr int kMostPivots = 1000;

// Holds the rows of the tableau: the program's, with a slack variable each, then the gains; the last column is the
// limits.
class Tableau {
 public:
  Tableau(const LinearProgram& program, std::span<const double> gains)
      : rows_(program.rows.size()), variables_(gains.size()), columns_(variables_ + rows_ + 1), basis_(rows_) {
    cells_.assign((rows_ + 1) * columns_, 0);
    const double largest = std::ranges::max(gains);
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t c = 0; c < variables_; ++c) at(r, c) = program.rows[r][c];
      at(r, variables_ + r) = 1;
      at(r, columns_ - 1) = program.limits[r];
      basis_[r] = variables_ + r;
    }
    for (size_t c = 0; c < variables_; ++c) at(rows_, c) = -gains[c] / largest;
  }

  // Goes to a corner that gains more; returns false at the best one, or where rounding has spoilt the rows.
  bool improve() {
    const auto gains = cells_.begin() + static_cast<std::ptrdiff_t>(rows_ * columns_);
    const auto entering = std::min_element(gains, gains + static_cast<std::ptrdiff_t>(columns_ - 1));
    if (*entering >= -kNoGain) return false;
    const auto column = static_cast<size_t>(entering - gains);
    const std::optional<size_t> leaving = tightest(column);
    if (leaving) pivot(*leaving, column);
    return leaving.has_value();
  }

  std::vector<double> corner() {
    std::vector<double> x(variables_, 0);
    for (size_t r = 0; r < rows_; ++r)
      if (basis_[r] < variables_) x[basis_[r]] = std::max(0.0, at(r, columns_ - 1));
    return x;
  }

 private:
  double& at(size_t row, size_t column) { return cells_[row * columns_ + column]; }

  // Of rows that are as tight, that with the largest cell: a pivot on a small one would spoil the others.
  std::optional<size_t> tightest(size_t entering) {
    double least = std::numeric_limits<double>::infinity();
    const auto ratio = [&](size_t r) { return at(r, columns_ - 1) / at(r, entering); };
    for (size_t r = 0; r < rows_; ++r)
      if (at(r, entering) > kRounding) least = std::min(least, ratio(r));
    std::optional<size_t> best;
    for (size_t r = 0; r < rows_; ++r)
      if (at(r, entering) > kRounding && ratio(r) <= least + kRounding &&
          (!best || at(r, entering) > at(*best, entering)))
        best = r;
    return best;
  }

  void pivot(size_t row, size_t column) {
    const double by = at(row, column);
    for (size_t c = 0; c < columns_; ++c) at(row, c) /= by;
    for (size_t r = 0; r <= rows_; ++r) {
      const double times = at(r, column);
      if (r == row || times == 0) continue;
      for (size_t c = 0; c < columns_; ++c) at(r, c) -= times * at(row, c);
    }
    basis_[row] = column;
  }

  size_t rows_, variables_, columns_;
  std::vector<size_t> basis_;
  std::vector<double> cells_;
};

double product(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Brings x >= 0 within all limits.
void make_feasible(const LinearProgram& program, std::vector<double>& x) {
  double most = 1;
  for (size_t r = 0; r < program.rows.size(); ++r) {
    if (program.limits[r] > 0) continue;
    for (size_t c = 0; c < x.size(); ++c)
      if (program.rows[r][c] > 0) x[c] = 0;
  }
  for (size_t r = 0; r < program.rows.size(); ++r)
    if (program.limits[r] > 0) most = std::max(most, product(program.rows[r], x) / program.limits[r]);
  for (double& each : x) each /= most;
}

}  // namespace

double most(const LinearProgram& program, std::span<const double> gains) {
  for (size_t c = 0; c < gains.size(); ++c)
    if (gains[c] > 0 && std::ranges::none_of(program.rows, [&](const auto& row) { return row[c] > 0; }))
      return std::numeric_limits<double>::infinity();
  if (std::ranges::none_of(gains, [](double gain) { return gain > 0; })) return 0;
  Tableau tableau(program, gains);
  double most = 0;
  for (int pivots = 0; pivots < kMostPivots && tableau.improve(); ++pivots) {
    std::vector<double> x = tableau.corner();
    make_feasible(program, x);
    most = std::max(most, product(gains, x));
  }
  return most;
}

}  // namespace moe::cost
