#include "commands/regress/rule.h"

#include <algorithm>
#include <array>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/hypergeometric.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/base/statistics.h"

namespace moe::regress {
namespace {

constexpr double kTail = 2.58;  // half of delta, in standard errors of the second stage's mean
constexpr double kSignificantDeviations =
    1.96;  // standard errors; 39 of 40 means are at most this far below their expected value
constexpr size_t kMinLaunches = 10, kMinOfMode = 2;
constexpr double kMinModeGap = 4;  // least gap between two modes, in standard deviations within a mode
constexpr int kMaxNeeded = 100000;

std::vector<double> log_ratios(const std::vector<Pair>& pairs) {
  std::vector<double> ratios;
  for (const Pair& pair : pairs) ratios.push_back(pair.log_ratio());
  return ratios;
}

struct Moments {
  double mean = 0, variance = 0;
  double deviation() const { return std::sqrt(variance); }
};

Moments moments_of(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  Moments m{values.empty() ? 0 : mean(values), 0};
  for (const double value : values) m.variance += (value - m.mean) * (value - m.mean);
  m.variance = values.size() > 1 ? m.variance / (count - 1) : 0;
  return m;
}

int pairs_of_second(double deviation, const Rule& rule) {
  const double pairs = std::ceil(std::pow(kTail * deviation / (rule.log_delta() / 2), 2));
  return std::clamp(static_cast<int>(std::min<double>(pairs, kMaxNeeded)), rule.min_pairs, rule.max_pairs);
}

// Returns the estimated number of pairs, at the same mean and deviation, after which the interval lies within delta or,
// for a mean beyond delta, excludes 0.
int pairs_needed(const std::vector<double>& ratios, const Rule& rule) {
  const TrimmedMean middle = trimmed_mean(ratios);
  const double mean = std::abs(middle.mean);
  const double room = mean < rule.log_delta() ? rule.log_delta() - mean : mean;
  const double pairs = std::ceil(std::pow(kTail * middle.deviation / room, 2));
  return std::clamp(static_cast<int>(std::min<double>(pairs, kMaxNeeded)), static_cast<int>(ratios.size()) + 1,
                    kMaxNeeded);
}

struct Modes {
  bool two = false;
  int slow_base = 0, slow_head = 0;
};

// Divides the launches into two groups at the widest gap of their times, if that is larger than delta and kApart times
// the deviation on either side.
Modes modes_of(const Evidence& evidence, const Rule& rule) {
  std::vector<double> all;
  for (const std::vector<Pair>* pairs : {&evidence.first, &evidence.second})
    for (const Pair& pair : *pairs) all.insert(all.end(), {pair.base, pair.head});
  if (all.size() < 2 * kMinLaunches) return {};
  std::ranges::sort(all);
  size_t slow = 0;  // index of the first launch in the slower group
  double widest = 0;
  for (size_t i = kMinOfMode; i + kMinOfMode <= all.size(); ++i)
    if (all[i] - all[i - 1] > widest) widest = all[i] - all[i - 1], slow = i;
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(slow);
  const double within = std::max(moments_of({all.begin(), at}).deviation(), moments_of({at, all.end()}).deviation());
  Modes modes;
  modes.two = widest > std::max(rule.log_delta(), kMinModeGap * within);
  if (!modes.two) return modes;
  for (const std::vector<Pair>* pairs : {&evidence.first, &evidence.second})
    for (const Pair& pair : *pairs) {
      modes.slow_base += pair.base >= *at;
      modes.slow_head += pair.head >= *at;
    }
  return modes;
}

std::vector<double> slower_direction(std::vector<double> ratios, double mean) {
  if (mean < 0)
    for (double& ratio : ratios) ratio = -ratio;
  return ratios;
}

// Judges a case by its own pairs. judge() then decides by the p of all suspects together.
CaseJudgement judge_case(const Evidence& evidence, const Rule& rule) {
  const bool suspect = !evidence.second.empty();
  const std::vector<double> ratios = log_ratios(suspect ? evidence.second : evidence.first);
  CaseJudgement judged;
  const TrimmedMean middle = trimmed_mean(ratios);
  const Interval interval = middle.interval(rule.confidence);
  judged.ratio = std::exp(middle.mean);
  judged.interval = {std::exp(interval.min), std::exp(interval.max)};
  judged.deviation = middle.kept < 2 ? std::numeric_limits<double>::infinity() : middle.deviation;
  if (interval.min >= -rule.log_delta() && interval.max <= rule.log_delta()) judged.verdict = Verdict::same;
  if (!suspect) return judged;
  judged.p = std::abs(middle.mean) > rule.log_delta() ? sign_flip_p(slower_direction(ratios, middle.mean)) : 1;
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

double min_detectable_change(double deviation, size_t cases, const Rule& rule) {
  const double first = deviation / std::sqrt(rule.first_pairs);
  const double fresh = deviation / std::sqrt(pairs_of_second(deviation, rule));
  const double level = rule.level / 2 / static_cast<double>(std::max<size_t>(cases, 1));
  const double rare = -boost::math::quantile(boost::math::normal(), level);
  return std::expm1(
      std::max({rule.log_delta() / 2 + kSignificantDeviations * first,
                rule.log_delta() + kSignificantDeviations * fresh, (rare + kSignificantDeviations) * fresh}));
}

bool is_suspect(const std::vector<Pair>& first, const Rule& rule) {
  const std::vector<double> ratios = log_ratios(first);
  return std::max(std::abs(moments_of(ratios).mean), std::abs(trimmed_mean(ratios).mean)) > rule.log_delta() / 2;
}

int fresh_pairs(const std::vector<std::vector<Pair>>& first_of_suspects, const Rule& rule) {
  if (first_of_suspects.empty()) return 0;
  const auto p_with_two_contrary = [](int pairs) { return std::exp2(-pairs) * (1 + pairs * (pairs + 1) / 2.0); };
  int pairs = rule.min_pairs;
  while (pairs < rule.max_pairs &&
         p_with_two_contrary(pairs) > rule.level / 2 / static_cast<double>(first_of_suspects.size()))
    ++pairs;
  for (const std::vector<Pair>& first : first_of_suspects) {
    const TrimmedMean middle = trimmed_mean(log_ratios(first));
    // If only a few launches made the case suspect, they may be a slow mode, which Fisher's test needs many pairs to
    // find.
    const bool few = std::abs(middle.mean) <= rule.log_delta() / 2;
    pairs = std::max(pairs, few ? rule.max_pairs : pairs_of_second(middle.deviation, rule));
  }
  return pairs;
}

std::vector<CaseJudgement> judge(const std::vector<Evidence>& cases, const Rule& rule) {
  std::vector<CaseJudgement> all;
  std::vector<size_t> suspects;
  std::vector<double> p, mode_p;
  for (size_t i = 0; i < cases.size(); ++i) {
    const CaseJudgement& judged = all.emplace_back(judge_case(cases[i], rule));
    if (cases[i].second.empty()) continue;
    suspects.push_back(i);
    p.push_back(judged.p);
    const auto launches = static_cast<int64_t>(cases[i].first.size() + cases[i].second.size());
    const bool of_one = judged.bimodal && (judged.slow_base == 0) != (judged.slow_head == 0);
    mode_p.push_back(of_one ? fisher_p(std::max(judged.slow_base, judged.slow_head), launches, 0, launches) : 1);
  }
  // A case can be found slower in two ways, so each has half of the level.
  const std::vector<bool> by_mean = holm_rejections(p, rule.level / 2),
                          by_mode = holm_rejections(mode_p, rule.level / 2);
  for (size_t s = 0; s < suspects.size(); ++s) {
    CaseJudgement& judged = all[suspects[s]];
    const bool one_has_mode = mode_p[s] < 1;
    if (by_mean[s])
      judged.verdict = judged.ratio > 1 ? Verdict::slower : Verdict::faster;
    else if (by_mode[s])
      judged.verdict = judged.slow_head > 0 ? Verdict::slower : Verdict::faster;
    else if (one_has_mode)
      judged.verdict = Verdict::ambiguous;
  }
  for (CaseJudgement& judged : all) judged.visible = min_detectable_change(judged.deviation, cases.size(), rule);
  for (size_t i = 0; i < cases.size(); ++i)
    if (all[i].verdict == Verdict::ambiguous)
      all[i].pairs_needed = pairs_needed(log_ratios(cases[i].second.empty() ? cases[i].first : cases[i].second), rule);
  return all;
}

namespace {

constexpr size_t kMaxFlipped = 40;
constexpr double kMaxOfMedian = 1.25, kTrimmed = 0.2;
constexpr double kRounding = 1e-12;  // relative rounding error between equal sums in another order

// Returns the sorted sums of the values under all signs. Each value doubles the list: two sorted halves are merged.
std::vector<double> signed_sums(std::span<const double> values) {
  std::vector<double> sums{0}, less, more;
  for (const double value : values) {
    less = more = sums;
    for (double& sum : less) sum -= std::abs(value);
    for (double& sum : more) sum += std::abs(value);
    sums.clear();
    std::ranges::merge(less, more, std::back_inserter(sums));
  }
  return sums;
}

double two_sided(double z) { return 2 * boost::math::cdf(boost::math::normal(), -std::abs(z)); }

}  // namespace

double sign_flip_p(std::span<const double> values) {
  require<BadInput>(values.size() <= kMaxFlipped, "sign flips: found {} values, expected at most {}", values.size(),
                    kMaxFlipped);
  if (values.empty()) return 1;
  std::vector<double> clipped(values.begin(), values.end());
  for (double& value : clipped) value = std::abs(value);
  const double most = kMaxOfMedian * median(clipped);
  std::ranges::transform(values, clipped.begin(), [&](double value) { return std::clamp(value, -most, most); });
  double sum = 0, size = 0;
  for (const double value : clipped) sum += value, size += std::abs(value);
  const double least = sum - kRounding * size;
  // Meet in the middle: as a sum of the first half grows, more sums of the second half reach `least` with it.
  const auto all = std::span<const double>(clipped);
  const std::vector<double> first = signed_sums(all.first(all.size() / 2));
  const std::vector<double> second = signed_sums(all.subspan(all.size() / 2));
  size_t reached = 0, from = second.size();
  for (const double part : first) {
    while (from > 0 && part + second[from - 1] >= least) --from;
    reached += second.size() - from;
  }
  return static_cast<double>(reached) / static_cast<double>(first.size()) / static_cast<double>(second.size());
}

TrimmedMean trimmed_mean(std::vector<double> values) {
  TrimmedMean out;
  if (values.empty()) return out;
  std::ranges::sort(values);
  const auto cut = static_cast<size_t>(kTrimmed * static_cast<double>(values.size()));
  const std::span<const double> kept(values.data() + cut, values.size() - 2 * cut);
  out.mean = moments_of(kept).mean;
  out.kept = static_cast<int>(kept.size());
  out.values_ = values.size();
  const double least = kept.front(), most = kept.back();
  for (double& value : values) value = std::clamp(value, least, most);
  out.deviation = moments_of(values).deviation() / (cut == 0 ? 1 : 1 - 2 * kTrimmed);
  return out;
}

Interval TrimmedMean::interval(double confidence) const {
  if (kept < 2) return {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  const double t = boost::math::quantile(boost::math::students_t(kept - 1), (1 + confidence) / 2);
  const double half = t * deviation / std::sqrt(static_cast<double>(values_));
  return {mean - half, mean + half};
}

double fisher_p(int64_t slow, int64_t launches, int64_t base_slow, int64_t base_launches) {
  const auto all = static_cast<unsigned>(launches + base_launches), of_all = static_cast<unsigned>(slow + base_slow);
  const boost::math::hypergeometric draws(of_all, static_cast<unsigned>(launches), all);
  if (slow <= boost::math::support(draws).first) return 1;
  return boost::math::cdf(boost::math::complement(draws, static_cast<unsigned>(slow - 1)));
}

Interval share_interval(int64_t hits, int64_t of, double confidence) {
  if (of == 0) return {0, 1};
  using Binomial = boost::math::binomial;
  const double beside = (1 - confidence) / 2;
  const auto trials = static_cast<double>(of), found = static_cast<double>(hits);
  return {hits == 0 ? 0 : Binomial::find_lower_bound_on_p(trials, found, beside),
          hits == of ? 1 : Binomial::find_upper_bound_on_p(trials, found, beside)};
}

std::vector<bool> holm_rejections(std::span<const double> p, double level) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return p[i]; });
  std::vector<bool> rejected(p.size(), false);
  for (size_t i = 0; i < order.size(); ++i) {
    if (p[order[i]] > level / static_cast<double>(order.size() - i)) break;
    rejected[order[i]] = true;
  }
  return rejected;
}

double rank_sum_p(std::span<const double> a, std::span<const double> b) {
  std::map<double, std::pair<double, double>> counts;  // by value: its count in a, and in both
  for (const double value : a) counts[value].first += 1, counts[value].second += 1;
  for (const double value : b) counts[value].second += 1;
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  double below = 0, ranks = 0, ties = 0;
  for (const auto& [value, count] : counts) {
    ranks += count.first * (below + (count.second + 1) / 2);
    below += count.second;
    ties += count.second * count.second * count.second - count.second;
  }
  const double variance = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)));
  return variance > 0 ? two_sided((ranks - n * (n + m + 1) / 2) / std::sqrt(variance)) : 1;
}

double welch_p(std::span<const double> a, std::span<const double> b) {
  if (a.size() < 2 || b.size() < 2) return 1;
  const Moments x = moments_of(a), y = moments_of(b);
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double vx = x.variance / n, vy = y.variance / m;
  if (!(vx + vy > 0)) return 1;
  const double freedom = (vx + vy) * (vx + vy) / (vx * vx / (n - 1) + vy * vy / (m - 1));
  const double t = std::abs(x.mean - y.mean) / std::sqrt(vx + vy);
  return 2 * boost::math::cdf(boost::math::complement(boost::math::students_t(freedom), t));
}

namespace {

constexpr EnumArray<Verdict, std::string_view, 4> kNames{"SAME", "SLOW", "FAST", "AMBG"};
constexpr double kMoreMemory = 1.01;

}  // namespace

std::string_view name_of(Verdict verdict) { return kNames[verdict]; }

Verdict memory_verdict(double ratio) {
  return ratio > kMoreMemory ? Verdict::slower : ratio < 1 / kMoreMemory ? Verdict::faster : Verdict::same;
}

namespace {

void add(const std::vector<Pair>& measured, const std::vector<bool>& wanted, std::vector<Pair> Evidence::*stage,
         std::vector<Evidence>& evidence) {
  for (size_t i = 0; i < measured.size(); ++i)
    if (wanted[i] && std::isfinite(measured[i].log_ratio())) (evidence[i].*stage).push_back(measured[i]);
}

}  // namespace

GateOutcome run_gate(size_t cases, const Rule& rule, const MeasurePair& measure, const OnSecondStage& tell) {
  GateOutcome out;
  out.evidence.resize(cases);
  const std::vector<bool> all(cases, true);
  while (out.pairs < rule.first_pairs) add(measure(out.pairs++, all), all, &Evidence::first, out.evidence);
  std::vector<bool> suspects;
  std::vector<std::vector<Pair>> first_of_suspects;
  for (const Evidence& evidence : out.evidence) {
    suspects.push_back(is_suspect(evidence.first, rule));
    if (suspects.back()) first_of_suspects.push_back(evidence.first);
  }
  const int more = fresh_pairs(first_of_suspects, rule);
  if (more > 0 && tell) tell(more, suspects);
  for (int i = 0; i < more; ++i) add(measure(out.pairs++, suspects), suspects, &Evidence::second, out.evidence);
  out.judged = judge(out.evidence, rule);
  return out;
}

}  // namespace moe::regress
