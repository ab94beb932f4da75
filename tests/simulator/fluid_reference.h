#pragma once
// What the fluid replay is compared with: time passes in small steps, and everything is looked up anew in each.
#include <cstdint>
#include <vector>

#include "moe/simulator/fluid_replay.h"

namespace moe::fluid {

struct Draw {
  Structure structure;
  GroupNetworks networks{};
  Contention contention;
  std::vector<double> seconds;  // one class a task; a quarter of them take no time
};

/// Returns a draw by the seed alone: 1 to 3 stages of 1 to 5 lanes of all kinds, some of which share a network.
Draw random_draw(uint64_t seed);

/// Returns whether two tasks of a stage use the same network at the same time, as a second lane on it allows.
bool shares_network(const Draw& draw, const Timeline& t);

enum class Cut { at_ends, never };
/// Replays in steps of `step_s`. at_ends: a step is cut short where a task ends in it, so that only rounding is left;
/// never: a task ends with the step in which its work ran out, up to a step too late.
Timeline step_through(const Draw& draw, double step_s, Cut cut);

}  // namespace moe::fluid
