#pragma once
// A measured curve as straight pieces that join and never fall: what one line is too stiff for.
#include <optional>
#include <vector>

#include "moe/cost/profile.h"

namespace moe {

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
