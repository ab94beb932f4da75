#pragma once
// Fits of measured seconds over sizes: straight lines, and curves of straight pieces.
#include <optional>
#include <string>
#include <vector>

#include "moe/prices/profile.h"

namespace moe {

/// The line t(n) = starts alpha + n beta (FSMoE section 4.1) through measured times, fitted by least squares, and the
/// samples that are outliers of any such line.
struct FitSample {
  double size = 0;  // bytes or FLOPs
  double seconds = 0;
  double starts = 1;      // number of times that alpha is paid: the GEMMs of a sample
  std::string name = {};  // name of the sample's case, for messages
  double size_of_one() const { return size / starts; }
};

struct Line {
  double alpha = 0, beta = 0;
  bool clamped = false;  // the least squares gave alpha < 0, so beta is fitted again with alpha = 0
  double at(const FitSample& sample) const { return sample.starts * alpha + sample.size * beta; }
};

/// Fits seconds with equal weights for all samples, as the papers do; needs at least two sizes.
Line least_squares(const std::vector<FitSample>& samples);
/// Fits in the same way with least squares of relative errors, so that short times have the same weight as long ones.
Line relative_least_squares(const std::vector<FitSample>& samples);

/// A sample is an outlier if its relative residual |ln(measured / line)| exceeds both this number of standard
/// deviations of the others' residuals and kLeastOutlier, below which a residual does no harm to a fit.
inline constexpr double kOutlierDeviations = 5, kLeastOutlier = 0.05;
/// The fewest samples with which outliers are sought.
inline constexpr size_t kFewestWithOutliers = 5;

/// Returns, by sample, whether it is an outlier of the line that most samples share. That line is found by the least
/// median of squared relative residuals over the lines through two samples (Rousseeuw 1984: sound if more than half of
/// the samples are), then by reweighting: relative least squares of the kept samples, with a deviation of 1.4826 (1 + 5
/// / (n - 2)) medians, until the set does not change. No outliers if fewer than two sizes would be left.
std::vector<bool> outliers(const std::vector<FitSample>& samples);

size_t distinct_sizes(const std::vector<FitSample>& samples);

/// A measured curve as straight pieces that join and never fall, for measurements that one line does not fit.
struct PiecewiseCurve {
  Points knots;  // ascending sizes from the least to the largest measured, nondecreasing seconds
  /// Cross-validation: each size in turn (or, of more than kMostFolds sizes, each group of sizes) is left out. Knots
  /// and seconds are fitted to the others, with the number of pieces that is best on them. The errors |predicted -
  /// measured| / measured, by sample in the order of sizes; empty if fewer than two sizes would be left.
  std::vector<double> held_out;

  /// Returns the seconds on the line through the two knots around a size; the outermost pieces extend beyond the ends.
  double seconds(double size) const;
  /// These return the median and the largest of held_out; none if it is empty.
  std::optional<double> held_out_error() const, held_out_worst() const;
};

inline constexpr int kMostCurvePieces = 6;
inline constexpr int kMostFolds = 24;

/// Fits at most `most` pieces to (size, seconds) in any order; 1 is a line. Knots are sizes of samples. The seconds at
/// them are relative least squares (each residual over the measured time) of nonnegative increments. The number of
/// pieces is the one with the least mean error in cross-validation, the fewest of equally good ones. A search drops the
/// knot that matters least, adds the one that helps most, and exchanges them one by one. Throws BadInput "WHAT: found
/// ..., expected ..." for sizes or seconds that are not positive and finite, fewer than two sizes, or `most` below 1.
PiecewiseCurve fit_pieces(Points samples, std::string_view what, int most = kMostCurvePieces);

}  // namespace moe
