#pragma once
// Exact tests and intervals, of few numbers.
#include <cstdint>
#include <span>
#include <vector>

namespace moe::regress {

struct Interval {
  double least = 0, most = 0;
};

/// Returns the probability that the sum is as large as it is, or larger, where each sign is a coin's: one-sided and
/// exact. Sizes beyond 1.25 times the median one count as that, which signs do not change. Returns 1 without values.
/// Throws BadInput above 40 values, whose signs are too many to count.
double sign_flip_p(std::span<const double> values);

/// Holds the mean of values of which a fifth at either end is set aside (Tukey and McLaughlin): a launch that something
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

}  // namespace moe::regress
