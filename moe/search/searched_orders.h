#pragma once
// Searches the lane orders of schedules that have them searched (fsmoe-interleaved).
#include "moe/search/degrees.h"

namespace moe::search {

/// Searches from the best that FSMoE's order gives for the best order of every degree that the bounds leave open. It
/// searches the forward, whose dense part no order changes, and the backward, for the gradients that FSMoE's order puts
/// into the MoE part and for none, each with its best split, until neither changes. Sets `best`'s decision, times of
/// both phases, exact_order and gap.
void improve_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best);

/// Returns orders worth trying in a backward of this degree beside FSMoE's: those that are best without contention with
/// no gradients in the MoE part, with half of a layer's and with all.
std::vector<LaneOrder> backward_orders(LayerReplay& layer, int degree);

}  // namespace moe::search
