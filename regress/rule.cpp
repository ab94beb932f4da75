#include "regress/rule.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <limits>

namespace moe::regress {
namespace {

constexpr double kTail = 2.58;   // deviations: how sure the second stage is to be of half of delta
constexpr double kOften = 1.96;  // deviations that all but one of 40 means stay above
constexpr size_t kFewestLaunches = 10, kFewestOfMode = 2;
constexpr double kApart = 4;  // deviations within the modes, that lie between them
constexpr int kMostNeeded = 100000;

std::vector<double> log_ratios(const std::vector<Pair>& pairs) {
  std::vector<double> ratios;
  for (const Pair& pair : pairs) ratios.push_back(pair.log_ratio());
  return ratios;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return values.size() < 2 ? 0 : std::sqrt(sum / static_cast<double>(values.size() - 1));
}

int pairs_of_second(double deviation, const Rule& rule) {
  const double pairs = std::ceil(std::pow(kTail * deviation / (rule.log_delta() / 2), 2));
  return std::clamp(static_cast<int>(std::min<double>(pairs, kMostNeeded)), rule.least_pairs, rule.most_pairs);
}

// Returns how many pairs it would need, if mean and deviation stayed, to lie within delta or to be told from 0.
int pairs_needed(const std::vector<double>& ratios, const Rule& rule) {
  const TrimmedMean middle = trimmed_mean(ratios);
  const double mean = std::abs(middle.mean);
  const double room = mean < rule.log_delta() ? rule.log_delta() - mean : mean;
  const double pairs = std::ceil(std::pow(kTail * middle.deviation / room, 2));
  return std::clamp(static_cast<int>(std::min<double>(pairs, kMostNeeded)), static_cast<int>(ratios.size()) + 1,
                    kMostNeeded);
}

struct Modes {
  bool two = false;
  int slow_base = 0, slow_head = 0;
};

// Divides the launches at the widest gap, if that is wide beside what varies on either side of it.
Modes modes_of(const Evidence& evidence, const Rule& rule) {
  std::vector<double> all;
  for (const std::vector<Pair>* pairs : {&evidence.first, &evidence.second})
    for (const Pair& pair : *pairs) all.insert(all.end(), {pair.base, pair.head});
  if (all.size() < 2 * kFewestLaunches) return {};
  std::ranges::sort(all);
  size_t slow = 0;  // the first of the slower group
  double widest = 0;
  for (size_t i = kFewestOfMode; i + kFewestOfMode <= all.size(); ++i)
    if (all[i] - all[i - 1] > widest) widest = all[i] - all[i - 1], slow = i;
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(slow);
  const double within = std::max(deviation_of({all.begin(), at}), deviation_of({at, all.end()}));
  Modes modes;
  modes.two = widest > std::max(rule.log_delta(), kApart * within);
  if (!modes.two) return modes;
  for (const std::vector<Pair>* pairs : {&evidence.first, &evidence.second})
    for (const Pair& pair : *pairs) {
      modes.slow_base += pair.base >= *at;
      modes.slow_head += pair.head >= *at;
    }
  return modes;
}

std::vector<double> towards(std::vector<double> ratios, double mean) {
  if (mean < 0)
    for (double& ratio : ratios) ratio = -ratio;
  return ratios;
}

// Judges a case by itself; whether its p is small enough depends on all suspects together.
Judged look_at(const Evidence& evidence, const Rule& rule) {
  const bool suspect = !evidence.second.empty();
  const std::vector<double> ratios = log_ratios(suspect ? evidence.second : evidence.first);
  Judged judged;
  const TrimmedMean middle = trimmed_mean(ratios);
  const Interval interval = middle.interval(rule.confidence);
  judged.ratio = std::exp(middle.mean);
  judged.interval = {std::exp(interval.least), std::exp(interval.most)};
  judged.deviation = middle.kept < 2 ? std::numeric_limits<double>::infinity() : middle.deviation;
  if (interval.least >= -rule.log_delta() && interval.most <= rule.log_delta()) judged.verdict = Verdict::same;
  if (!suspect) return judged;
  judged.p = std::abs(middle.mean) > rule.log_delta() ? sign_flip_p(towards(ratios, middle.mean)) : 1;
  const Modes modes = modes_of(evidence, rule);
  const auto launches = static_cast<int>(evidence.first.size() + evidence.second.size());
  const auto divided = [&](int slow) { return slow > 0 && slow < launches; };
  judged.bimodal = modes.two && (divided(modes.slow_base) || divided(modes.slow_head));
  judged.slow_base = modes.slow_base;
  judged.slow_head = modes.slow_head;
  return judged;
}

}  // namespace

double Rule::log_delta() const { return std::log1p(delta); }

double smallest_visible(double deviation, size_t cases, const Rule& rule) {
  const double first = deviation / std::sqrt(rule.first_pairs);
  const double fresh = deviation / std::sqrt(pairs_of_second(deviation, rule));
  const double level = rule.level / 2 / static_cast<double>(std::max<size_t>(cases, 1));
  const double rare = -boost::math::quantile(boost::math::normal(), level);
  return std::expm1(
      std::max({rule.log_delta() / 2 + kOften * first, rule.log_delta() + kOften * fresh, (rare + kOften) * fresh}));
}

bool is_suspect(const std::vector<Pair>& first, const Rule& rule) {
  const std::vector<double> ratios = log_ratios(first);
  return std::max(std::abs(mean_of(ratios)), std::abs(trimmed_mean(ratios).mean)) > rule.log_delta() / 2;
}

int fresh_pairs(const std::vector<std::vector<Pair>>& first_of_suspects, const Rule& rule) {
  if (first_of_suspects.empty()) return 0;
  const auto p_with_two_contrary = [](int pairs) { return std::exp2(-pairs) * (1 + pairs * (pairs + 1) / 2.0); };
  int pairs = rule.least_pairs;
  while (pairs < rule.most_pairs &&
         p_with_two_contrary(pairs) > rule.level / 2 / static_cast<double>(first_of_suspects.size()))
    ++pairs;
  for (const std::vector<Pair>& first : first_of_suspects) {
    const TrimmedMean middle = trimmed_mean(log_ratios(first));
    // A few launches alone make it suspect, perhaps those of a slow mode, which Fisher's test sees only in many.
    const bool few = std::abs(middle.mean) <= rule.log_delta() / 2;
    pairs = std::max(pairs, few ? rule.most_pairs : pairs_of_second(middle.deviation, rule));
  }
  return pairs;
}

std::vector<Judged> judge(const std::vector<Evidence>& cases, const Rule& rule) {
  std::vector<Judged> all;
  std::vector<size_t> suspects, alone;  // alone: one arm has a mode that the other lacks
  std::vector<double> p, mode_p;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Judged& judged = all.emplace_back(look_at(cases[i], rule));
    if (cases[i].second.empty()) continue;
    suspects.push_back(i);
    p.push_back(judged.p);
    const auto launches = static_cast<int64_t>(cases[i].first.size() + cases[i].second.size());
    const bool of_one = judged.bimodal && (judged.slow_base == 0) != (judged.slow_head == 0);
    mode_p.push_back(of_one ? fisher_p(std::max(judged.slow_base, judged.slow_head), launches, 0, launches) : 1);
  }
  // Two ways to be found slower share the level.
  const std::vector<bool> by_mean = holm(p, rule.level / 2), by_mode = holm(mode_p, rule.level / 2);
  for (size_t s = 0; s < suspects.size(); ++s) {
    Judged& judged = all[suspects[s]];
    const bool one_has_mode = mode_p[s] < 1;
    if (by_mean[s])
      judged.verdict = judged.ratio > 1 ? Verdict::slower : Verdict::faster;
    else if (by_mode[s])
      judged.verdict = judged.slow_head > 0 ? Verdict::slower : Verdict::faster;
    else if (one_has_mode)
      judged.verdict = Verdict::ambiguous;
  }
  for (Judged& judged : all) judged.visible = smallest_visible(judged.deviation, cases.size(), rule);
  for (size_t i = 0; i < cases.size(); ++i)
    if (all[i].verdict == Verdict::ambiguous)
      all[i].pairs_needed = pairs_needed(log_ratios(cases[i].second.empty() ? cases[i].first : cases[i].second), rule);
  return all;
}

}  // namespace moe::regress
