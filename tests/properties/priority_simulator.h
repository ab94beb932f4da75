#pragma once
// What Lina's scheduler does at run time (sections 4.2 and 6.1), event by event: it knows the queues, what has ended
// and the pieces that wait, and nothing of what is to come.
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe::conformance {

struct WaitingPiece {
  double seconds = 0;
  int lane = 0;
  int made_by = -1;  // a task; -1: waits from the start
};

struct PriorityRun {
  std::vector<double> starts, piece_starts;  // by task, where gradient tasks never start; by piece
  double end = 0;
  int held = 0;  // pieces that an imminent AlltoAll alone kept from starting when their lane was idle
};

/// Runs `structure` without its gradient tasks, the pieces in the order given where nothing else waits for their lane.
PriorityRun simulate_priority(const Structure& structure, std::span<const double> seconds,
                              std::span<const WaitingPiece> pieces, bool hold);

}  // namespace moe::conformance
