#pragma once
// Lower bounds over all decisions for a model under contention. They show how far a partition can be from the best.
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "moe/prices/pricer.h"
#include "moe/schedule/schedule.h"

namespace moe::search {

/// One phase of one layer without gradients, at one degree.
struct PricedPass {
  std::shared_ptr<const Structure> structure;
  std::vector<double> seconds;  // by task id
  double makespan_s = 0;
};

/// One phase at all allowed degrees: a pass for each of the smaller ones, and one bound for all larger ones.
struct PricedDegrees {
  std::vector<PricedPass> passes;
  /// Lower bound on the larger degrees; infinity if there are none.
  double beyond_s = std::numeric_limits<double>::infinity();
  /// Busy seconds of the gradients' lane at larger degrees, without gradients.
  double busy_beyond_s = 0;
};

/// Both phases of the layers of one kind of a stage.
struct PricedLayers {
  PricedDegrees forward, backward;
  bool same_degree = false;          // both phases must have the same degree, so passes form pairs
  bool any_order = false;            // the order of tasks on lanes may differ from that of these structures
  int layers = 0;                    // number of these layers
  bool first = false, last = false;  // the backward's first (last) layer is of this kind
  int64_t made_bytes = 0;            // gradient bytes of one layer
};

/// Gradient bytes of a model's ends.
struct EndGradients {
  int64_t last_bytes = 0;   // made after those of all layers (an embedding's)
  int64_t first_bytes = 0;  // exist when the backward begins (an output projection's)
};

/// These return lower bounds on seconds in FSMoE's flow (Flow::sharded), over all degrees, orders and places of
/// gradients: of one pass, and of all layers of one stage with one micro-batch. `overlaps`: whether gradients may be
/// sent in parallel with other work.
///
/// Method: at any time some set of lanes is busy, at the rates that contention gives this set. The least total time of
/// sets that complete all work is a linear program. Its dual gives each kind of work a price such that for every set,
/// the sum of rates times prices is at most 1. Gradients have the same price in all layers, which is searched.
/// `gradients_s`: lower bound on the seconds of gradients sent during one pass; 0: none.
double min_pass_seconds(const LayerPricer& pricer, const PricedPass& pass, double gradients_s);
/// Returns a lower bound on the seconds of sending `bytes` bytes of gradients, in any slices.
double min_gradient_seconds(const LayerPricer& pricer, int64_t bytes);
/// `kinds`: the layers of each kind, at least one.
double min_model_seconds(const LayerPricer& pricer, std::span<const PricedLayers> kinds, const EndGradients& ends,
                         bool overlaps);

}  // namespace moe::search
