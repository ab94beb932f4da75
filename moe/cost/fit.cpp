#include "moe/cost/fit.h"

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <set>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr size_t kHeldOutEvery = 4;

struct Line {
  double alpha = 0, beta = 0;
  bool clamped = false;
  double at(const FitSample& sample) const { return sample.starts * alpha + sample.size * beta; }
};

Line least_squares(const std::vector<FitSample>& samples) {
  const auto count = static_cast<Eigen::Index>(samples.size());
  // Sizes are scaled to [0, 1]: 1e10 FLOPs beside ones would cost half the digits.
  double scale = 0;
  for (const auto& sample : samples) scale = std::max(scale, sample.size);
  Eigen::MatrixX2d terms(count, 2);
  Eigen::VectorXd seconds(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const FitSample& sample = samples[static_cast<size_t>(i)];
    terms.row(i) << sample.starts, sample.size / scale;
    seconds(i) = sample.seconds;
  }
  // The normal equations: two columns, scaled alike, are well conditioned.
  const Eigen::Matrix2d normal = terms.transpose() * terms;
  const Eigen::Vector2d solved = normal.inverse() * (terms.transpose() * seconds);
  if (solved(0) >= 0) return {solved(0), solved(1) / scale, false};
  return {0, terms.col(1).dot(seconds) / terms.col(1).squaredNorm() / scale, true};
}

size_t distinct_sizes(const std::vector<FitSample>& samples) {
  std::set<double> sizes;
  for (const auto& sample : samples) sizes.insert(sample.size / sample.starts);
  return sizes.size();
}

double r_squared(const std::vector<FitSample>& samples, const Line& line) {
  double mean = 0, residual = 0, total = 0;
  for (const auto& sample : samples) mean += sample.seconds / static_cast<double>(samples.size());
  for (const auto& sample : samples) {
    residual += std::pow(sample.seconds - line.at(sample), 2);
    total += std::pow(sample.seconds - mean, 2);
  }
  return total > 0 ? 1 - residual / total : 0;
}

double median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

std::optional<double> held_out_error(const std::vector<FitSample>& samples) {
  std::vector<FitSample> kept, held_out;
  for (size_t i = 0; i < samples.size(); ++i) ((i + 1) % kHeldOutEvery == 0 ? held_out : kept).push_back(samples[i]);
  if (held_out.empty() || distinct_sizes(kept) < 2) return std::nullopt;
  const Line line = least_squares(kept);
  std::vector<double> errors;
  for (const auto& sample : held_out) errors.push_back(std::abs(line.at(sample) - sample.seconds) / sample.seconds);
  return median(std::move(errors));
}

}  // namespace

LinearFit fit_linear(std::vector<FitSample> samples, std::string_view what) {
  for (const auto& sample : samples) {
    const bool usable = std::isfinite(sample.size) && sample.size > 0 && std::isfinite(sample.seconds) &&
                        sample.seconds > 0 && std::isfinite(sample.starts) && sample.starts > 0;
    require<BadInput>(usable, "{}: found size {} in {} s, expected both > 0", what, sample.size, sample.seconds);
  }
  const size_t sizes = distinct_sizes(samples);
  require<BadInput>(sizes >= 2, "{}: found {} sizes, expected at least 2 to fit a line", what, sizes);
  std::stable_sort(samples.begin(), samples.end(),
                   [](const FitSample& a, const FitSample& b) { return a.size / a.starts < b.size / b.starts; });
  const Line line = least_squares(samples);
  require<BadInput>(line.beta > 0, "{}: found times that shrink as sizes grow ({} s a unit), expected growth", what,
                    line.beta);
  LinearFit fit;
  fit.alpha_s = line.alpha;
  fit.beta = line.beta;
  fit.alpha_clamped = line.clamped;
  fit.r_squared = r_squared(samples, line);
  fit.held_out_error = held_out_error(samples);
  fit.range = {samples.front().size / samples.front().starts, samples.back().size / samples.back().starts};
  fit.samples = samples.size();
  return fit;
}

}  // namespace moe
