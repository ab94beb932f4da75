#pragma once
// Computes how much of a pass's communication computation hides, and how each kind of task compares with its
// prediction.
#include <span>
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/plan/plan.h"

namespace moe::measure {

using RankTimes = std::vector<std::vector<TaskTime>>;  // [rank][task]; of other stages' tasks 0

/// One rank's pass, forward and backward. A task's time on a communication lane holds its wait for other
/// ranks.
struct Overlap {
  /// The time in which some communication lane runs a task and the compute lane runs none.
  double exposed_s = 0;
  /// (sum of the lanes' busy times - makespan) / (that sum - the busiest lane's): 0, lanes run one after the other; 1,
  /// the busiest lane never waits. Gaps between tasks count against it, at worst to 0. It has no meaning, and is 1,
  /// where one lane alone is busy.
  double efficiency = 1;
};
/// Returns the overlap of a pass; `times`: by task id.
Overlap overlap_of(const Plan& plan, std::span<const TaskTime> times);

/// Returns for how long a rank runs some task that is no send, no receive and no norm: for the rest of a pass it waits
/// for other stages, or for a core. A collective's time holds its wait for the ranks of its own stage.
double working_seconds(const Plan& plan, std::span<const TaskTime> times);
/// Returns the share of a replay in which a stage does not work (working_seconds), the mean over stages. `times`: of
/// all stages.
double bubble_of(const Plan& plan, std::span<const TaskTime> times);

/// Returns whether the task ran on the rank: another stage's has no times there.
inline bool has_time(const TaskTime& t) { return t.end_s > 0; }

/// Returns what a task's own work took in one pass. A collective's is that of the rank that came to it last, since the
/// others' times hold the wait for it. A computation's is that of the slowest machine: of its slowest rank, or where
/// there are more ranks than the n that its cores carry at once, the time of its ranks, n at most at once, over n. So
/// what ranks wait for each other's turn counts, and what a thread waits to be woken does not. `begin_s`: by rank, when
/// its pass began.
double own_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                   const std::vector<RankMachine>& machines);
/// Returns what own_seconds() above does where every rank has a machine of its own (machines_apart).
double own_seconds(const Task& task, const RankTimes& ranks);
/// Returns what a task's own work took where all ranks begin it together (rank_run.h). A collective's is that of the
/// machine where it took least, from the last rank's start to the last one's end.
double in_step_seconds(const Task& task, const RankTimes& ranks, const std::vector<double>& begin_s,
                       const std::vector<RankMachine>& machines);

/// Compares the tasks of one kind and phase.
struct TaskComparison {
  TaskKind kind = TaskKind::order;
  Phase phase = Phase::forward;
  int tasks = 0;
  double measured_s = 0, predicted_s = 0;  // sums over them
  double median_ratio = 0;                 // of measured over predicted; 0: their prediction is 0
  double worst_ratio = 0;                  // the one farthest from 1, up or down
  std::string worst_task;
};
/// Returns whether ratio a is farther from 1 than b: 0.5 is as far as 2. Any ratio is farther than 0.
bool farther_from_1(double a, double b);

/// Returns comparisons in the order in which kinds first appear. `measured`, `predicted`: seconds by task id.
std::vector<TaskComparison> compare_tasks(const Plan& plan, std::span<const double> measured,
                                          std::span<const double> predicted);

// When the tasks of a plan ran, pass after pass: as numbers, since the ranks of other processes send theirs.

/// Returns each task's times on that rank, or where it is another stage's on the first rank that has it.
std::vector<TaskTime> times_on(const RankTimes& ranks, size_t rank);

/// A rank's passes one after the other; whatever appends and reads them knows the plan.
using PassNumbers = std::vector<double>;
void append_pass(const Plan& plan, const RunTimes& times, double dilation, PassNumbers& passes);

/// All ranks' passes; seconds are divided by the dilation, but those of `tasks`.
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

/// Returns each rank's times_on in a pass, counted from when the first rank of its machine began it.
RankTimes times_of_ranks(const PassTimes& passes, size_t pass, const std::vector<RankMachine>& machines);

/// Returns the iteration whose slowest rank's total is nearest to the median. `total_s`: [iteration][rank].
size_t median_pass(const std::vector<std::vector<double>>& total_s);
/// Returns the first of the ranks that took longest. `total_s`: [rank].
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
