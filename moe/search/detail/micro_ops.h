#pragma once
// Fixes the places of gradient pieces on their lanes (Lina sections 4.2 and 6.1): a piece starts whenever its lane is
// idle and no other task waits for that lane; tasks that arrive meanwhile wait for the piece's end.
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe::search {

struct MicroOp {
  double seconds = 0;
  int lane = 0;
  int made_by = -1;  // the task after which it can be sent; -1: from the start
};

struct MicroOps {
  struct Place {
    int layer = -1;  // the layer whose backward sends it; -1: after all of them
    int gap = 0;     // number of other tasks of that backward before it on its lane
  };
  std::vector<Place> places;  // by piece
  double seconds = 0;         // end of the last task and the last piece
};

/// Returns the places of the pieces. `structure`: of one backward, or of a model, whose gradient tasks are ignored; its
/// tasks have prices by id in `seconds`. Pieces of a lane are sent in the given order, only in backwards of micro-batch
/// `last`. With `hold`, none starts from when a layer's combining computation could begin its backward until the
/// layer's first AlltoAll on the same lane starts (Lina section 6.1: "since this implies all-to-all is imminent").
MicroOps freeze_micro_ops(const Structure& structure, std::span<const double> seconds, std::span<const MicroOp> pieces,
                          bool hold, int last = 0);

}  // namespace moe::search
