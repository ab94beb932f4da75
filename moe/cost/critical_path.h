#pragma once
// Finds which tasks of a run decide how long it takes, and how much later each other one might have ended.
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

struct CriticalPath {
  std::vector<bool> on_path;    // by task id
  std::vector<double> slack_s;  // likewise: the run lasts as long if the task alone ends that much later
};

/// Returns path and slack of any times of a plan's tasks, simulated or measured. The path goes back from the task that
/// ends last, always to what ended last of all that a task waited for: its dependencies and the task before it on its
/// lane. Slack assumes that every other task keeps its length and ends no sooner after what it waited for: a measured
/// task that started late, because its thread got no core, would start as late again. So tasks on the path have none.
CriticalPath critical_path(const Structure& structure, std::span<const double> start_s, std::span<const double> end_s);

}  // namespace moe
