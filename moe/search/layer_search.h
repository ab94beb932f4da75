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

// Tunes schedules that choose: among others (parm, monta), or how many experts a device holds (lina-packed).

/// Returns the best of the schedule's variants: by Parm's own rule, or (monta) the one that takes least.
LayerResult tune_variants(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          const DegreeChoice& choice);
/// Returns a packing schedule's layer as the choice packs it, or with 1, 2, 4 .. experts a device (Decision::packing),
/// as far as Lina's rule goes and memory holds them.
std::vector<LayerResult> tune_packings(search::LayerReplay layer, DegreeChoice choice);
/// Returns the best of tune_packings().
LayerResult tune_packed(search::LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe

// Tunes degrees that pad (Rounding::lcm): T_rank is a multiple of both, so that neither phase's is decided
// alone.

namespace moe::search {

/// Returns what tune_degrees() does, for a case whose rows its degrees decide; the result is as good as the best of all
/// pairs.
LayerResult tune_padded(LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe::search
