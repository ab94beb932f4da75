#pragma once
// Holds when the tasks of a plan ran, pass after pass: as numbers, since the ranks of other processes send theirs.
#include <vector>

#include "moe/measure/layers/overlap.h"

namespace moe::measure {

/// Returns each task's times on that rank, or where it is another stage's on the first rank that has it.
std::vector<TaskTime> times_on(const RankTimes& ranks, size_t rank);

/// Holds a rank's passes one after the other; whatever appends and reads them knows the plan.
using PassNumbers = std::vector<double>;
void append_pass(const Plan& plan, const RunTimes& times, double dilation, PassNumbers& passes);

/// Holds all ranks' passes; seconds are divided by the dilation, but those of `tasks`.
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

/// Returns a task's seconds in each pass, by own_seconds or in_step_seconds (overlap.h).
template <class SecondsOf>
std::vector<double> seconds_by_pass(const PassTimes& passes, const Task& task, const std::vector<RankMachine>& machines,
                                    SecondsOf seconds_of) {
  std::vector<double> seconds;
  for (size_t i = 0; i < passes.tasks.size(); ++i)
    seconds.push_back(seconds_of(task, passes.tasks[i], passes.begin_s[i], machines));
  return seconds;
}

}  // namespace moe::measure
