#pragma once
// Bounds what no decision for a model can beat, contention counted: by how much a partition may be off.
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

/// One phase at all degrees that may be chosen: these one by one, and all larger ones together.
struct PricedDegrees {
  std::vector<PricedPass> passes;
  double beyond_s = std::numeric_limits<double>::infinity();  // a larger one's least; infinity: there is none
  double busy_beyond_s = 0;                                   // of its gradients' lane, without these
};

/// Both phases of a layer, and what gradients a model has beside its layers'.
struct PricedPasses {
  PricedDegrees forward, backward;
  bool same_degree = false;  // of both: they stand in pairs
  bool any_order = false;    // lanes may have other orders than these structures
  int64_t last_bytes = 0;    // gradients made after all layers' (an embedding's)
  int64_t first_bytes = 0;   // gradients that wait when the backward begins (an output projection's)
};

/// These bound what FSMoE's flow runs (Flow::sharded): one pass, and `layers` layers of one stage with one micro-batch,
/// whatever their degrees and orders and wherever gradients are sent; `overlaps`: beside other work.
///
/// At any time some set of lanes is busy, and its tasks pass at the rates that contention gives that set. The times of
/// all sets must together do all work, so that their least sum is a linear program. Its dual has a price for each kind
/// of work: no set's rates times prices exceed 1. Gradients have one price in all layers, which is searched.
/// `gradients_s`: seconds of what is sent beside one pass, at least; 0: nothing.
double least_pass_seconds(const LayerPricer& pricer, const PricedPass& pass, double gradients_s);
/// Returns the least seconds that `bytes` of gradients take, in whatever slices.
double least_gradient_seconds(const LayerPricer& pricer, int64_t bytes);
/// The dense layers between those of the passes that a bound is asked of.
struct PricedDense {
  int layers = 0;
  bool first = false, last = false;  // one is the first, the last, that a backward visits
  int64_t made_bytes = 0;            // gradients of each
  PricedPass forward = {}, backward = {};
};
double least_model_seconds(const LayerPricer& pricer, int layers, const PricedPasses& passes, const PricedDense& dense,
                           bool overlaps);

}  // namespace moe::search
