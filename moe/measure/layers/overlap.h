#pragma once
// The share of a pass's communication that computation hides, and the comparison of measured with predicted task times.
#include <span>
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/plan/plan.h"

namespace moe::measure {

using RankTimes = std::vector<std::vector<TaskTime>>;  // [rank][task]; 0 for tasks of other stages

/// The overlap of one rank's pass, forward and backward. A task's time on a communication lane includes its wait for
/// other ranks.
struct Overlap {
  /// Seconds during which some communication lane runs a task and the compute lane runs none.
  double exposed_s = 0;
  /// (sum of the lanes' busy times - makespan) / (that sum - the busiest lane's time), at least 0. 0: lanes run one
  /// after the other; 1: the busiest lane never waits, or only one lane is busy.
  double efficiency = 1;
};
/// Returns the overlap of a pass; `times`: by task id.
Overlap overlap_of(const Plan& plan, std::span<const TaskTime> times);

/// Returns the seconds during which a rank runs some task other than a send, a receive or a norm. In the rest of a pass
/// it waits for other stages or for a core. The time of a collective includes its wait for ranks of the same stage.
double working_seconds(const Plan& plan, std::span<const TaskTime> times);
/// Returns the share of a replay in which a stage does not work (working_seconds), as the mean over stages. `times`: of
/// the tasks of all stages.
double bubble_of(const Plan& plan, std::span<const TaskTime> times);

/// Returns whether the task ran on the rank: tasks of other stages have no times there.
inline bool has_time(const TaskTime& t) { return t.end_s > 0; }

/// Returns the seconds of a task's own work in one pass. For a collective: the shortest time of any rank, which is that
/// of the last rank to arrive; the other times include the wait for it. For a computation: the time on the slowest
/// machine. That is the time of its slowest rank or, if the machine has more ranks than the n that its cores run at
/// once, the integral over time of min(running ranks, n), divided by n. So waiting for a core counts, and a late
/// wake-up of a thread does not. `begin_s`: start of each rank's pass.
double own_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                   const std::vector<RankMachine>& machines);
/// own_seconds() with a separate machine for every rank (one_machine_per_rank).
double own_seconds(const Task& task, const RankTimes& ranks);
/// As own_seconds(), for tasks that all ranks begin together (rank_run.h). The time of a collective is the shortest
/// time of any machine, from its last rank's start to its last rank's end.
double lockstep_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                        const std::vector<RankMachine>& machines);

/// Comparison of measured with predicted times of the tasks of one kind and phase.
struct TaskComparison {
  TaskKind kind = TaskKind::order;
  Phase phase = Phase::forward;
  int tasks = 0;
  double measured_s = 0, predicted_s = 0;  // sums over these tasks
  double median_ratio = 0;                 // median of measured over predicted; 0: the prediction is 0
  double worst_ratio = 0;                  // ratio that is farthest from 1 (is_farther_from_1)
  std::string worst_task;
};
/// Returns whether ratio a is farther from 1 than b, where 0.5 is as far as 2. b = 0 means no ratio yet: any ratio is
/// farther.
bool is_farther_from_1(double a, double b);

/// Returns a comparison for each kind and phase, by their first tasks. `measured`, `predicted`: seconds by task id.
std::vector<TaskComparison> compare_tasks(const Plan& plan, std::span<const double> measured,
                                          std::span<const double> predicted);

// The times of a plan's tasks in several passes as a sequence of numbers, in which processes exchange them.

/// Returns each task's times on `rank`; for tasks of other stages, those on the first rank that has times.
std::vector<TaskTime> times_on(const RankTimes& ranks, size_t rank);

/// A rank's passes one after the other, as append_pass() writes and read_passes() reads them.
using PackedPassTimes = std::vector<double>;
void append_pass(const Plan& plan, const RunTimes& times, double dilation, PackedPassTimes& passes);

/// All ranks' passes; seconds are divided by the dilation, except those of `tasks`.
struct PassTimes {
  std::vector<std::vector<double>> forward_s, total_s;  // [iteration][rank]
  std::vector<std::vector<double>> exposed_s, overlap;  // likewise (overlap.h: exposed_s, efficiency)
  std::vector<std::vector<double>> working_s;           // likewise (overlap.h: working_seconds)
  std::vector<RankTimes> tasks;                         // [iteration]
  /// [iteration][rank], by the rank's clock, not divided by the dilation.
  std::vector<std::vector<double>> begin_s;
  int64_t overruns = 0;
};
PassTimes read_passes(const Plan& plan, const std::vector<PackedPassTimes>& ranks);

/// Returns the numbers [rank][pass] as [pass][rank].
std::vector<std::vector<double>> by_pass(const std::vector<std::vector<double>>& ranks);

/// Returns times_on() for each rank in a pass, relative to the time at which the first rank of its machine began the
/// pass.
RankTimes times_of_ranks(const PassTimes& passes, size_t pass, const std::vector<RankMachine>& machines);

/// Returns the iteration whose slowest rank's total is nearest to the median. `total_s`: [iteration][rank].
size_t median_pass(const std::vector<std::vector<double>>& total_s);
/// Returns the rank with the largest total, the first of equal ones. `total_s`: [rank].
size_t slowest_rank(const std::vector<double>& total_s);

/// Returns a task's seconds in each pass. `seconds_of`: own_seconds or lockstep_seconds.
template <class SecondsOf>
std::vector<double> seconds_by_pass(const PassTimes& passes, const Task& task, const std::vector<RankMachine>& machines,
                                    SecondsOf seconds_of) {
  std::vector<double> seconds;
  for (size_t i = 0; i < passes.tasks.size(); ++i)
    seconds.push_back(seconds_of(task, passes.tasks[i], passes.begin_s[i], machines));
  return seconds;
}

}  // namespace moe::measure
