#include "moe/prices/curve_fit.h"

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/base/statistics.h"
#include "moe/prices/detail/nnls.h"

namespace moe {
namespace {

constexpr size_t kMaxLines = 3000;  // as many as 77 samples have pairs; with more samples, random pairs are drawn
constexpr int kMaxReweightings = 20;

double residual(const Line& line, const FitSample& sample) {
  const double expected = line.at(sample);
  return expected > 0 ? std::abs(std::log(sample.seconds / expected)) : std::numeric_limits<double>::infinity();
}

std::vector<double> residuals(const Line& line, const std::vector<FitSample>& samples) {
  std::vector<double> all;
  for (const FitSample& sample : samples) all.push_back(residual(line, sample));
  return all;
}

// Fits alpha >= 0 and beta by least squares of weighted residuals.
Line weighted_least_squares(const std::vector<FitSample>& samples, const std::vector<double>& weights) {
  const auto count = static_cast<Eigen::Index>(samples.size());
  // Sizes and times are scaled to [0, 1], because 1e10 FLOPs in a matrix with ones would cost half the digits.
  double size_scale = 0, time_scale = 0;
  for (const auto& sample : samples) {
    size_scale = std::max(size_scale, sample.size);
    time_scale = std::max(time_scale, sample.seconds);
  }
  Eigen::MatrixX2d terms(count, 2);
  Eigen::VectorXd seconds(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const FitSample& sample = samples[i];
    const double weight = weights[i];
    terms.row(i) << weight * sample.starts, weight * sample.size / size_scale;
    seconds(i) = weight * sample.seconds / time_scale;
  }
  // The normal equations are well conditioned for two columns of the same scale.
  const Eigen::Matrix2d normal = terms.transpose() * terms;
  const Eigen::Vector2d solved = normal.inverse() * (terms.transpose() * seconds);
  if (solved(0) >= 0) return {solved(0) * time_scale, solved(1) * time_scale / size_scale, false};
  return {0, terms.col(1).dot(seconds) / terms.col(1).squaredNorm() * time_scale / size_scale, true};
}

// Returns the line through two samples; empty if its alpha or beta would be negative.
std::optional<Line> line_through(const FitSample& a, const FitSample& b) {
  const double ta = a.seconds / a.starts, tb = b.seconds / b.starts;
  const double beta = (tb - ta) / (b.size_per_start() - a.size_per_start());
  const double alpha = ta - a.size_per_start() * beta;
  if (!(std::isfinite(beta) && beta > 0 && alpha >= 0)) return std::nullopt;
  return Line{alpha, beta};
}

// Returns the line with the smallest median of relative residuals, among the lines through two samples and those
// through the origin and one sample.
Line min_median_line(const std::vector<FitSample>& samples) {
  Line best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Line& line) {
    const double median = upper_median(residuals(line, samples));
    if (median < least) least = median, best = line;
  };
  const size_t count = samples.size(), pairs = count * (count - 1) / 2;
  const uint64_t stream = random_stream_id("pairs of samples");
  const auto drawn = [&](uint64_t draw) { return random_bits(1, stream, draw) % count; };
  for (size_t i = 0; i < std::min(count, kMaxLines); ++i) consider({0, samples[i].seconds / samples[i].size, false});
  if (pairs <= kMaxLines) {
    for (size_t a = 0; a < count; ++a)
      for (size_t b = a + 1; b < count; ++b)
        if (const auto line = line_through(samples[a], samples[b])) consider(*line);
  } else {
    for (size_t draw = 0; draw < kMaxLines; ++draw)
      if (const auto line = line_through(samples[drawn(2 * draw)], samples[drawn(2 * draw + 1)])) consider(*line);
  }
  return best;
}

std::vector<bool> is_off_line(const Line& line, const std::vector<FitSample>& samples) {
  const std::vector<double> all = residuals(line, samples);
  const auto n = static_cast<double>(all.size());
  const double deviation = 1.4826 * (1 + 5 / (n - 2)) * upper_median(all);
  std::vector<bool> off;
  for (const double r : all) off.push_back(r > std::max(kMinOutlier, kOutlierDeviations * deviation));
  return off;
}

template <class Keep>
std::vector<FitSample> selected_samples(const std::vector<FitSample>& samples, Keep keep) {
  std::vector<FitSample> kept;
  for (size_t i = 0; i < samples.size(); ++i)
    if (keep(i)) kept.push_back(samples[i]);
  return kept;
}

}  // namespace

size_t distinct_sizes(const std::vector<FitSample>& samples) {
  std::set<double> sizes;
  for (const auto& sample : samples) sizes.insert(sample.size_per_start());
  return sizes.size();
}

Line least_squares(const std::vector<FitSample>& samples) {
  return weighted_least_squares(samples, std::vector<double>(samples.size(), 1));
}

Line relative_least_squares(const std::vector<FitSample>& samples) {
  std::vector<double> weights;
  for (const FitSample& sample : samples) weights.push_back(1 / sample.seconds);
  return weighted_least_squares(samples, weights);
}

std::vector<bool> outliers(const std::vector<FitSample>& samples) {
  const std::vector<bool> none(samples.size(), false);
  if (samples.size() < kMinWithOutliers || distinct_sizes(samples) < 2) return none;
  Line line = min_median_line(samples);
  std::vector<bool> off = is_off_line(line, samples);
  for (int i = 0; i < kMaxReweightings; ++i) {
    const std::vector<FitSample> kept = selected_samples(samples, [&](size_t s) { return !off[s]; });
    if (distinct_sizes(kept) < 2) return none;
    std::vector<double> weights;
    for (const FitSample& sample : kept) weights.push_back(1 / std::max(line.at(sample), sample.seconds * 1e-3));
    line = weighted_least_squares(kept, weights);
    std::vector<bool> next = is_off_line(line, samples);
    if (next == off) break;
    off = std::move(next);
  }
  return distinct_sizes(selected_samples(samples, [&](size_t s) { return !off[s]; })) < 2 ? none : off;
}

// Idea: a curve consists of its seconds at size 0 and the increment over each piece. For fixed knots, these follow from
// least squares of relative errors with nonnegative increments. Knots are searched in three ways: backwards, dropping
// from all candidates the knot whose loss costs least; forwards, adding to none the knot that helps most; and
// exchanging single knots while that helps.
// Invariant: curves never fall. Cross-validation chooses the number of pieces; the reported error of each fold uses the
// number that is best on the other folds.
// Source: NNLS by Lawson and Hanson (1974, nnls.h); knots forwards and backwards as in MARS (Friedman 1991).

namespace {

using Sizes = std::vector<double>;

constexpr size_t kMaxCandidates = 24;  // limit for candidate knots; of more sizes, evenly spread ones are used
constexpr int kMaxExchanges = 20;
constexpr double kRelativeTolerance = 1e-6, kExact = 1e-9;  // relative tolerance for equally good; rounding error

// A curve from size 0 on, given by its seconds at size 0 and its increment over each piece.
struct Curve {
  Sizes bounds;  // ends of pieces; the last is the largest size
  Eigen::VectorXd increments;
  double squares = 0;  // sum of squared relative residuals

  // Returns the share of a piece's increment that is reached at `size`: 0 to 1, and above 1 beyond the last piece.
  double share(double size, size_t piece) const {
    const double begin = piece == 0 ? 0 : bounds[piece - 1];
    const double part = std::max(0.0, (size - begin) / (bounds[piece] - begin));
    return piece + 1 == bounds.size() ? part : std::min(part, 1.0);
  }
  double at(double size) const {
    double seconds = increments(0);
    for (size_t piece = 0; piece < bounds.size(); ++piece)
      seconds += increments(static_cast<Eigen::Index>(piece) + 1) * share(size, piece);
    return seconds;
  }
};

Sizes distinct(const Points& sorted) {
  Sizes sizes;
  for (const auto& [size, seconds] : sorted)
    if (sizes.empty() || size != sizes.back()) sizes.push_back(size);
  return sizes;
}

Sizes candidates_of(const Sizes& sizes) {
  if (sizes.size() < 3) return {};
  Sizes inner(sizes.begin() + 1, sizes.end() - 1);
  if (inner.size() <= kMaxCandidates) return inner;
  Sizes some;
  for (size_t i = 0; i < kMaxCandidates; ++i) some.push_back(inner[i * (inner.size() - 1) / (kMaxCandidates - 1)]);
  return some;
}

// Finds knots and seconds for samples that are sorted by size.
class KnotSearch {
 public:
  explicit KnotSearch(const Points& samples) : samples_(samples), candidates_(candidates_of(distinct(samples))) {}

  // Returns the best curve found for each number of pieces from 1 to `most`; fewer if there are too few sizes.
  std::vector<Curve> curves(int most) const {
    const size_t inner = std::min(static_cast<size_t>(most) - 1, candidates_.size());
    std::vector<Curve> best = curves_by_knots(inner);
    Curve grown = best[0];
    for (size_t count = 1; count <= inner; ++count) {
      grown = best_of_each(knots_of(grown), candidates_, [](Sizes& knots, double c) { knots.push_back(c); });
      if (grown.squares < best[count].squares) best[count] = grown;
      best[count] = exchanged(std::move(best[count]));
      if (best[count].squares < grown.squares) grown = best[count];
    }
    return best;
  }

 private:
  static Sizes knots_of(const Curve& curve) { return {curve.bounds.begin(), curve.bounds.end() - 1}; }

  Curve fit(Sizes knots) const {
    std::ranges::sort(knots);
    knots.push_back(samples_.back()[0]);
    Curve curve{std::move(knots), {}};
    const auto rows = static_cast<Eigen::Index>(samples_.size());
    Eigen::MatrixXd terms(rows, static_cast<Eigen::Index>(curve.bounds.size()) + 1);
    for (Eigen::Index i = 0; i < rows; ++i) {
      const auto& [size, seconds] = samples_[i];
      terms(i, 0) = 1 / seconds;
      for (size_t piece = 0; piece < curve.bounds.size(); ++piece)
        terms(i, static_cast<Eigen::Index>(piece) + 1) = curve.share(size, piece) / seconds;
    }
    const Eigen::VectorXd ones = Eigen::VectorXd::Ones(rows);
    curve.increments = nnls(terms, ones);
    curve.squares = (terms * curve.increments - ones).squaredNorm();
    return curve;
  }

  // Returns the best of the curves with the knots change(knots, choice), over all choices.
  template <class Choices, class Change>
  Curve best_of_each(const Sizes& knots, const Choices& choices, Change change) const {
    std::optional<Curve> best;
    for (const auto choice : choices) {
      Sizes changed = knots;
      change(changed, choice);
      Sizes sorted = changed;
      std::ranges::sort(sorted);
      if (std::ranges::adjacent_find(sorted) != sorted.end()) continue;
      Curve curve = fit(changed);
      if (!best || curve.squares < best->squares) best = std::move(curve);
    }
    return *best;
  }

  // Starts from all candidates and repeatedly drops the knot whose loss costs least; returns the curve for each number
  // of inner knots.
  std::vector<Curve> curves_by_knots(size_t most) const {
    std::vector<Curve> by_count(most + 1);
    for (Curve curve = fit(candidates_);;) {
      const Sizes knots = knots_of(curve);
      if (knots.size() <= most) by_count[knots.size()] = curve;
      if (knots.empty()) return by_count;
      std::vector<ptrdiff_t> places(knots.size());
      std::iota(places.begin(), places.end(), 0);
      curve = best_of_each(knots, places, [](Sizes& all, ptrdiff_t place) { all.erase(all.begin() + place); });
    }
  }

  Curve exchanged(Curve curve) const {
    for (int round = 0; round < kMaxExchanges; ++round) {
      const Curve before = curve;
      for (size_t i = 0; i + 1 < before.bounds.size(); ++i) {
        Curve other = best_of_each(knots_of(curve), candidates_, [i](Sizes& knots, double c) { knots[i] = c; });
        if (other.squares < curve.squares) curve = std::move(other);
      }
      if (!(curve.squares < before.squares * (1 - kRelativeTolerance))) return curve;
    }
    return curve;
  }

  const Points& samples_;
  Sizes candidates_;
};

// The errors of held-out samples, for each number of pieces, and the fold in which each sample was left out.
class CrossValidation {
 public:
  CrossValidation(const Points& samples, int most) : errors_(static_cast<size_t>(most)) {
    const Sizes sizes = distinct(samples);
    const size_t folds = std::min<size_t>(kMaxFolds, sizes.size());
    for (const auto& [size, seconds] : samples)
      fold_.push_back(static_cast<size_t>(std::ranges::lower_bound(sizes, size) - sizes.begin()) % folds);
    for (auto& of_count : errors_) of_count.resize(samples.size());
    for (size_t fold = 0; fold < folds; ++fold) leave_out(samples, fold);
  }

  // Returns the number of pieces with the smallest error over all folds except `without`; of equally good ones, the
  // smallest.
  size_t best_count(std::optional<size_t> without = std::nullopt) const {
    std::vector<double> sums;
    for (const auto& of_count : errors_) {
      sums.push_back(0);
      for (size_t i = 0; i < fold_.size(); ++i) sums.back() += fold_[i] == without ? 0 : of_count[i];
    }
    const double least = *std::ranges::min_element(sums);
    const double enough = least * (1 + kRelativeTolerance) + kExact * static_cast<double>(fold_.size());
    return static_cast<size_t>(std::ranges::find_if(sums, [=](double s) { return s <= enough; }) - sums.begin()) + 1;
  }

  std::vector<double> held_out() const {
    std::vector<double> errors;
    for (size_t i = 0; i < fold_.size(); ++i) errors.push_back(errors_[best_count(fold_[i]) - 1][i]);
    return errors;
  }

 private:
  void leave_out(const Points& samples, size_t fold) {
    Points kept;
    for (size_t i = 0; i < samples.size(); ++i)
      if (fold_[i] != fold) kept.push_back(samples[i]);
    const std::vector<Curve> curves = KnotSearch(kept).curves(static_cast<int>(errors_.size()));
    for (size_t count = 0; count < errors_.size(); ++count) {
      const Curve& curve = curves[std::min(count, curves.size() - 1)];
      for (size_t i = 0; i < samples.size(); ++i)
        if (fold_[i] == fold) errors_[count][i] = std::abs(curve.at(samples[i][0]) / samples[i][1] - 1);
    }
  }

  std::vector<size_t> fold_;                 // for each sample
  std::vector<std::vector<double>> errors_;  // by number of pieces - 1 and sample
};

Points knots_of_pieces(const Curve& curve, double min_size) {
  Points knots{{min_size, curve.at(min_size)}};
  for (const double bound : curve.bounds) knots.push_back({bound, std::max(curve.at(bound), knots.back()[1])});
  return knots;
}

}  // namespace

double PiecewiseCurve::seconds(double size) const {
  size_t end = 1;
  while (end + 1 < knots.size() && knots[end][0] < size) ++end;
  const std::array<double, 2>&from = knots[end - 1], &to = knots[end];
  return from[1] + (to[1] - from[1]) * (size - from[0]) / (to[0] - from[0]);
}

std::optional<double> PiecewiseCurve::held_out_error() const {
  return held_out.empty() ? std::nullopt : std::optional(median(held_out));
}

std::optional<double> PiecewiseCurve::held_out_worst() const {
  return held_out.empty() ? std::nullopt : std::optional(*std::ranges::max_element(held_out));
}

PiecewiseCurve fit_pieces(Points samples, std::string_view what, int most) {
  require<BadInput>(most >= 1, "{}: found {} pieces, expected at least 1", what, most);
  for (const auto& [size, seconds] : samples) {
    const bool usable = std::isfinite(size) && size > 0 && std::isfinite(seconds) && seconds > 0;
    require<BadInput>(usable, "{}: found size {} in {} s, expected both > 0", what, size, seconds);
  }
  std::ranges::sort(samples);
  const Sizes sizes = distinct(samples);
  require<BadInput>(sizes.size() >= 2, "{}: found {} sizes, expected at least 2 for a curve", what, sizes.size());
  PiecewiseCurve pieces;
  size_t count = 1;
  if (sizes.size() > 2) {
    const CrossValidation validation(samples, most);
    count = validation.best_count();
    pieces.held_out = validation.held_out();
  }
  const std::vector<Curve> curves = KnotSearch(samples).curves(static_cast<int>(count));
  const double enough =
      curves.back().squares * (1 + kRelativeTolerance) + kExact * kExact * static_cast<double>(samples.size());
  const auto best = std::ranges::find_if(curves, [=](const Curve& curve) { return curve.squares <= enough; });
  pieces.knots = knots_of_pieces(*best, samples.front()[0]);
  return pieces;
}

}  // namespace moe
