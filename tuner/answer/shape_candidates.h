#pragma once
// The shapes that a search for the parallel shape goes through.
#include <limits>
#include <vector>

#include "tuner/answer/shape_search.h"

namespace moe::tuner {

/// Groups, how the global batch is cut, and what a rank keeps.
struct ShapeCandidate {
  ModelShape model;
  double memory_bytes = 0;  // of a rank, at least
};

struct ShapeCandidates {
  std::vector<ShapeCandidate> fitting;
  int too_large = 0;                                             // for a rank's memory
  double least_bytes = std::numeric_limits<double>::infinity();  // that a shape needs, also one that is too large
};

/// Returns every shape that divides layers, ranks and samples; what a flag says is the same in all of them.
ShapeCandidates shape_candidates(const ShapeRequest& request);

}  // namespace moe::tuner
