#pragma once
// What the executor itself costs, from unpaced runs of empty tasks.

namespace moe {

struct Overhead {
  int ranks = 0, tasks = 0;
  double task_s = 0;       // of a pass over an FSMoE layer (r = 8) whose tasks do nothing, for each task
  double crossing_s = 0;   // a hand-over: end of a task on one lane to the start of its successor on another
  double oversleep_s = 0;  // how late a paced wait ends
};

/// Medians over passes on `ranks` ranks at once, each with lanes of its own.
Overhead measure_overhead(int ranks);

}  // namespace moe
