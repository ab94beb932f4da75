#pragma once
// Lower bounds on all decisions for a model, contention included: they limit the error of a partition.
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

/// One phase at all degrees that may be chosen: the smaller ones one by one, and all larger ones together.
struct PricedDegrees {
  std::vector<PricedPass> passes;
  double beyond_s = std::numeric_limits<double>::infinity();  // least of larger degrees; infinity: there are none
  double busy_beyond_s = 0;                                   // of the gradients' lane, without gradients
};

/// Both phases of the layers of one kind.
struct PricedLayers {
  PricedDegrees forward, backward;
  bool same_degree = false;          // both phases must have the same degree, so passes form pairs
  bool any_order = false;            // lanes may have other orders than in these structures
  int layers = 0;                    // number of these layers
  bool first = false, last = false;  // whether one is the first, or the last, in the backward
  int64_t made_bytes = 0;            // gradients of each
};

/// Gradients of a model that are not its layers'.
struct EndGradients {
  int64_t last_bytes = 0;   // made after those of all layers (an embedding's)
  int64_t first_bytes = 0;  // wait when the backward begins (an output projection's)
};

/// These return lower bounds on the seconds of FSMoE's flow (Flow::sharded): of one pass, and of all layers of one
/// stage with one micro-batch, for all degrees and orders and all places of gradients. `overlaps`: beside other work.
///
/// At any time, some set of lanes is busy, and its tasks run at the rates that contention gives to that set. All sets
/// together must complete all work, so their least total time is a linear program. Its dual has a price for each kind
/// of work such that no set's rates times prices exceed 1. Gradients have one price in all layers, which is searched.
/// `gradients_s`: least seconds of the gradients sent beside one pass; 0: none.
double least_pass_seconds(const LayerPricer& pricer, const PricedPass& pass, double gradients_s);
/// Returns a lower bound on the seconds of sending `bytes` bytes of gradients, in any slices.
double least_gradient_seconds(const LayerPricer& pricer, int64_t bytes);
/// `kinds`: the layers of each kind, at least one.
double least_model_seconds(const LayerPricer& pricer, std::span<const PricedLayers> kinds, const EndGradients& ends,
                           bool overlaps);

}  // namespace moe::search
