#pragma once
// Freezes where gradient pieces go on their lanes (Lina sections 4.2 and 6.1): a piece is started whenever its lane is
// idle and nothing else waits for that lane; what arrives meanwhile waits for the piece's end.
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe::search {

struct MicroOp {
  double seconds = 0;
  int lane = 0;
  int made_by = -1;  // the task after which it can be sent; -1: it waits from the start
};

struct MicroOps {
  struct Place {
    int layer = -1;  // in whose backward it goes; -1: after all of them
    int gap = 0;     // how many other tasks of that backward go before it on its lane
  };
  std::vector<Place> places;  // by piece
  double seconds = 0;         // until the last task and the last piece end
};

/// Returns where the pieces go. `structure`: of one backward, or of a model, whose gradient tasks are ignored; its
/// tasks priced by id in `seconds`. Pieces of a lane go in the order given, in backwards of micro-batch `last`
/// alone. With `hold` none is started once a layer's combining computation could begin its backward, until that layer's
/// first AlltoAll on the same lane is (Lina section 6.1: "since this implies all-to-all is imminent").
MicroOps freeze_micro_ops(const Structure& structure, std::span<const double> seconds, std::span<const MicroOp> pieces,
                          bool hold, int last = 0);

}  // namespace moe::search
