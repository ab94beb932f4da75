#pragma once
// The gate's rule, which decides from pairs of launches of two programs whether a case got slower.
//
// A launch is one start of a program; its time of a case is the median over iterations of the maximum over ranks. A
// pair is two launches, one of each program, in a random order and one directly after the other, so that slow drift of
// the machine affects both alike. The rule judges the trimmed mean of the log ratios head / base of a case's pairs.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::regress {

/// A closed interval.
struct Interval {
  double min = 0, max = 0;
};

/// Returns the exact one-sided p of the sign-flip test: the probability that the sum is at least as large as it is if
/// every value has a random sign. Absolute values are first limited to 1.25 times their median. Returns 1 without
/// values. Throws BadInput for more than 40 values, because all combinations of signs are counted.
double sign_flip_p(std::span<const double> values);

/// The mean of values without the smallest and the largest fifth (Tukey and McLaughlin), which a disturbed launch
/// hardly changes.
struct TrimmedMean {
  double mean = 0;
  double deviation = 0;  // Winsorized standard deviation of one value, scaled for interval()
  int kept = 0;
  /// Returns Student's two-sided interval of the mean; unbounded if fewer than two values are kept.
  Interval interval(double confidence) const;

 private:
  friend TrimmedMean trimmed_mean(std::vector<double> values);
  size_t values_ = 0;
};
/// Returns the trimmed mean, 0 without values.
TrimmedMean trimmed_mean(std::vector<double> values);

/// Returns Fisher's one-sided p for more slow launches in the head: `slow` of `launches` in the head are slow, and
/// `base_slow` of `base_launches` in the base.
double fisher_p(int64_t slow, int64_t launches, int64_t base_slow, int64_t base_launches);

/// Returns Clopper and Pearson's two-sided interval of the share `hits` / `of`.
Interval share_interval(int64_t hits, int64_t of, double confidence);

/// Returns which hypotheses Holm's procedure rejects; `level` is the probability of any false rejection.
std::vector<bool> holm_rejections(std::span<const double> p, double level);

/// Returns the two-sided p of Mann and Whitney's test, by the normal approximation with a correction for ties.
double rank_sum_p(std::span<const double> a, std::span<const double> b);
/// Returns the two-sided p of Welch's t-test; 1 if neither side varies or one has fewer than two values.
double welch_p(std::span<const double> a, std::span<const double> b);

// Verdicts of a gate or a comparison on a case.

enum class Verdict : uint8_t { same, slower, faster, ambiguous };
std::string_view name_of(Verdict verdict);  // SAME, SLOW, FAST, AMBG

/// Judges the ratio head / base of a case's peak memory: over 1 % more is Verdict::slower, because memory has no noise.
Verdict memory_verdict(double ratio);

/// A case's two times in a pair, as natural logarithms of seconds.
struct Pair {
  double base = 0, head = 0;
  double log_ratio() const { return head - base; }
};

struct Rule {
  double delta = 0.03;       // least slowdown that counts, a share; callers raise it to the machine's noise floor
  double level = 0.01;       // probability of any false SLOW among the suspects of a gate
  int first_pairs = 6;       // pairs of every case in the first stage
  int min_pairs = 12;        // least number of second-stage pairs of a suspect
  int max_pairs = 30;        // largest number of second-stage pairs of a suspect
  double confidence = 0.95;  // confidence level of the interval that has to lie within delta for SAME
  double log_delta() const;
};

/// Returns whether a case is suspect: the mean of its first pairs, trimmed or not, is beyond half of delta.
bool is_suspect(const std::vector<Pair>& first, const Rule& rule);
/// Returns the number of second-stage pairs of each suspect, which is fixed before that stage begins. It is large
/// enough for the variance of the first pairs, and to confirm one of all suspects even if two of its pairs show the
/// opposite. It is `max_pairs` if a case is suspect only because of a few launches, and 0 without suspects.
int fresh_pairs(const std::vector<std::vector<Pair>>& first_of_suspects, const Rule& rule);

/// Returns the slowdown, as a share, that about 19 of 20 gates of `cases` cases find if `deviation` is the standard
/// deviation of the pairs' log ratios. Such a slowdown makes the case suspect, puts its mean beyond delta, and makes
/// its p small enough even if all cases are suspect.
double min_detectable_change(double deviation, size_t cases, const Rule& rule);

struct Evidence {
  std::vector<Pair> first, second;  // pairs by stage; `second` is empty unless the case was suspect
};

struct CaseJudgement {
  Verdict verdict = Verdict::ambiguous;
  double ratio = 1;      // head / base, from the mean log ratio of the stage that decided
  Interval interval;     // interval of the ratio
  double p = 1;          // p of the second stage, in the direction of its mean; 1 if the mean is within delta
  bool bimodal = false;  // the launches form a fast and a slow group, and each program has at least ten launches
  int slow_base = 0, slow_head = 0;  // launches in the slower group
  int pairs_needed = 0;              // for an ambiguous case: estimated pairs to decide it
  double deviation = 0;              // standard deviation of the pairs' log ratios
  double visible = 0;                // slowdown that such gates find (min_detectable_change)
};

/// Judges all cases of a gate together, in their order:
/// same      the interval of the mean lies within delta
/// slower    the second stage confirms it: the mean is beyond delta, and Holm's procedure rejects the sign-flip p; or
///           only the head has a slow mode, and Holm's procedure rejects Fisher's p
/// faster    as slower, with base and head exchanged
/// ambiguous none of these
std::vector<CaseJudgement> judge(const std::vector<Evidence>& cases, const Rule& rule);

// The two stages of a gate. Its pairs come from launches of programs, recorded launches, or a model of noise.

/// Measures another pair of the wanted cases; `pair` is its number over both stages. A case that could not be measured
/// is NaN. Results of other cases are ignored.
using MeasurePair = std::function<std::vector<Pair>(int pair, const std::vector<bool>& wanted)>;

struct GateOutcome {
  std::vector<Evidence> evidence;  // by case
  std::vector<CaseJudgement> judged;
  int pairs = 0;  // pairs of launches over both stages
};

/// A function called before the second stage with the number of its pairs and the suspects.
using OnSecondStage = std::function<void(int pairs, const std::vector<bool>& suspects)>;

/// Runs a gate: measures the first pairs of all cases, then more pairs of the suspects if there are any, and judges.
GateOutcome run_gate(size_t cases, const Rule& rule, const MeasurePair& measure, const OnSecondStage& tell = {});

}  // namespace moe::regress
