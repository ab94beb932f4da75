#pragma once
// Lane orders of schedules that have them searched (fsmoe-interleaved): from the best that FSMoE's order gives, to the
// best order of every degree that the bounds leave open.
#include "moe/search/degrees.h"

namespace moe {

/// Searches from the best that FSMoE's order gives for the best order of every degree that the bounds leave open. Of
/// the forward, whose dense part no order changes; of the backward for the gradients that FSMoE's order puts into the
/// MoE part and for none, each with its best split, until neither changes. Leaves `best`'s decision, times of both
/// phases, exact_order and gap.
void improve_orders(LayerReplay& layer, const DegreeChoice& choice, LayerResult& best);

/// Orders worth trying in a backward of this degree beside FSMoE's: those that are best without contention with no
/// gradients in the MoE part, with half of a layer's and with all.
std::vector<LaneOrder> backward_orders(LayerReplay& layer, int degree);

}  // namespace moe
