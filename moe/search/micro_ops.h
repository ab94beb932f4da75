#pragma once
// Freezes where gradient pieces go on their lane (Lina section 4.2): one is started whenever the lane is idle and
// nothing else waits for it; what arrives meanwhile waits for its end.
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

struct MicroOps {
  std::vector<int> gaps;  // by piece: how many other tasks of its lane go before it
  double seconds = 0;     // of the backward with them
};

/// `backward`: a structure of one backward without gradients, its tasks priced by class in `seconds`; `pieces`: seconds
/// of each, in order of sending, all waiting when the backward begins; `lane`: theirs. With `hold` none starts before
/// the lane's first task.
MicroOps freeze_micro_ops(const Structure& backward, std::span<const double> seconds, std::span<const double> pieces,
                          int lane, bool hold);

}  // namespace moe
