#include "moe/cost/linear_program.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace moe::cost {
namespace {

constexpr double kZero = 1e-12;

// Holds the rows of the tableau: the program's, with a slack variable each, then the gains; the last column is the
// limits.
class Tableau {
 public:
  Tableau(const LinearProgram& program, std::span<const double> gains)
      : rows_(program.rows.size()), columns_(gains.size() + rows_ + 1), basis_(rows_) {
    cells_.assign((rows_ + 1) * columns_, 0);
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t c = 0; c < gains.size(); ++c) at(r, c) = program.rows[r][c];
      at(r, gains.size() + r) = 1;
      at(r, columns_ - 1) = program.limits[r];
      basis_[r] = gains.size() + r;
    }
    for (size_t c = 0; c < gains.size(); ++c) at(rows_, c) = -gains[c];
  }

  double most() {
    for (;;) {
      size_t entering = 0;
      while (entering + 1 < columns_ && at(rows_, entering) >= -kZero) ++entering;
      if (entering + 1 == columns_) return at(rows_, columns_ - 1);
      const std::optional<size_t> leaving = tightest(entering);
      if (!leaving) return std::numeric_limits<double>::infinity();
      pivot(*leaving, entering);
    }
  }

 private:
  double& at(size_t row, size_t column) { return cells_[row * columns_ + column]; }

  std::optional<size_t> tightest(size_t entering) {
    std::optional<size_t> best;
    double least = 0;
    for (size_t r = 0; r < rows_; ++r) {
      if (at(r, entering) <= kZero) continue;
      const double ratio = at(r, columns_ - 1) / at(r, entering);
      if (!best || ratio < least || (ratio == least && basis_[r] < basis_[*best])) best = r, least = ratio;
    }
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

  size_t rows_, columns_;
  std::vector<size_t> basis_;
  std::vector<double> cells_;
};

}  // namespace

double most(const LinearProgram& program, std::span<const double> gains) { return Tableau(program, gains).most(); }

}  // namespace moe::cost
