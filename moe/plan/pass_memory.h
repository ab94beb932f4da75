#pragma once
// Counts what one layer's pass over a micro-batch holds on the rank that has most, tensor by tensor, as MoeLayer makes
// it.
#include "moe/plan/flow.h"
#include "moe/plan/shape.h"

namespace moe {

/// Holds bytes by how long they are needed (lifetimes.h). Both phases' parts hold the same memory.
struct PassBytes {
  double kept = 0;            // what the backward reads
  double dense = 0, moe = 0;  // what a phase's dense part, and its MoE part or feed-forward, need meanwhile
  double input_sum = 0;       // until MP ranks add up their parts of the input's gradient
  double output = 0;          // of the layer; its gradient is as large
  double apart = 0;           // what each pass has for itself all along
};

/// Says what of attention is there: without it all of the dense part but the gate is left out; the CPU's keeps no
/// scores, whatever is asked (attention_heads.h).
struct AttentionKept {
  bool attends = true, scores = true;
};

/// Counts a layer with experts, or a dense one, under balanced routing.
PassBytes pass_bytes(const LayerCase& shape, Flow flow, AttentionKept attention = {});

}  // namespace moe
