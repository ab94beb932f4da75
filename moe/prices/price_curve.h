#pragma once
// Price curves: the seconds of work as a function of its size, alpha + n beta or a measured curve.
#include "moe/prices/profile.h"

namespace moe {

/// Lower bounds on the seconds of work that is cut into parts: all: of all parts together; one: of a single part.
struct MinSeconds {
  double all = 0, one = 0;
};

/// A continuous curve of straight pieces: from alpha at size 0 through the knots (none: a line), then with slope beta.
struct PriceCurve {
  double alpha = 0, beta = 0;  // seconds, and seconds per byte or FLOP
  Points knots = {};           // ascending sizes above 0
  double seconds(double work) const;
  /// Returns lower bounds for all ways to cut `work` into parts of at most `largest` <= work; each part takes
  /// `overhead` more seconds.
  MinSeconds seconds_in_parts(double work, double largest, double overhead) const;
  /// Returns the sizes at which the slope changes, ascending.
  std::vector<double> breakpoints() const;
  /// Stretches the curve along the sizes: the new seconds of size n are the old ones of `times` n.
  void stretch(double times);
  /// Adds `times` the seconds of the other curve at each size.
  void add(const PriceCurve& other, double times = 1);
};

/// Returns the row's line or, if it has one, its measured curve, whose outermost pieces extend beyond the measured
/// sizes. The first piece is raised to start at 0 if it would start below; the last is level if it would fall.
PriceCurve price_curve(const CommRow& row);

}  // namespace moe
