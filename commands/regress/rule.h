#pragma once
// The gate's rule: whether a case got slower, from launches of the two programs in pairs.
//
// A launch is one start of a program; its time of a case is the median over iterations of the maximum over ranks. A
// pair is two launches, one of each program, in a random order and next to each other: whatever drifts slowly is in
// both. What is judged is the trimmed mean of the log ratios head / base of a case's pairs.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::regress {

/// Exact tests and intervals, of few numbers.
struct Interval {
  double least = 0, most = 0;
};

/// Returns the probability that the sum is as large as it is, or larger, where each sign is a coin's: one-sided and
/// exact. Sizes beyond 1.25 times the median one count as that, which signs do not change. Returns 1 without values.
/// Throws BadInput above 40 values, whose signs are too many to count.
double sign_flip_p(std::span<const double> values);

/// The mean of values of which a fifth at either end is set aside (Tukey and McLaughlin): a launch that something
/// disturbed moves it little.
struct TrimmedMean {
  double mean = 0;
  double deviation = 0;  // of one value, as far as it moves the mean
  int kept = 0;
  /// Returns Student's two-sided interval, unbounded where fewer than two values are kept.
  Interval interval(double confidence) const;

 private:
  friend TrimmedMean trimmed_mean(std::vector<double> values);
  size_t values_ = 0;
};
/// Returns the trimmed mean, 0 without values.
TrimmedMean trimmed_mean(std::vector<double> values);

/// Returns Fisher's one-sided p: `slow` of `launches` in the head, `base_slow` of `base_launches` in the base.
double fisher_p(int64_t slow, int64_t launches, int64_t base_slow, int64_t base_launches);

/// Returns Clopper and Pearson's two-sided interval of a share.
Interval share_interval(int64_t hits, int64_t of, double confidence);

/// Returns which hypotheses Holm's procedure rejects, `level` over all of them together.
std::vector<bool> holm(std::span<const double> p, double level);

/// Returns Mann and Whitney's two-sided p, by the normal approximation with ties.
double rank_sum_p(std::span<const double> a, std::span<const double> b);
/// Returns Welch's two-sided p; 1 where neither varies or one has fewer than two values.
double welch_p(std::span<const double> a, std::span<const double> b);

// What a gate or a comparison says of a case.

enum class Verdict : uint8_t { same, slower, faster, ambiguous };
std::string_view name_of(Verdict verdict);  // SAME, SLOW, FAST, AMBG

/// Judges a case's peak of memory, head / base: it has no noise, so 1 % more is slower.
Verdict memory_verdict(double ratio);

/// A case's two times in a pair, as natural logarithms of seconds.
struct Pair {
  double base = 0, head = 0;
  double log_ratio() const { return head - base; }
};

struct Rule {
  double delta = 0.03;       // the least slowdown that counts, as a share; at least what this machine can tell apart
  double level = 0.01;       // probability of any false SLOW among the suspects of a gate
  int first_pairs = 6;       // of every case
  int least_pairs = 12;      // fewest fresh pairs of a suspect
  int most_pairs = 30;       // most fresh pairs of a suspect
  double confidence = 0.95;  // of the interval that lies within delta if a case is the SAME
  double log_delta() const;
};

/// Returns whether a case is suspect: the mean of its first pairs, trimmed or not, is beyond half of delta.
bool is_suspect(const std::vector<Pair>& first, const Rule& rule);
/// Returns the number of fresh pairs of each suspect, decided before the second stage begins. It is large enough for
/// the variance of the first pairs, and for a confirmation among all suspects even if two pairs show the opposite. It
/// is `most_pairs` if a case is suspect only because of a few launches, and 0 without suspects.
int fresh_pairs(const std::vector<std::vector<Pair>>& first_of_suspects, const Rule& rule);

/// Returns the slowdown, as a share, that about 19 of 20 gates of `cases` cases find if `deviation` is the standard
/// deviation of the pairs' log ratios. Such a slowdown makes the case suspect, puts its mean beyond delta, and makes
/// its p small enough even if all cases are suspect.
double smallest_visible(double deviation, size_t cases, const Rule& rule);

struct Evidence {
  std::vector<Pair> first, second;  // second: empty unless the case was suspect
};

struct Judged {
  Verdict verdict = Verdict::ambiguous;
  double ratio = 1;                  // head / base, of the mean log ratio of the stage that decided
  Interval interval;                 // of the ratio
  double p = 1;                      // of the second stage, in the direction of its mean; 1 where that is within delta
  bool bimodal = false;              // the launches lie in two groups, each arm having ten of them or more
  int slow_base = 0, slow_head = 0;  // launches in the slower group
  int pairs_needed = 0;  // of an ambiguous case, until its interval lies within delta or its mean is told from 0
  double deviation = 0;  // of the log ratios of its pairs
  double visible = 0;    // smallest_visible
};

/// Judges all cases of a gate together, in their order:
/// same      the interval of the mean lies within delta
/// slower    confirmed by fresh pairs: their mean is beyond delta and the exact sign-flip p, by Holm, within the level;
///           or the head alone has a slow mode, and Fisher's p is within the level
/// faster    the same the other way round
/// ambiguous neither
std::vector<Judged> judge(const std::vector<Evidence>& cases, const Rule& rule);

// The two stages of a gate, whatever measures its pairs: programs, recorded launches, or a model of noise.

/// Measures one more pair of the wanted cases; `pair` counts over both stages. A case that could not be measured is
/// NaN; cases that are not wanted are not looked at.
using MeasurePair = std::function<std::vector<Pair>(int pair, const std::vector<bool>& wanted)>;

struct GateOutcome {
  std::vector<Evidence> evidence;  // of each case
  std::vector<Judged> judged;
  int pairs = 0;  // that were measured, of any case
};

/// Called before the second stage with the number of its pairs and its cases.
using TellSecond = std::function<void(int pairs, const std::vector<bool>& suspects)>;

/// Measures the first pairs of all cases, then fresh ones of the suspects, and judges. Without suspects it ends after
/// the first stage.
GateOutcome run_gate(size_t cases, const Rule& rule, const MeasurePair& measure, const TellSecond& tell = {});

}  // namespace moe::regress
