#pragma once
// Runs one layer, or a stack of them, under several schedules, for real: verifies each against the reference, then
// times their passes in turns, so that variations of the machine's speed affect all of them alike.
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "moe/exec/executor.h"
#include "moe/layer/moe_layer.h"
#include "moe/layer/workload.h"
#include "moe/measure/core_probe.h"
#include "moe/measure/layers/proxy.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/measure/layers/training.h"
#include "moe/schedule/packing.h"

namespace moe::measure {

/// Inspects this process's ranks, in rank order, after they ran a plan.
using Inspection = std::function<void(World&, std::span<RankRun* const>, const Plan&)>;

inline constexpr int kPasses = 5, kMostPasses = 100, kFewestPasses = 3;
inline constexpr double kTimedS = 1;      // seconds of timed passes if passes are short
inline constexpr double kMostTimedS = 2;  // seconds of timed passes of a layer, if a command times many layers
/// Returns how many passes of `pass_s` fill `seconds`: at least kPasses, at most kMostPasses.
int passes_in(double seconds, double pass_s);

struct LayerBenchSettings {
  bool emulated = true;  // paced by the plan's modelled times over a proxy; false: the plan itself, unpaced
  int iterations = kPasses;
  double fill_s = 0;        // more iterations if they take less than this many seconds, for all plans together
  double most_timed_s = 0;  // limit after which kFewestPasses are enough, even if disturbed; 0: no limit
  uint64_t seed = 1;
  double timeout_s = 60;
  bool check_only = false;
  bool graphs = false;   // each pass is also timed as a replay (Executor::record); for unpaced layers on own GPUs
  bool profile = false;  // one more pass of each plan runs for a profiler (moe/device/profiled.h)
  bool in_step = false;  // for serial plans: every task begins on all ranks together (rank_run.h)
  Workload workload = Workload();
  double most_reference_flops = 2e11;  // largest layer that is verified itself: about 10 s on a core
  BenchRanks ranks = {};               // all processes get the same plans
  Drag drag = {};                      // tasks to slow on purpose; only for ranks on the CPU
  TrainingSettings training = {};      // for plans with a vocabulary: a timed pass is a step of training
  /// Called with every schedule's ranks before they are verified, each after two passes of the plan and
  /// finish_gradients.
  Inspection inspect = {};
};

/// Consecutive training steps with the same number of experts per device (moe/schedule/packing.h).
struct PackedSteps {
  int packing = 1;               // experts per device, in multiples of the plan's own
  int64_t first = 1, steps = 0;  // the first step, counted from 1, and their number
  MicroOpTimes times = {};       // of a forward: means over the steps
  double step_s = 0;             // of the slowest rank: the median
  double memory_bytes = 0;       // peak_bytes and states_bytes below
  double moved_bytes = 0;        // bytes received to change to this packing: of the rank that got most
  double moving_s = 0;           // time of that change on the slowest rank; 0 on an emulated cluster
};

/// What one schedule's passes took; seconds are divided by the dilation.
struct MeasuredRun {
  Plan plan;                                            // the plan as it ran
  Dilation dilation;                                    // dilation of the passes that were kept
  std::vector<std::vector<double>> forward_s, total_s;  // [iteration][rank]
  std::vector<std::vector<double>> exposed_s, overlap;  // likewise (overlap.h: exposed_s, efficiency)
  std::vector<std::vector<double>> working_s;           // likewise (overlap.h: working_seconds)
  std::vector<std::vector<double>> replayed_s;          // likewise, for replayed passes; empty without graphs
  std::vector<double> task_s;  // median over iterations, by task id: own_seconds, or in_step_seconds (overlap.h)
  int median_rank = 0;         // the slowest rank of the iteration whose total is the median
  std::vector<TaskTime> median_tasks;     // of that iteration on that rank; tasks of other stages on their first ranks
  RankTimes median_ranks;                 // of that iteration on all ranks, since the first one on the machine began
  int64_t overruns = 0, paced_tasks = 0;  // over all ranks and timed iterations
  int repeats = 0;                        // how often its passes were discarded because they were disturbed
  bool out_of_time = false;               // whether there are fewer passes, or disturbed ones, because of most_timed_s
  double core_slowdown = 0;               // relative to the cores' best (CoreTimes); 0: unknown, as for paced passes
  RoutingLoad load;                       // load of the first layer, in the last pass before the verification
  double peak_bytes = 0;                  // peak of the layer's Tensors per rank: the mean over ranks
  double worst_error = 0;                 // largest error of the verification, relative to the maximum norm
  std::string worst_tensor;
  double states_bytes = 0;     // of a model's optimizer, a rank: the mean over ranks
  double proven_tokens = 0;    // of the layer that was verified: a smaller one where this one's reference is too large
  std::vector<double> losses;  // of a model: by step
  double held_out_loss = 0;    // likewise, after the last step
  std::vector<PackedSteps> packings;  // empty without online packing; the other fields are of the last packing
  std::optional<std::string> wrong;   // how outputs or gradients disagree with the reference; such a run is never timed
};

/// The parts of measure_layer's wall time.
struct WallTimes {
  double proving_s = 0, unpaced_s = 0, timed_s = 0;
};

struct LayerMeasurement {
  WallTimes took;
  int64_t references = 0;         // number computed by all processes together to verify runs (proof.h)
  int64_t tensors_made = 0;       // allocations of Tensors in all timed passes
  std::vector<MeasuredRun> runs;  // by schedule
};

/// The share of overruns beyond which a measurement is invalid.
inline constexpr double kOverrunLimit = 0.01;
/// Returns the share of paced tasks that overran.
double overrun_share(const MeasuredRun& run);

/// Returns whether something else used the cores while passes ran. For paced passes: more tasks overran than
/// kOverrunLimit, or the median pass took over 1 % longer than the fastest one. For others: the cores were slow
/// (kSlowCores), which holds for all runs of a call alike, since their passes take turns.
bool disturbed(const MeasuredRun& run);

/// Verifies and times the schedules. Passes of a schedule that were disturbed are discarded and run again, twice at
/// most: unpaced ones while the ranks' CoreTimes has repeats, paced ones each time at twice the dilation, since a
/// thread that waits for a core is late by the same time, which is a smaller share of a longer pass. If all attempts
/// were disturbed, the least disturbed one is the result: of paced ones the most even one whose tasks kept their paces,
/// of others the one whose cores were slowed least. The result is the same on every process, except each one's own
/// share in peak_bytes and tensors_made. Throws RankFailure if a rank fails, BadInput if the plans have another number
/// of ranks than there are processes, Stopped if a training was asked to end.
LayerMeasurement measure_layer(const std::vector<PlannedRun>& planned, const LayerBenchSettings& settings);

}  // namespace moe::measure
