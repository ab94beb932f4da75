#pragma once
// What the replay of all ranks is compared with: every rank has its own queues and its own clockwork.
#include <cstdint>
#include <vector>

#include "moe/simulator/rank_replay.h"
#include "moe/simulator/slowdown.h"

namespace moe::ranks {

struct Draw {
  Structure structure;
  ParallelShape parallel;
  std::vector<double> seconds;  // one class a task
  RankNoise noise;
  GroupNetworks networks{};
  Contention contention;  // none, and no lane shares a network
};

/// Returns a draw by the seed alone: up to 48 ranks in groups of all kinds, up to 30 tasks on lanes of up to all
/// stages, jitter, stragglers and loads, of one layer or by layer.
Draw random_draw(uint64_t seed);
/// Returns the same, with lanes of all kinds, of which several may use one network, and factors of contention.
Draw random_contended_draw(uint64_t seed);

struct Result {
  std::vector<double> end_s, waiting_s;  // by rank
  double makespan_s = 0;
};
Result replay(const Draw& draw, int sample);

}  // namespace moe::ranks
