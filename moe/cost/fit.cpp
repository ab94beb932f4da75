#include "moe/cost/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/cost/piecewise.h"

namespace moe {
namespace {

constexpr double kFlat = 2;
constexpr size_t kNamedInAWarning = 3;  // of the samples that a row sets aside

double r_squared(const std::vector<FitSample>& samples, const Line& line) {
  double mean = 0, residual = 0, total = 0, most = 0;
  for (const auto& sample : samples) most = std::max(most, sample.seconds);
  for (const auto& sample : samples) mean += sample.seconds / most / static_cast<double>(samples.size());
  for (const auto& sample : samples) {
    residual += std::pow((sample.seconds - line.at(sample)) / most, 2);
    total += std::pow(sample.seconds / most - mean, 2);
  }
  return total > 0 ? std::max(1 - residual / total, std::numeric_limits<double>::lowest()) : 0;
}

// Returns each sample's error by the line of the other sizes; none where too few sizes are left to fit.
std::vector<double> held_out_errors(const std::vector<FitSample>& samples, const std::vector<FitSample>& kept) {
  std::map<double, Line> without;
  for (const FitSample& sample : samples) {
    const auto [line, fresh] = without.try_emplace(sample.size_of_one());
    if (!fresh) continue;
    std::vector<FitSample> others;
    for (const FitSample& other : kept)
      if (other.size_of_one() != line->first) others.push_back(other);
    if (distinct_sizes(others) < 2) return {};
    line->second = least_squares(others);
  }
  std::vector<double> errors;
  for (const FitSample& sample : samples) {
    const double error = std::abs(without.at(sample.size_of_one()).at(sample) / sample.seconds - 1);
    errors.push_back(std::min(error, std::numeric_limits<double>::max()));
  }
  return errors;
}

// Says whether the line is steep enough to judge by r^2, which tells of noise alone where it is nearly flat.
bool rises(const LinearFit& fit) {
  return fit.alpha_s + fit.range[1] * fit.beta > kFlat * (fit.alpha_s + fit.range[0] * fit.beta);
}

// Names the limits that `fit` breaks; `worst`: the largest held-out error of what is kept.
std::string weakness(const LinearFit& fit, double worst) {
  std::string why;
  const auto add = [&](const std::string& text) { why += (why.empty() ? "" : ", ") + text; };
  const double aside = static_cast<double>(fit.set_aside.size()) / static_cast<double>(fit.samples);
  if (!fit.held_out_error) add("too few sizes to judge it");
  if (aside > kMostSetAside) add(fmt::format("{} of {} samples set aside", fit.set_aside.size(), fit.samples));
  if (fit.held_out_error > kMostHeldOutError) add(fmt::format("held-out error {:.0f} %", 100 * *fit.held_out_error));
  if (worst > kMostHeldOutWorst) add(fmt::format("held-out error {:.0f} % at worst", 100 * worst));
  const bool by_line = fit.points.empty();
  if (by_line && !(fit.r_squared_kept >= kLeastRSquaredOfKept) && rises(fit))
    add(fmt::format("r^2 {:.2f}", fit.r_squared_kept));
  return why;
}

// Errors are of all samples, in their order; those of `off` are set aside.
void judge(LinearFit& fit, std::vector<double> errors, const std::vector<bool>& off) {
  double worst = 0;
  for (size_t i = 0; i < errors.size(); ++i)
    if (!off[i]) worst = std::max(worst, errors[i]);
  if (!errors.empty()) {
    fit.held_out_worst = *std::ranges::max_element(errors);
    fit.held_out_error = median(errors);
  }
  fit.weak = weakness(fit, worst);
}

}  // namespace

LinearFit fit_linear(std::vector<FitSample> samples, std::string_view what) {
  for (const auto& sample : samples) {
    const bool usable = std::isfinite(sample.size) && sample.size > 0 && std::isfinite(sample.seconds) &&
                        sample.seconds > 0 && std::isfinite(sample.starts) && sample.starts > 0;
    require<BadInput>(usable, "{}: found size {} in {} s, expected both > 0", what, sample.size, sample.seconds);
  }
  const size_t sizes = distinct_sizes(samples);
  require<NoLine>(sizes >= 2, "{}: found {}, expected at least 2 to fit a line", what, counted(sizes, "size"));
  std::ranges::stable_sort(samples, {}, &FitSample::size_of_one);
  const std::vector<bool> off = outliers(samples);
  std::vector<FitSample> kept;
  for (size_t i = 0; i < samples.size(); ++i)
    if (!off[i]) kept.push_back(samples[i]);
  const Line line = least_squares(kept);
  require<NoLine>(line.beta > 0 && std::isfinite(line.beta) && std::isfinite(line.alpha),
                  "{}: found times that shrink as sizes grow, expected growth", what);
  LinearFit fit;
  fit.alpha_s = line.alpha;
  fit.beta = line.beta;
  fit.alpha_clamped = line.clamped;
  fit.r_squared = r_squared(samples, line);
  fit.r_squared_kept = r_squared(kept, line);
  fit.range = {kept.front().size_of_one(), kept.back().size_of_one()};
  fit.samples = samples.size();
  for (size_t i = 0; i < samples.size(); ++i)
    if (off[i]) fit.set_aside.push_back({samples[i].name, samples[i].size, samples[i].seconds, line.at(samples[i])});
  judge(fit, held_out_errors(samples, kept), off);
  return fit;
}

LinearFit fit_without_line(const std::vector<FitSample>& samples, std::string_view why) {
  constexpr double kNearlyFlat = 1e-3;  // of the median over the largest size: a row's beta is above 0
  std::vector<double> sizes, seconds;
  for (const FitSample& sample : samples) sizes.push_back(sample.size), seconds.push_back(sample.seconds);
  const auto [least, most] = std::ranges::minmax(sizes);
  LinearFit fit;
  fit.samples = samples.size();
  fit.alpha_s = median(seconds);
  fit.beta = kNearlyFlat * fit.alpha_s / most;
  fit.range = {least < most ? least : least * (1 - 1e-9), most};  // a range has a length
  fit.weak = why;
  return fit;
}

void fit_curve(const std::vector<FitSample>& samples, std::string_view what, LinearFit& fit) {
  if (fit.held_out_error && *fit.held_out_error <= kLineError) return;
  std::vector<FitSample> kept;
  Points points;
  for (const FitSample& sample : samples) {
    const auto same = [&](const SetAside& s) { return s.size == sample.size && s.seconds == sample.seconds; };
    if (std::ranges::any_of(fit.set_aside, same)) continue;
    kept.push_back(sample);
    points.push_back({sample.size, sample.seconds});
  }
  const PiecewiseCurve pieces = fit_pieces(points, what);
  const std::optional<double> error = pieces.held_out_error();
  // Both errors are of the samples that are kept.
  const std::vector<double> of_line = held_out_errors(kept, kept);
  const std::optional<double> line_error = of_line.empty() ? std::nullopt : std::optional(median(of_line));
  if (!error || pieces.knots.size() < 3 || (line_error && *error > kClearlyBelow * *line_error)) return;
  const Line line = relative_least_squares(kept);
  if (line.beta > 0 && std::isfinite(line.beta) && std::isfinite(line.alpha)) {
    fit.alpha_s = line.alpha;
    fit.beta = line.beta;
    fit.alpha_clamped = line.clamped;
    fit.r_squared = r_squared(samples, line);
    fit.r_squared_kept = r_squared(kept, line);
    for (SetAside& aside : fit.set_aside) aside.expected_s = line.at({aside.size, aside.seconds});
  }
  fit.line_error = line_error;
  fit.held_out_error = error;
  fit.held_out_worst = pieces.held_out_worst();
  fit.points = pieces.knots;
  fit.range = {fit.points.front()[0], fit.points.back()[0]};
  fit.weak = weakness(fit, fit.held_out_worst.value_or(0));
}

std::string shown_r_squared(double r_squared) {
  return r_squared > -10 ? fmt::format("{:.7f}", r_squared) : fmt::format("{:.2g}", r_squared);
}

std::vector<FitWarning> fit_warnings(const FittedProfile& fitted) {
  std::vector<FitWarning> warnings;
  const auto add_weak = [&](const std::string& row, const std::string& why) {
    if (!why.empty()) warnings.push_back({fmt::format("{} is weak, what it prices is labelled: {}", row, why), true});
  };
  for (const auto& [what, fit, unusable] : fitted.rows) {
    if (!unusable.empty())
      warnings.push_back({fmt::format("{} is unusable, what needs it has no price: {}", what, unusable)});
    add_weak(what, fit.weak);
    if (fit.set_aside.empty()) continue;
    std::string text =
        fmt::format("{}: {} of {} samples set aside (r^2 {} of all, {} of the rest)", what, fit.set_aside.size(),
                    fit.samples, shown_r_squared(fit.r_squared), shown_r_squared(fit.r_squared_kept));
    for (size_t i = 0; i < fit.set_aside.size() && i < kNamedInAWarning; ++i) {
      const SetAside& s = fit.set_aside[i];
      text +=
          fmt::format("{} {} took {:.4g} s, by the line {:.4g} s", i == 0 ? ":" : ";", s.name, s.seconds, s.expected_s);
    }
    if (fit.set_aside.size() > kNamedInAWarning)
      text += fmt::format("; {} more, as the profile lists", fit.set_aside.size() - kNamedInAWarning);
    warnings.push_back({std::move(text)});
  }
  for (const TaskRow& row : fitted.profile.tasks) add_weak(row_name(row), row.verdict.weak);
  return warnings;
}

}  // namespace moe
