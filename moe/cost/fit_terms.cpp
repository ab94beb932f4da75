#include "moe/cost/fit_terms.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/cost/fit.h"
#include "moe/cost/nnls.h"

namespace moe::cost {
namespace {

constexpr int kReweightings = 4;
constexpr double kFarOff = 3;  // medians of relative errors, from which on a sample weighs less
constexpr size_t kFewestToJudge = 3;

TermValues weighted_fit(const std::vector<TermSample>& samples, const std::vector<double>& weights) {
  const auto count = static_cast<Eigen::Index>(samples.size());
  Eigen::MatrixXd terms(count, kTerms);
  Eigen::VectorXd ones(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const TermSample& sample = samples[static_cast<size_t>(i)];
    ones(i) = weights[static_cast<size_t>(i)];
    for (size_t t = 0; t < kTerms; ++t)
      terms(i, static_cast<Eigen::Index>(t)) = ones(i) * sample.terms[t] / sample.seconds;
  }
  const Eigen::VectorXd solved = nnls(terms, ones);
  TermValues s_per{};
  std::ranges::copy(solved, s_per.begin());
  return s_per;
}

double error_of(const TermValues& s_per, const TermSample& sample) {
  return std::min(std::abs(dot(s_per, sample.terms) / sample.seconds - 1), std::numeric_limits<double>::max());
}

TermValues robust_fit(const std::vector<TermSample>& samples) {
  std::vector<double> weights(samples.size(), 1);
  TermValues s_per = weighted_fit(samples, weights);
  for (int i = 0; i < kReweightings; ++i) {
    std::vector<double> errors;
    for (const TermSample& sample : samples) errors.push_back(error_of(s_per, sample));
    const double far = kFarOff * median(errors);
    if (far == 0) break;
    for (size_t s = 0; s < samples.size(); ++s) weights[s] = errors[s] > far ? std::sqrt(far / errors[s]) : 1;
    s_per = weighted_fit(samples, weights);
  }
  return s_per;
}

void judge(const std::vector<TermSample>& samples, TaskRow& row) {
  std::vector<double> errors;
  for (size_t s = 0; samples.size() >= kFewestToJudge && s < samples.size(); ++s) {
    std::vector<TermSample> others = samples;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(s));
    errors.push_back(error_of(robust_fit(others), samples[s]));
  }
  if (errors.empty()) {
    row.verdict.weak = fmt::format("{}, too few to judge it", counted(samples.size(), "sample"));
    return;
  }
  row.held_out_error = median(errors);
  row.verdict.held_out_worst = *std::ranges::max_element(errors);
  if (*row.held_out_error > kMostHeldOutError)
    row.verdict.weak = fmt::format("held-out error {:.0f} %", 100 * *row.held_out_error);
  else if (*row.verdict.held_out_worst > kMostHeldOutWorst)
    row.verdict.weak = fmt::format("held-out error {:.0f} % at worst", 100 * *row.verdict.held_out_worst);
}

}  // namespace

void fit_terms(const std::vector<TermSample>& samples, std::string_view what, TaskRow& row) {
  require<BadInput>(!samples.empty(), "{}: found no sample, expected at least one", what);
  row.least = row.most = samples.front().terms;
  for (const TermSample& sample : samples) {
    require<BadInput>(std::isfinite(sample.seconds) && sample.seconds > 0, "{}: found {} s, expected more than 0", what,
                      sample.seconds);
    for (size_t t = 0; t < kTerms; ++t) {
      row.least[t] = std::min(row.least[t], sample.terms[t]);
      row.most[t] = std::max(row.most[t], sample.terms[t]);
    }
  }
  row.s_per = robust_fit(samples);
  for (const double s : row.s_per)
    require<NoLine>(std::isfinite(s), "{}: found {} s a unit of a term, expected a number", what, s);
  judge(samples, row);
}

}  // namespace moe::cost
