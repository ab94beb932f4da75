#include "moe/prices/detail/nnls.h"

#include <Eigen/QR>
#include <algorithm>
#include <vector>

#include "moe/base/check.h"

namespace moe {
namespace {

using Eigen::Index;

// A shorter column, after projecting out the previous columns, counts as dependent on them.
constexpr double kRankTolerance = 1e-8;
constexpr double kGradientTolerance = 1e-12;  // a smaller share of the largest correlation counts as 0

// A least-squares problem whose columns have length 1 (or 0), and the passive set: the columns whose coefficients may
// be above 0. All other coefficients are 0.
class ActiveSets {
 public:
  ActiveSets(const Eigen::MatrixXd& a, const Eigen::VectorXd& b)
      : a_(a), b_(b), lengths_(a.colwise().norm()), x_(Eigen::VectorXd::Zero(a.cols())) {
    for (Index i = 0; i < a_.cols(); ++i)
      if (lengths_(i) > 0) a_.col(i) /= lengths_(i);
  }

  Eigen::VectorXd solve() {
    if (!all_at_once()) add_one_by_one();
    for (Index i = 0; i < x_.size(); ++i)
      if (lengths_(i) > 0) x_(i) /= lengths_(i);
    return x_;
  }

 private:
  // Solves least squares without constraints; returns whether that is the answer, because no coefficient is negative.
  bool all_at_once() {
    if (a_.cols() == 0 || a_.rows() < a_.cols()) return false;
    const Eigen::HouseholderQR<Eigen::MatrixXd> factors(a_);
    if (factors.matrixQR().diagonal().cwiseAbs().minCoeff() < kRankTolerance) return false;
    const Eigen::VectorXd free = factors.solve(b_);
    if (free.minCoeff() < 0) return false;
    x_ = free;
    return true;
  }

  void add_one_by_one() {
    const double least = kGradientTolerance * b_.norm();
    // Lawson and Hanson's loop always terminates; the limit is for rounding errors, which could make it return to an
    // earlier set.
    for (Index round = 0; round < 3 * a_.cols() + 10; ++round) {
      const Eigen::VectorXd gradient = a_.transpose() * (b_ - a_ * x_);
      Index best = -1;
      for (Index i = 0; i < a_.cols(); ++i)
        if (std::ranges::find(passive_, i) == passive_.end() && gradient(i) > (best < 0 ? least : gradient(best)))
          best = i;
      if (best < 0) return;
      passive_.push_back(best);
      solve_passive();
    }
  }

  // Moves towards the least-squares solution of the passive columns; a column whose coefficient reaches 0 on the way
  // leaves the set.
  void solve_passive() {
    while (!passive_.empty()) {
      Eigen::MatrixXd columns(a_.rows(), static_cast<Index>(passive_.size()));
      for (size_t i = 0; i < passive_.size(); ++i) columns.col(static_cast<Index>(i)) = a_.col(passive_[i]);
      const Eigen::VectorXd target = columns.colPivHouseholderQr().solve(b_);
      double step = 1;
      for (size_t i = 0; i < passive_.size(); ++i) {
        const double from = x_(passive_[i]), to = target(static_cast<Index>(i));
        if (to <= 0) step = std::min(step, from > to ? from / (from - to) : 0);
      }
      for (size_t i = 0; i < passive_.size(); ++i)
        x_(passive_[i]) += step * (target(static_cast<Index>(i)) - x_(passive_[i]));
      if (step == 1) return;
      drop_reached(target);
    }
  }

  void drop_reached(const Eigen::VectorXd& target) {
    std::vector<Index> kept;
    for (size_t i = 0; i < passive_.size(); ++i) {
      double& x = x_(passive_[i]);
      if (target(static_cast<Index>(i)) <= 0 && x <= 1e-14 * b_.norm())
        x = 0;
      else
        kept.push_back(passive_[i]);
    }
    passive_ = std::move(kept);
  }

  Eigen::MatrixXd a_;
  const Eigen::VectorXd& b_;
  Eigen::VectorXd lengths_, x_;
  std::vector<Index> passive_;
};

}  // namespace

Eigen::VectorXd nnls(const Eigen::MatrixXd& a, const Eigen::VectorXd& b) {
  require<BadInput>(a.rows() == b.size(), "nnls: found {} rows and {} values, expected as many", a.rows(), b.size());
  return ActiveSets(a, b).solve();
}

}  // namespace moe
