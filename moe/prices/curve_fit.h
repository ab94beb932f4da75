#pragma once
// Fits of measured seconds over sizes: straight lines, and curves of straight pieces.
#include <optional>
#include <string>
#include <vector>

#include "moe/prices/profile.h"

namespace moe {

/// The line t(n) = starts alpha + n beta (FSMoE section 4.1) through measured times: least squares, and which of the
/// samples are no part of any such line.
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

/// Returns which samples lie off the line that most of them share, found by least median of squared relative residuals
/// over the lines through two samples (Rousseeuw 1984: holds while more than half of the samples are sound), then by
/// reweighting: relative least squares of what is kept, a deviation of 1.4826 (1 + 5 / (n - 2)) medians, until the set
/// stays. Names none where fewer than two sizes would be left.
std::vector<bool> outliers(const std::vector<FitSample>& samples);

size_t distinct_sizes(const std::vector<FitSample>& samples);

/// A measured curve as straight pieces that join and never fall: what one line is too stiff for.
struct PiecewiseCurve {
  Points knots;  // ascending sizes from the least to the largest measured, nondecreasing seconds
  /// Cross-validation: every size in turn is left out (of more than kMostFolds sizes, as many groups of them), knots
  /// and seconds are found anew, by the number of pieces that does best on the other sizes, and held against it:
  /// |predicted - measured| / measured, by sample, in the order of sizes. Empty where two sizes would not be left.
  std::vector<double> held_out;

  /// Returns the seconds on the line through the two knots around a size; beyond the ends the outermost pieces go on.
  double seconds(double size) const;
  /// These return the median and the largest of held_out; none where it is empty.
  std::optional<double> held_out_error() const, held_out_worst() const;
};

inline constexpr int kMostCurvePieces = 6;
inline constexpr int kMostFolds = 24;

/// Fits at most `most` pieces to (size, seconds) in any order; 1 is a line. Knots are sizes of samples. Seconds at them
/// are relative least squares (each residual over what was measured) of increments that are not negative. There are as
/// many pieces as do best at cross-validation, by the mean error; of equally good numbers the fewest. A search drops
/// the knot that is missed least, adds the one that helps most, and exchanges one by one. Throws BadInput "WHAT: found
/// ..., expected ..." for sizes or seconds that are not positive and finite, fewer than two sizes, or `most` below 1.
PiecewiseCurve fit_pieces(Points samples, std::string_view what, int most = kMostCurvePieces);

}  // namespace moe
