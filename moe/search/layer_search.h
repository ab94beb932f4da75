#pragma once
// Decides one layer under one schedule: what tuner, models and benches ask.
#include "moe/search/degrees.h"

namespace moe {

/// Decides layers and keeps what questions share, so that a grid's layers are all asked of one search.
class LayerSearch {
 public:
  /// Decides what `choice` leaves open (tune_degrees), which variant a schedule chooses, and how far it packs experts.
  /// A degree that the schedule does not have (ds-moe: only 1; tutel: one for both) is BadInput; a schedule that this
  /// case or profile does not allow is Unsupported.
  LayerResult tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice = {});
  /// Returns the times of a decision.
  LayerResult evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision);
  /// Returns the replay of a schedule that doesn't choose among others; schedule and pricer outlive it.
  search::LayerReplay replay(const Schedule& schedule, const LayerPricer& pricer) { return {schedule, pricer, store_}; }

 private:
  search::ReplayStore store_;
};

}  // namespace moe
