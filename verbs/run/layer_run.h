#pragma once
// A layer's job, run: what `layerbench` and `tune` do with each of their layers.
#include <optional>
#include <string>
#include <vector>

#include "moe/measure/layers/overlap.h"
#include "moe/record/writer.h"
#include "verbs/run/layer_job.h"
#include "verbs/trace_file.h"

namespace moe::verbs {

/// Holds one schedule's run. All but the record is empty where it did not run, or is taken from an earlier run.
struct ScheduleRun {
  CaseRecord record;
  Plan plan = {};                                   // nominal
  Timeline predicted = {};                          // of that plan
  measure::RankTimes measured = {};                 // of the median iteration, by rank; empty: it was not timed
  int rank = 0;                                     // the slowest of that iteration
  std::vector<measure::TaskComparison> tasks = {};  // empty: it was not timed
};

struct LayerOutcome {
  std::string layer;
  std::vector<ScheduleRun> runs;       // of the schedules that ran, in their order, then of those that can't
  std::vector<CaseRecord> tried = {};  // of the job's tried degrees
};

/// Plans, runs, compares, records (layer_records.h). `parameters`: of every record.
LayerOutcome run_layer_job(const LayerJob& job, const Fields& parameters);

/// Does what run_layer_job does, but leaves a record of every schedule, with status and reason, where the job can't run
/// or its threads fail.
LayerOutcome run_or_record_why(const LayerJob& job, const Fields& parameters);

/// Returns what a job that did not run leaves: a record of every schedule with this status and reason.
LayerOutcome failed_layer_job(const LayerJob& job, const Fields& parameters, CaseStatus status,
                              const std::string& reason);

/// Returns what a broken-off run left of this layer already, all of it or nothing: nothing where a schedule has no
/// record, failed or ran out of memory.
std::optional<LayerOutcome> known_outcome(const LayerJob& job, const RecordWriter& writer);

/// Appends the records that the writer has not.
void append(const LayerOutcome& outcome, RecordWriter& writer);

inline constexpr size_t kMostRankTasks = 100000;

/// Throws WrongResult naming the first run whose result was wrong, and Unsupported where none of one layer's or model's
/// schedules can be run: a grid's layer that can't is a row among others.
void require_sound(const LayerOutcome& outcome, bool alone);

/// Returns whether a run of the outcome has times.
bool was_timed(const LayerOutcome& outcome);
/// Writes a Perfetto timeline: for each timed schedule the measured ranks' lanes above the simulated ones; a plan of
/// more than kMostRankTasks tasks over all ranks has the slowest rank's lanes alone.
void write_layer_trace(const LayerOutcome& outcome, const TraceFlags& flags);

}  // namespace moe::verbs
