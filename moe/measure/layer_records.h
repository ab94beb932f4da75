#pragma once
// One layer under several schedules: planned, predicted, run, and turned into records. What `layerbench` and `tune`
// share.
#include <string>
#include <vector>

#include "moe/cost/simulator.h"
#include "moe/measure/layer_bench.h"
#include "moe/measure/overlap.h"
#include "moe/record/record.h"
#include "moe/search/degrees.h"

namespace moe {

struct LayerJob {
  std::string name;
  LayerCase shape;
  Profile predicted_by;             // what the plans are tuned and predicted with
  std::optional<Profile> paced_by;  // what the emulated cluster is; none: this machine, unpaced
  std::vector<const Schedule*> schedules;
  DegreeChoice degrees;
  const Schedule* tried = nullptr;  // runs at each of these degrees too, forward and backward alike, but those above
  std::vector<int> tried_degrees;   // largest_degree
  PricingOptions pricing;
  LayerBenchSettings settings;
  std::string_view backend() const { return settings.processes ? settings.processes->backend() : "local"; }
};

struct LayerOutcome {
  std::string layer;
  std::vector<CaseRecord> records;  // of the schedules that ran, in their order, then of those that can't
  std::vector<CaseRecord> tried;    // of the job's tried degrees
  std::vector<Plan> plans;          // nominal; as those below of the first records, or empty: taken from an earlier run
  std::vector<Timeline> predicted;
  std::vector<std::vector<TaskTime>> measured;          // rank 0, of the median iteration
  std::vector<std::vector<TaskComparison>> tasks = {};  // none of what was only checked
};

/// Tunes (for the job's rounding), runs, compares. More overruns than kOverrunLimit make a record `invalid`. What was
/// only checked has status ok and no samples, and where predicted_by has no price for it a plan by nominal costs
/// (nominal_profile.h) and no prediction. A record's fields beside those of their names:
///   summary      exposed_s, overlap_efficiency (overlap.h): medians over iterations of the worst rank;
///                ratio_PHASE_KIND: the tasks' median of measured over predicted; worst_task, worst_task_ratio;
///                drop_rate, most_load, mean_load, imbalance, padding (load.h); peak_bytes: of the Tensors of a rank's
///                layer; tensors_made: in the timed passes of all schedules
///                planned_by: name of the profile that decided degrees and order, "nominal" of nominal costs
///                proven_tokens: of the layer whose results were compared (layer_bench.h)
///                dilation_set_by (dilation.h); repeats: times its passes were discarded for too many overruns;
///                proving_wall_s, unpaced_wall_s, timed_wall_s: where the time of all the layer's schedules went
///   prediction   exposed_s, overlap_efficiency of the replay; peak_bytes by estimate_memory, without optimizer states;
///                weak_rows: which rows of the profile are weak (fit.h), and why; absent: none
/// Loads and bytes are of the layer that ran: of an emulated cluster the proxy.
LayerOutcome run_layer_job(const LayerJob& job, const Fields& parameters);

/// What a job that threw leaves: a record of every schedule with this status and reason.
LayerOutcome failed_layer_job(const LayerJob& job, const Fields& parameters, CaseStatus status,
                              const std::string& reason);

/// The tried degrees that the layer has rows for.
std::vector<int> runnable_degrees(const LayerJob& job);

/// About how long run_layer_job will take on an emulated cluster.
double estimated_seconds(const LayerJob& job);

/// "run/LAYER/SCHEDULE", of a tried degree "run/LAYER/SCHEDULE/r4".
std::string run_key(const std::string& layer, std::string_view schedule, int tried_degree = 0);

/// Measured total over predicted total of an ok record.
double measured_over_predicted(const CaseRecord& record);

/// Perfetto timeline: for each schedule the measured ranks' lanes above the simulated ones.
void write_layer_trace(const LayerOutcome& outcome, const std::string& path);

}  // namespace moe
