#pragma once
// The seconds that work takes by its size: alpha + n beta, or a measured curve.
#include "moe/prices/profile.h"

namespace moe {

/// The least seconds of work that is cut into parts: of all parts together, and of any one.
struct LeastSeconds {
  double all = 0, one = 0;
};

/// Straight pieces that join: from alpha at size 0 through the knots, and on with slope beta. A line has no knots.
struct PriceCurve {
  double alpha = 0, beta = 0;  // seconds, and seconds per byte or FLOP
  Points knots = {};           // ascending sizes above 0
  double seconds(double work) const;
  /// Returns the least that parts take which together are `work`, none larger than `largest` <= work, each with this
  /// overhead.
  LeastSeconds in_parts(double work, double largest, double overhead) const;
  /// Returns the sizes at which the slope changes, ascending.
  std::vector<double> bends() const;
  /// Makes each size cost what `times` as much did.
  void stretch(double times);
  /// Adds what `times` as much of the other curve takes at each size.
  void add(const PriceCurve& other, double times = 1);
};

/// Returns the row's line, or its measured curve. Beyond its ends a curve goes on with its outermost pieces; it begins
/// at 0 if the first one would begin below, and goes on level if the last one falls.
PriceCurve price_curve(const CommRow& row);

}  // namespace moe
