// Idea: at any time some set of works runs, each at its rate under contention. To choose how long each set runs so that
// all work is completed in the least total time is a linear program. Its dual gives each work a price per second such
// that no set earns more than 1 per second; the value of all work at these prices is the bound.
// Invariant: ignoring that work can't be interrupted, and waits for other work in its stretch, only lowers the bound.
// Source: lower bounds by sets of activities that can run at the same time (Mingozzi et al. 1998), here with rates.
#include "moe/simulator/contended_work.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "moe/simulator/slowdown.h"

namespace moe {
namespace {

class Program {
 public:
  Program(const Contention& contention, size_t works) : slowdown_(contention), works_(works) {}

  // Adds a row for each set of works with at least one work of `first`. `first_at`, `second_at`: index of their first
  // variable.
  void add_sets(std::span<const LaneWork> first, size_t first_at, std::span<const LaneWork> second, size_t second_at) {
    for (size_t set = 1; set < size_t{1} << (first.size() + second.size()); ++set) {
      if ((set & ((size_t{1} << first.size()) - 1)) == 0) continue;
      running_.clear();
      for (size_t i = 0; i < first.size(); ++i)
        if ((set >> i & 1) != 0) running_.emplace_back(first_at + i, &first[i]);
      for (size_t i = 0; i < second.size(); ++i)
        if ((set >> (first.size() + i) & 1) != 0) running_.emplace_back(second_at + i, &second[i]);
      if (lanes_differ()) add_row();
    }
  }

  double most(std::span<const double> gains) {
    program_.limits.assign(program_.rows.size(), 1);
    return maximum(program_, gains);
  }

 private:
  bool lanes_differ() const {
    for (size_t i = 0; i < running_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (running_[i].second->lane == running_[j].second->lane) return false;
    return true;
  }

  void add_row() {
    const auto resource_of = [](const auto& each) { return each.second->resource; };
    std::vector<double>& row = program_.rows.emplace_back(works_, 0.0);
    for (const auto& [at, work] : running_) row[at] = slowdown_.rate(running_, resource_of, work->resource);
  }

  Slowdown slowdown_;
  size_t works_;
  std::vector<std::pair<size_t, const LaneWork*>> running_;
  LinearProgram program_;
};

}  // namespace

void add_work(std::vector<LaneWork>& works, const LaneWork& work) {
  for (LaneWork& known : works)
    if (known.lane == work.lane && known.resource == work.resource) {
      known.seconds += work.seconds;
      return;
    }
  works.push_back(work);
}

double min_contended_seconds(const Contention& contention, std::span<const std::vector<LaneWork>> stretches,
                             std::span<const LaneWork> beside) {
  std::vector<double> gains;
  for (const LaneWork& work : beside) gains.push_back(work.seconds);
  for (const auto& stretch : stretches)
    for (const LaneWork& work : stretch) gains.push_back(work.seconds);
  Program program(contention, gains.size());
  program.add_sets(beside, 0, {}, 0);
  size_t at = beside.size();
  for (const auto& stretch : stretches) {
    program.add_sets(stretch, at, beside, 0);
    at += stretch.size();
  }
  return program.most(gains);
}

namespace {

constexpr double kRounding = 1e-9;  // smaller cells count as rounding errors
constexpr double kNoGain = 1e-15;   // relative to the largest gain
constexpr int kMaxPivots = 1000;

// The tableau of the simplex method: one row per row of the program, each with a slack variable, then the row of gains.
// The last column has the limits.
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

  // Moves to a corner with a larger gain. Returns false at the best corner, or if rounding errors prevent a step.
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

  // Returns the row that limits the entering variable most; of equally tight rows, the one with the largest cell,
  // because a pivot on a small cell loses precision.
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

// Scales x >= 0 down so that it is within all limits.
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

double maximum(const LinearProgram& program, std::span<const double> gains) {
  for (size_t c = 0; c < gains.size(); ++c)
    if (gains[c] > 0 && std::ranges::none_of(program.rows, [&](const auto& row) { return row[c] > 0; }))
      return std::numeric_limits<double>::infinity();
  if (std::ranges::none_of(gains, [](double gain) { return gain > 0; })) return 0;
  Tableau tableau(program, gains);
  double most = 0;
  for (int pivots = 0; pivots < kMaxPivots && tableau.improve(); ++pivots) {
    std::vector<double> x = tableau.corner();
    make_feasible(program, x);
    most = std::max(most, product(gains, x));
  }
  return most;
}

}  // namespace moe
