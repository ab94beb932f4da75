#pragma once
// Everything a layer can be made of, as one space of choices: what the conformance suite draws from.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "moe/layer/parameter.h"
#include "moe/schedule/schedule.h"

namespace moe::layer_space {

/// A point of the space: for each axis which of its values.
using Point = std::vector<int>;

struct Axis {
  std::string name;
  std::vector<std::string> values;
};

/// Returns the axes: gate, order, dispatcher, ffn, schedule, parallel shape, capacity, norm, losses, degrees,
/// attention, routing, top-k, shared expert.
const std::vector<Axis>& axes();
std::string text_of(const Point& point);

struct DrawnLayer {
  LayerCase shape;
  Plan plan;
  LayerSeed seed;
};
/// Returns the point's layer. Throws BadInput or Unsupported where its parts don't go together.
LayerCase shape_of(const Point& point);
/// Returns the same with a plan of any decision that the schedule has.
DrawnLayer make_case(const Point& point, uint64_t seed);
/// Returns the same of another shape, which the point's parts go together with.
DrawnLayer make_case(const Point& point, const LayerCase& shape, uint64_t seed);
/// Returns any point.
Point any_point(uint64_t seed, uint64_t& draws);

/// Returns points that cover every pair of values of two axes at least once, but for the pairs that no point with
/// `possible` has, and at least `least` points in all; the same seed gives the same ones.
std::vector<Point> covering(size_t least, uint64_t seed, const std::function<bool(const Point&)>& possible);

}  // namespace moe::layer_space
