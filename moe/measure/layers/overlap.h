#pragma once
// Computes how much of a pass's communication is hidden by computation, and how each kind of task compares with its
// prediction.
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
  /// Seconds in which some communication lane runs a task and the compute lane runs none.
  double exposed_s = 0;
  /// (sum of the lanes' busy times - makespan) / (that sum - the busiest lane's time): 0 if lanes run one after the
  /// other; 1 if the busiest lane never waits. Gaps between tasks reduce it, at worst to 0. If only one lane is busy,
  /// it has no meaning and is 1.
  double efficiency = 1;
};
/// Returns the overlap of a pass; `times`: by task id.
Overlap overlap_of(const Plan& plan, std::span<const TaskTime> times);

/// Returns the seconds in which a rank runs some task other than a send, a receive or a norm: for the rest of a pass it
/// waits for other stages, or for a core. A collective's time includes its wait for the ranks of its own stage.
double working_seconds(const Plan& plan, std::span<const TaskTime> times);
/// Returns the share of a replay in which a stage does not work (working_seconds), the mean over stages. `times`: those
/// of all stages' tasks.
double bubble_of(const Plan& plan, std::span<const TaskTime> times);

/// Returns whether the task ran on the rank: tasks of other stages have no times there.
inline bool has_time(const TaskTime& t) { return t.end_s > 0; }

/// Returns the seconds of a task's own work in one pass. For a collective, this is the shortest time of any rank, that
/// of the rank that came last, because the other times include the wait for it. For a computation, it is the time on
/// the slowest machine: the time of its slowest rank or, if it has more ranks than the n that its cores run at once,
/// the integral of the number of running ranks (n at most) over n. So waiting for a core counts, and a late wake-up of
/// a thread does not. `begin_s`: when each rank's pass began.
double own_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                   const std::vector<RankMachine>& machines);
/// Returns the result of own_seconds() if every rank has a machine of its own (machines_apart).
double own_seconds(const Task& task, const RankTimes& ranks);
/// Returns the seconds of a task's own work if all ranks begin it together (rank_run.h). For a collective, this is the
/// shortest time of any machine, from its last rank's start to its last rank's end.
double in_step_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                       const std::vector<RankMachine>& machines);

/// The measured and predicted times of the tasks of one kind and phase.
struct TaskComparison {
  TaskKind kind = TaskKind::order;
  Phase phase = Phase::forward;
  int tasks = 0;
  double measured_s = 0, predicted_s = 0;  // sums over these tasks
  double median_ratio = 0;                 // median of measured over predicted; 0: the prediction is 0
  double worst_ratio = 0;                  // ratio that is farthest from 1, up or down
  std::string worst_task;
};
/// Returns whether ratio a is farther from 1 than b: 0.5 is as far as 2. Any ratio is farther than 0.
bool farther_from_1(double a, double b);

/// Returns comparisons in the order in which kinds first appear. `measured`, `predicted`: seconds by task id.
std::vector<TaskComparison> compare_tasks(const Plan& plan, std::span<const double> measured,
                                          std::span<const double> predicted);

// The times of a plan's tasks, pass after pass, as numbers, because the ranks of other processes send theirs.

/// Returns each task's times on that rank; those of other stages' tasks on the first rank that has them.
std::vector<TaskTime> times_on(const RankTimes& ranks, size_t rank);

/// A rank's passes one after the other; the functions that append and read them use the plan.
using PassNumbers = std::vector<double>;
void append_pass(const Plan& plan, const RunTimes& times, double dilation, PassNumbers& passes);

/// All ranks' passes; seconds are divided by the dilation, except those of `tasks`.
struct PassTimes {
  std::vector<std::vector<double>> forward_s, total_s;  // [iteration][rank]
  std::vector<std::vector<double>> exposed_s, overlap;  // likewise (overlap.h: exposed_s, efficiency)
  std::vector<std::vector<double>> working_s;           // likewise (overlap.h: working_seconds)
  std::vector<RankTimes> tasks;                         // [iteration]
  std::vector<std::vector<double>> begin_s;             // [iteration][rank], by the rank's clock, not divided
  int64_t overruns = 0;
};
PassTimes read_passes(const Plan& plan, const std::vector<PassNumbers>& ranks);

/// Returns [pass][rank] of numbers that are [rank][pass].
std::vector<std::vector<double>> by_pass(const std::vector<std::vector<double>>& ranks);

/// Returns each rank's times_on in a pass, counted from the moment when the first rank of its machine began it.
RankTimes times_of_ranks(const PassTimes& passes, size_t pass, const std::vector<RankMachine>& machines);

/// Returns the iteration whose slowest rank's total is nearest to the median. `total_s`: [iteration][rank].
size_t median_pass(const std::vector<std::vector<double>>& total_s);
/// Returns the first of the ranks with the largest total. `total_s`: [rank].
size_t slowest_rank(const std::vector<double>& total_s);

/// Returns a task's seconds in each pass, by own_seconds or in_step_seconds.
template <class SecondsOf>
std::vector<double> seconds_by_pass(const PassTimes& passes, const Task& task, const std::vector<RankMachine>& machines,
                                    SecondsOf seconds_of) {
  std::vector<double> seconds;
  for (size_t i = 0; i < passes.tasks.size(); ++i)
    seconds.push_back(seconds_of(task, passes.tasks[i], passes.begin_s[i], machines));
  return seconds;
}

}  // namespace moe::measure
