#pragma once
// Improves a model's decision by small moves (other degrees, bytes sent elsewhere) until none makes it faster. Each
// move is replayed whole, so that nothing about contention is assumed.
#include <vector>

#include "moe/search/degrees.h"
#include "moe/search/model_replay.h"

namespace moe::search {

struct DescentMoves {
  std::vector<BackwardOption> backwards;
  bool one_degree = false;     // of both phases: all layers move together
  bool forward_too = false;    // r_f is open
  bool micro_batches = false;  // the backwards before the last have a degree of their own
  bool in_moe = false;         // the schedule has a place for gradients there
  int64_t element_bytes = 4;
  int64_t most_tasks = 0;  // effort: tasks of all replays
};

/// Improves `decision` and returns its seconds then; never more than before.
double descend(ModelReplay& replay, const DescentMoves& moves, ModelDecision& decision);

}  // namespace moe::search
