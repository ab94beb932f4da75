#pragma once
// The price of a model's dense layers, for the bound of the whole model (contended_bound.h).
#include "moe/search/contended_bound.h"

namespace moe::search {

/// Holds the dense layers between those of the passes that a bound is asked of.
struct PricedDense {
  int layers = 0;
  bool first = false, last = false;  // one is the first, the last, that a backward visits
  int64_t made_bytes = 0;            // gradients of each
  PricedPass forward = {}, backward = {};
};
/// Bounds as least_model_seconds of contended_bound.h does, `layers` layers with experts and these beside them.
double least_model_seconds(const LayerPricer& pricer, int layers, const PricedPasses& passes, const PricedDense& dense,
                           bool overlaps);

}  // namespace moe::search
