#include "moe/cost/line.h"

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "moe/base/random.h"
#include "moe/base/statistics.h"

namespace moe {
namespace {

constexpr size_t kMostLines = 3000;  // all pairs of 77 samples; of more samples as many, drawn
constexpr int kMostReweightings = 20;

double residual(const Line& line, const FitSample& sample) {
  const double expected = line.at(sample);
  return expected > 0 ? std::abs(std::log(sample.seconds / expected)) : std::numeric_limits<double>::infinity();
}

std::vector<double> residuals(const Line& line, const std::vector<FitSample>& samples) {
  std::vector<double> all;
  for (const FitSample& sample : samples) all.push_back(residual(line, sample));
  return all;
}

// Fits by least squares of sqrt(weight) seconds.
Line weighted_least_squares(const std::vector<FitSample>& samples, const std::vector<double>& weights) {
  const auto count = static_cast<Eigen::Index>(samples.size());
  // Sizes and times are scaled to [0, 1]: 1e10 FLOPs beside ones would cost half the digits.
  double size_scale = 0, time_scale = 0;
  for (const auto& sample : samples) {
    size_scale = std::max(size_scale, sample.size);
    time_scale = std::max(time_scale, sample.seconds);
  }
  Eigen::MatrixX2d terms(count, 2);
  Eigen::VectorXd seconds(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const FitSample& sample = samples[static_cast<size_t>(i)];
    const double weight = weights[static_cast<size_t>(i)];
    terms.row(i) << weight * sample.starts, weight * sample.size / size_scale;
    seconds(i) = weight * sample.seconds / time_scale;
  }
  // The normal equations: two columns, scaled alike, are well conditioned.
  const Eigen::Matrix2d normal = terms.transpose() * terms;
  const Eigen::Vector2d solved = normal.inverse() * (terms.transpose() * seconds);
  if (solved(0) >= 0) return {solved(0) * time_scale, solved(1) * time_scale / size_scale, false};
  return {0, terms.col(1).dot(seconds) / terms.col(1).squaredNorm() * time_scale / size_scale, true};
}

// Returns the line through two samples; none where it would fall, or start below 0.
std::optional<Line> line_through(const FitSample& a, const FitSample& b) {
  const double ta = a.seconds / a.starts, tb = b.seconds / b.starts;
  const double beta = (tb - ta) / (b.size_of_one() - a.size_of_one());
  const double alpha = ta - a.size_of_one() * beta;
  if (!(std::isfinite(beta) && beta > 0 && alpha >= 0)) return std::nullopt;
  return Line{alpha, beta};
}

// Returns the least median of relative residuals over lines through two samples, or through one and the origin.
Line least_median_line(const std::vector<FitSample>& samples) {
  Line best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const Line& line) {
    const double median = upper_median(residuals(line, samples));
    if (median < least) least = median, best = line;
  };
  const size_t count = samples.size(), pairs = count * (count - 1) / 2;
  const uint64_t stream = stream_of("pairs of samples");
  const auto drawn = [&](uint64_t draw) { return random_bits(1, stream, draw) % count; };
  for (size_t i = 0; i < std::min(count, kMostLines); ++i) consider({0, samples[i].seconds / samples[i].size, false});
  if (pairs <= kMostLines) {
    for (size_t a = 0; a < count; ++a)
      for (size_t b = a + 1; b < count; ++b)
        if (const auto line = line_through(samples[a], samples[b])) consider(*line);
  } else {
    for (size_t draw = 0; draw < kMostLines; ++draw)
      if (const auto line = line_through(samples[drawn(2 * draw)], samples[drawn(2 * draw + 1)])) consider(*line);
  }
  return best;
}

std::vector<bool> off_the_line(const Line& line, const std::vector<FitSample>& samples) {
  const std::vector<double> all = residuals(line, samples);
  const auto n = static_cast<double>(all.size());
  const double deviation = 1.4826 * (1 + 5 / (n - 2)) * upper_median(all);
  std::vector<bool> off;
  for (const double r : all) off.push_back(r > std::max(kLeastOutlier, kOutlierDeviations * deviation));
  return off;
}

template <class Keep>
std::vector<FitSample> those(const std::vector<FitSample>& samples, Keep keep) {
  std::vector<FitSample> kept;
  for (size_t i = 0; i < samples.size(); ++i)
    if (keep(i)) kept.push_back(samples[i]);
  return kept;
}

}  // namespace

size_t distinct_sizes(const std::vector<FitSample>& samples) {
  std::set<double> sizes;
  for (const auto& sample : samples) sizes.insert(sample.size_of_one());
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
  if (samples.size() < kFewestWithOutliers || distinct_sizes(samples) < 2) return none;
  Line line = least_median_line(samples);
  std::vector<bool> off = off_the_line(line, samples);
  for (int i = 0; i < kMostReweightings; ++i) {
    const std::vector<FitSample> kept = those(samples, [&](size_t s) { return !off[s]; });
    if (distinct_sizes(kept) < 2) return none;
    std::vector<double> weights;
    for (const FitSample& sample : kept) weights.push_back(1 / std::max(line.at(sample), sample.seconds * 1e-3));
    line = weighted_least_squares(kept, weights);
    std::vector<bool> next = off_the_line(line, samples);
    if (next == off) break;
    off = std::move(next);
  }
  return distinct_sizes(those(samples, [&](size_t s) { return !off[s]; })) < 2 ? none : off;
}

}  // namespace moe
