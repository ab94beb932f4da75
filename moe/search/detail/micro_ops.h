#pragma once
// The places of gradient pieces on their lanes under Lina's priorities (Lina sections 4.2 and 6.1): a piece starts when
// its lane is idle and no other task waits for that lane; a task that becomes ready meanwhile waits for the piece's
// end.
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe::search {

struct MicroOp {
  double seconds = 0;
  int lane = 0;
  int made_by = -1;  // the task after which it can be sent; -1: any time
};

struct MicroOps {
  struct Place {
    int layer = -1;  // the layer whose backward sends it; -1: after all of them
    int gap = 0;     // number of other tasks of that backward before it on its lane
  };
  std::vector<Place> places;  // for each piece
  double seconds = 0;         // end of the last task and the last piece
};

/// Returns the places of the pieces. `structure`: a backward or a whole model; its gradient tasks are ignored.
/// `seconds`: for each task id. Pieces of a lane are sent in the given order, only in backwards of micro-batch `last`.
/// With `hold`, no piece starts between the time when the backward of a layer's combine could begin and the start of
/// the layer's first AlltoAll on the same lane (Lina section 6.1: "since this implies all-to-all is imminent").
MicroOps freeze_micro_ops(const Structure& structure, std::span<const double> seconds, std::span<const MicroOp> pieces,
                          bool hold, int last = 0);

}  // namespace moe::search
