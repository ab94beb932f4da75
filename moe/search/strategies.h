#pragma once
// Strategies for deciding a layer's degrees and gradient split: the exact search, and FSMoE's own methods. All results
// are replayed, so the loss against the exact search can be reported.
#include <span>
#include <string_view>

#include "moe/search/layer_search.h"

namespace moe {

struct LayerStrategy {
  std::string_view name, summary;
  /// Tunes a schedule with separate r_f and r_b and adaptive gradients.
  LayerResult (*tune)(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer);
};

/// Returns the strategies:
/// exact        every integer degree replayed, every split
/// algorithm1   degrees by FSMoE's Algorithm 1, rounded to the better neighbour; the split by its two steps (section 5)
/// snapped      as algorithm1, degrees rounded to 1, 2, 4 or 8 as the authors' published optimiser does
/// evolution    r_f exact; r_b and the split together by differential evolution
std::span<const LayerStrategy> layer_strategies();

}  // namespace moe
