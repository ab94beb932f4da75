#pragma once
// Counts what one layer's pass over a micro-batch holds on the rank that has most, tensor by tensor, as MoeLayer makes
// it.
#include "moe/plan/flow.h"
#include "moe/plan/shape.h"

namespace moe {

/// Holds bytes by how long they are needed (lifetimes.h). Both phases' parts hold the same memory.
struct PassBytes {
  double kept = 0;             // what the backward reads, the layer's output included
  double dense = 0, moe = 0;   // what a phase's dense part, and its MoE part or feed-forward, need meanwhile
  double input_sum = 0;        // until MP ranks add up their parts of the input's gradient
  double output_gradient = 0;  // as large as the output
  double apart = 0;            // what each pass has for itself all along
};

/// Counts a layer with experts, or a dense one, under balanced routing. `attends`: false leaves attention out, and with
/// it all of the dense part but the gate.
PassBytes pass_bytes(const LayerCase& shape, Flow flow, bool attends = true);

}  // namespace moe
