#pragma once
// Decides one layer under one schedule, for the tuner, models and benchmarks.
#include "moe/search/degrees.h"

namespace moe {

/// Decides layers and caches shared data, so a grid's layers should all use the same search.
class LayerSearch {
 public:
  /// Decides what `choice` leaves open (tune_degrees), the variant of a schedule that chooses, and how far it packs
  /// experts. Throws BadInput for a degree that the schedule does not have (ds-moe: only 1; tutel: one for both), and
  /// Unsupported for a schedule that this case or profile does not allow.
  LayerResult tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice = {});
  /// Returns the times of a decision.
  LayerResult evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision);
  /// Returns the replay of a schedule that doesn't choose among others. The schedule and the pricer must outlive it.
  search::LayerReplay replay(const Schedule& schedule, const LayerPricer& pricer) { return {schedule, pricer, store_}; }

 private:
  search::ReplayStore store_;
};

// Tunes schedules that choose among others (parm, monta), or the number of experts per device (lina-packed).

/// Returns the best of the schedule's variants: by Parm's own rule, or for monta by the least seconds.
LayerResult tune_variants(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          const DegreeChoice& choice);
/// Returns a packing schedule's layer as the choice packs it, or with 1, 2, 4 .. experts a device (Decision::packing),
/// as far as Lina's rule goes and memory holds them.
std::vector<LayerResult> tune_packings(search::LayerReplay layer, DegreeChoice choice);
/// Returns the best of tune_packings().
LayerResult tune_packed(search::LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe

// Tunes degrees that pad (Rounding::lcm): T_rank is a multiple of both degrees, so the phases can't be decided
// separately.

namespace moe::search {

/// Returns the same as tune_degrees() for a case whose rows depend on its degrees. The result is as good as the best of
/// all pairs.
LayerResult tune_padded(LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe::search
