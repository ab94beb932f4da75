#pragma once
// The search for the best decision for one layer under one schedule.
#include "moe/search/degrees.h"

namespace moe {

/// A search for layers. It caches data that layers share, so use one object for all layers of a grid.
class LayerSearch {
 public:
  /// Decides everything that `choice` leaves open (tune_degrees), the variant of a schedule that has variants, and the
  /// packing of experts. Throws BadInput for a degree that the schedule does not allow (ds-moe: only 1; tutel: one for
  /// both phases), and Unsupported if the case or the profile does not support the schedule.
  LayerResult tune(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice choice = {});
  /// Returns the times of a decision.
  LayerResult evaluate(const Schedule& schedule, const LayerPricer& pricer, const Decision& decision);
  /// Returns the replay of a schedule without variants. The schedule and the pricer must outlive it.
  search::LayerReplay replay(const Schedule& schedule, const LayerPricer& pricer) { return {schedule, pricer, store_}; }

 private:
  search::ReplayStore store_;
};

// The search for schedules with variants (parm, monta) and with packed experts (lina-packed).

/// Returns the result of the chosen variant: for parm by Parm's rule, for monta the fastest one.
LayerResult tune_variants(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          const DegreeChoice& choice);
/// Returns the layer's results for each packing to compare: choice.packing or, if that is 0, 1, 2, 4 ..
/// (Decision::packing), as far as Lina's rule and the memory of a rank allow.
std::vector<LayerResult> tune_packings(search::LayerReplay layer, DegreeChoice choice);
/// Returns the best of tune_packings().
LayerResult tune_packed(search::LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe

// The search for degrees under Rounding::lcm: T_rank is padded to a multiple of both degrees, so the phases can't be
// decided separately.

namespace moe::search {

/// As tune_degrees(), for a case whose rows depend on its degrees. No pair of degrees is better than the result.
LayerResult tune_padded(LayerReplay layer, const DegreeChoice& choice);

}  // namespace moe::search
