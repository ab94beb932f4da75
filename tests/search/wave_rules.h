#pragma once
// The rules of a whole iteration's order, written from what a layer does, not from how plans are built: which task must
// be over before another begins, what each lane runs, which bytes are sent. Of layers with experts alone, in FSMoE's
// flow, without a step.
#include <span>
#include <string>
#include <vector>

#include "moe/plan/plan.h"
#include "moe/prices/pricer.h"
#include "moe/schedule/schedule.h"

namespace moe::wave_rules {

struct Rule {
  int before = -1, then = -1;  // tasks
  std::string text;
};

/// Returns what must be ordered; adds to `faults` the tasks that a rule names and the plan has not, or has twice.
std::vector<Rule> rules_of(const Plan& plan, int keep, std::vector<std::string>& faults);

/// A plan's times, from its lanes' queues and dependencies alone.
struct Times {
  std::vector<double> begin_s, end_s;  // by task; empty: it cannot run to its end
  double makespan_s() const;
};
Times times_of(const Plan& plan, std::span<const double> seconds_by_task);

/// Returns every two passes that run at once though the order of iterations has no turn with both.
std::vector<std::string> meetings(const Plan& plan, IterationOrder order, const Times& times);

/// Returns every rule that the plan breaks if its tasks take so long.
std::vector<std::string> faults_of(const Plan& plan, int keep, std::span<const double> seconds_by_task);

}  // namespace moe::wave_rules
