#pragma once
// The line t(n) = starts alpha + n beta (FSMoE section 4.1) through measured times: least squares, and which of the
// samples are no part of any such line.
#include <string>
#include <vector>

namespace moe {

struct FitSample {
  double size = 0;  // bytes or FLOPs
  double seconds = 0;
  double starts = 1;      // how often alpha is paid: the GEMMs of a sample
  std::string name = {};  // of the case that it is from, for messages
  double size_of_one() const { return size / starts; }
};

struct Line {
  double alpha = 0, beta = 0;
  bool clamped = false;  // the least squares put alpha below 0: fitted again with alpha = 0
  double at(const FitSample& sample) const { return sample.starts * alpha + sample.size * beta; }
};

/// Fits seconds, each sample weighing alike, as the papers do; needs at least two sizes.
Line least_squares(const std::vector<FitSample>& samples);
/// Fits likewise with least squares of relative errors, so that short times weigh as long ones do.
Line relative_least_squares(const std::vector<FitSample>& samples);

/// A sample is an outlier if its relative residual |ln(measured / line)| is above this many standard deviations of the
/// others', and above the least one: what is nearer to the line than that ruins no fit.
inline constexpr double kOutlierDeviations = 5, kLeastOutlier = 0.05;
/// The fewest samples among which any is named an outlier.
inline constexpr size_t kFewestWithOutliers = 5;

/// Says which samples lie off the line that most of them share, found by least median of squared relative residuals
/// over the lines through two samples (Rousseeuw 1984: holds while more than half of the samples are sound), then by
/// reweighting: relative least squares of what is kept, a deviation of 1.4826 (1 + 5 / (n - 2)) medians, until the set
/// stays. Names none where fewer than two sizes would be left.
std::vector<bool> outliers(const std::vector<FitSample>& samples);

size_t distinct_sizes(const std::vector<FitSample>& samples);

}  // namespace moe
