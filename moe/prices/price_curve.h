#pragma once
// The seconds of work as a function of its size: alpha + n beta, or a measured curve.
#include "moe/prices/profile.h"

namespace moe {

/// The least seconds of work that is cut into parts: of all parts together, and of a single part.
struct LeastSeconds {
  double all = 0, one = 0;
};

/// Straight pieces that join: from alpha at size 0 through the knots, then with slope beta. A line has no knots.
struct PriceCurve {
  double alpha = 0, beta = 0;  // seconds, and seconds per byte or FLOP
  Points knots = {};           // ascending sizes above 0
  double seconds(double work) const;
  /// Returns the least seconds of parts that make up `work` in total, none larger than `largest` <= work, each with
  /// `overhead`.
  LeastSeconds in_parts(double work, double largest, double overhead) const;
  /// Returns the sizes at which the slope changes, ascending.
  std::vector<double> bends() const;
  /// Makes each size cost what `times` that size cost before.
  void stretch(double times);
  /// Adds `times` the seconds of the other curve at each size.
  void add(const PriceCurve& other, double times = 1);
};

/// Returns the row's line, or its measured curve, whose outermost pieces extend beyond its ends; it starts at 0 if the
/// first piece would start below, and is level at its end if the last piece falls.
PriceCurve price_curve(const CommRow& row);

}  // namespace moe
