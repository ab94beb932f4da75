#pragma once
// Chooses how many times slower than modelled an emulated cluster runs, so that the real work fits under its paces.
#include <memory>
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/measure/layers/pass_times.h"
#include "moe/plan/plan.h"

namespace moe::measure {

/// Holds one schedule's plan, priced.
struct PlannedRun {
  Plan plan;                             // nominal
  std::vector<double> task_seconds;      // modelled, by task id
  double forward_s = 0, backward_s = 0;  // predicted
  // These say how tasks slow each other down (moe/cost/slowdown.h), and by task id what each uses; empty where none
  // does.
  Pacer::Slowdown slowdown = {};
  Pacer::Stall stall = {};
  std::vector<int> resources = {};
};

struct Dilation {
  double factor = 1;
  std::string set_by =
      {};  // "the shortest pass", "the shortest tasks, ..." or "the work of ...": what asks for the most
};

/// Returns the least dilation whose passes and tasks are long enough to be paced well, whatever the work under them
/// takes.
Dilation least_dilation(const std::vector<PlannedRun>& planned);

/// Returns least_dilation() or, where that is more, four times the largest ratio of unpaced work to modelled time. A
/// ratio is the median over all passes and over all tasks of one kind and phase of a schedule, so that neither one pass
/// nor one task that the machine interrupted decides. Kinds of very few tasks, and those of a step, that take next to
/// nothing of a pass ask for less. `unpaced`: [schedule][pass].
Dilation choose_dilation(const std::vector<PlannedRun>& planned, const std::vector<std::vector<RankTimes>>& unpaced);

/// Makes the pacer of a run whose tasks slow each other down, at the modelled rates, its stalls dilated; else null.
std::unique_ptr<Pacer> make_pacer(const PlannedRun& run, int ranks, const Dilation& dilation);

}  // namespace moe::measure
