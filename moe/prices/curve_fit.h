#pragma once
// Fits of measured seconds as a function of size: straight lines, and piecewise linear curves.
#include <optional>
#include <string>
#include <vector>

#include "moe/prices/profile.h"

namespace moe {

/// A measured time for the fit of a line t(n) = starts alpha + n beta (FSMoE section 4.1).
struct FitSample {
  double size = 0;  // bytes or FLOPs
  double seconds = 0;
  double starts = 1;      // number of times that alpha is paid: the GEMMs of a sample
  std::string name = {};  // name of the sample's case, for messages
  double size_per_start() const { return size / starts; }
};

struct Line {
  double alpha = 0, beta = 0;
  bool clamped = false;  // the first fit had alpha < 0, so beta was fitted again with alpha = 0
  double at(const FitSample& sample) const { return sample.starts * alpha + sample.size * beta; }
};

/// Fits by ordinary least squares, as the papers do: all samples have equal weight. Needs at least two sizes.
Line least_squares(const std::vector<FitSample>& samples);
/// Fits by least squares of relative errors, so that short times count as much as long ones. Needs two sizes.
Line relative_least_squares(const std::vector<FitSample>& samples);

/// A sample is an outlier if its relative residual |ln(measured / line)| exceeds both kOutlierDeviations standard
/// deviations of the others' residuals and kMinOutlier; a smaller residual does no harm to a fit.
inline constexpr double kOutlierDeviations = 5, kMinOutlier = 0.05;
/// With fewer samples than this, no sample counts as an outlier.
inline constexpr size_t kMinWithOutliers = 5;

/// Returns for each sample whether it is an outlier of the line that most samples share. The line starts as the one
/// with the least median of squared relative residuals among the lines through two samples, which is right if more than
/// half of the samples are sound (Rousseeuw 1984). Then relative least squares of the kept samples, with a standard
/// deviation of 1.4826 (1 + 5 / (n - 2)) medians, are repeated until the outliers do not change. There are no outliers
/// if fewer than two sizes would be left.
std::vector<bool> outliers(const std::vector<FitSample>& samples);

size_t distinct_sizes(const std::vector<FitSample>& samples);

/// A continuous, nondecreasing curve of straight pieces, for measurements that one line does not fit.
struct PiecewiseCurve {
  Points knots;  // ascending sizes from the least to the largest measured, nondecreasing seconds
  /// Cross-validation errors |predicted - measured| / measured of the samples, in the order of sizes. Each size in turn
  /// (of more than kMaxFolds sizes, each group of sizes) is left out, and a curve is fitted to the others, with the
  /// number of pieces that is best on them. Empty if fewer than two sizes would be left.
  std::vector<double> held_out;

  /// Returns the seconds on the line through the two knots around a size; the outermost pieces extend beyond the ends.
  double seconds(double size) const;
  /// The median and the largest of held_out; no value if it is empty.
  std::optional<double> held_out_error() const, held_out_worst() const;
};

inline constexpr int kMaxCurvePieces = 6;
inline constexpr int kMaxFolds = 24;

/// Fits a curve of 1 to `most` pieces to (size, seconds) samples in any order. Knots are sizes of samples; the search
/// for them is described in curve_fit.cpp. Seconds minimise the squared relative errors under nonnegative increments.
/// Cross-validation chooses the number of pieces with the smallest mean error, the fewest of equally good ones. Throws
/// BadInput "WHAT: found ..., expected ..." for sizes or seconds that are not positive and finite, fewer than two
/// sizes, or `most` below 1.
PiecewiseCurve fit_pieces(Points samples, std::string_view what, int most = kMaxCurvePieces);

}  // namespace moe
