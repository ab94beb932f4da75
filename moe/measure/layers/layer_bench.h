#pragma once
// The benchmark of one layer, or of a stack of layers, under several schedules. It verifies each schedule against the
// reference, then times their passes in turns, so that variations of the machine's speed affect all of them alike.
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

/// A function that inspects the ranks of this process, in rank order, after they ran a plan.
using Inspection = std::function<void(World&, std::span<RankRun* const>, const Plan&)>;

inline constexpr int kPasses = 5, kMaxPasses = 100, kMinPasses = 3;
inline constexpr double kTimedS = 1;     // seconds to fill with timed passes if passes are short
inline constexpr double kMaxTimedS = 2;  // limit for a layer's timed passes if a command times many layers
/// Returns the number of passes of `pass_s` seconds that fill `seconds`, from kPasses to kMaxPasses.
int passes_within(double seconds, double pass_s);

struct LayerBenchSettings {
  bool emulated = true;  // true: a proxy runs, paced by the plan's modelled times; false: the plan itself runs unpaced
  int iterations = kPasses;
  double fill_s = 0;       // more iterations run until all plans together take this many seconds
  double max_timed_s = 0;  // seconds after which kMinPasses are enough, even if disturbed; 0: no limit
  uint64_t seed = 1;
  double timeout_s = 60;
  bool check_only = false;
  /// Each pass is also timed as a replayed graph (Executor::record); only for unpaced layers with a GPU per rank.
  bool graphs = false;
  bool profile = false;      // one additional pass of each plan is marked for a profiler (moe/device/profiled.h)
  bool is_lockstep = false;  // for serial plans: each task begins on all ranks together (rank_run.h)
  Workload workload = Workload();
  double max_reference_flops = 2e11;  // larger layers are verified by a smaller one; about 10 s on a core
  BenchRanks ranks = {};              // all processes must pass the same plans
  InjectedSlowdown injected = {};     // tasks that are slowed on purpose; only for ranks on the CPU
  TrainingSettings training = {};     // for plans with a vocabulary, whose timed passes are training steps
  /// Called with the ranks of every schedule before they are verified, after two passes of the plan and
  /// finish_gradients.
  Inspection inspect = {};
};

/// Consecutive training steps with the same number of experts per device (moe/schedule/packing.h).
struct PackedSteps {
  int packing = 1;               // factor on the plan's experts per device
  int64_t first = 1, steps = 0;  // the first of these steps, counted from 1, and their number
  MicroOpTimes times = {};       // in a forward, means over the steps
  double step_s = 0;             // seconds of the slowest rank, median over the steps
  double memory_bytes = 0;       // sum of peak_bytes and states_bytes below
  double moved_bytes = 0;        // bytes received to change to this packing, on the rank that received most
  double moving_s = 0;           // seconds of that change on the slowest rank; 0 on an emulated cluster
};

/// The results of one schedule's passes; seconds are divided by the dilation.
struct MeasuredRun {
  Plan plan;                                            // the plan as it ran
  Dilation dilation;                                    // dilation of the passes that were kept
  std::vector<std::vector<double>> forward_s, total_s;  // [iteration][rank]
  std::vector<std::vector<double>> exposed_s, overlap;  // [iteration][rank]: Overlap's exposed_s, efficiency
  std::vector<std::vector<double>> working_s;           // [iteration][rank]: working_seconds (overlap.h)
  std::vector<std::vector<double>> replayed_s;          // [iteration][rank], of replayed graphs; empty without graphs
  std::vector<double> task_s;             // by task id, median over iterations of own_seconds or lockstep_seconds
  int median_rank = 0;                    // slowest rank of the iteration whose total is the median
  std::vector<TaskTime> median_tasks;     // that iteration on that rank; tasks of other stages on their first ranks
  RankTimes median_ranks;                 // that iteration on all ranks, from the start of each machine's first rank
  int64_t overruns = 0, paced_tasks = 0;  // over all ranks and timed iterations
  int repeats = 0;                        // number of times that passes were discarded because they were disturbed
  bool out_of_time = false;               // there are fewer passes, or disturbed ones, because of max_timed_s
  double core_slowdown = 0;               // relative to the cores' best (CoreTimes); 0: unknown, as for paced passes
  RoutingLoad load;                       // of the first layer, in the last pass before the verification
  double peak_bytes = 0;                  // peak bytes of a rank's Tensors, mean over ranks
  double worst_error = 0;                 // largest error of the verification, relative to the maximum norm
  std::string worst_tensor;
  double states_bytes = 0;            // bytes of the optimizer's states on a rank, mean over ranks
  double proven_tokens = 0;           // tokens of the verified layer, which may be a smaller one (max_reference_flops)
  std::vector<double> losses;         // of a model: for each step
  double held_out_loss = 0;           // of a model, after the last step
  std::vector<PackedSteps> packings;  // empty without online packing; the other fields describe the last packing
  std::optional<std::string> wrong;   // error text if the result disagrees with the reference; such a run is not timed
};

/// The parts of measure_layer's wall time.
struct WallTimes {
  double proving_s = 0, unpaced_s = 0, timed_s = 0;
};

struct LayerMeasurement {
  WallTimes took;
  int64_t references = 0;         // number of references that all processes together computed (proof.h)
  int64_t tensors_made = 0;       // allocations of Tensors in all timed passes
  std::vector<MeasuredRun> runs;  // for each schedule
};

/// Limit for the share of overruns; beyond it, a measurement is invalid.
inline constexpr double kOverrunLimit = 0.01;
/// Returns the share of paced tasks that overran.
double overrun_share(const MeasuredRun& run);

/// Returns whether other work used the cores while passes ran. Paced passes: the share of overruns exceeds
/// kOverrunLimit, or the median pass took over 1 % longer than the fastest one. Other passes: the cores were slow
/// (kSlowCores), which is the same for all runs of a call, because their passes take turns.
bool disturbed(const MeasuredRun& run);

/// Verifies and times the schedules. Disturbed passes of a schedule are discarded and run again, at most twice: unpaced
/// passes as long as CoreTimes has repeats, paced passes at twice the dilation each time, because a thread that waits
/// for a core is late by the same time, which is a smaller share of a longer pass. If all attempts were disturbed, the
/// least disturbed one is the result (disturbance() in benched.h; of paced ones, only attempts within kOverrunLimit).
/// The result is the same on every process, except for peak_bytes and tensors_made. Throws RankFailure if a rank fails,
/// BadInput if the number of ranks in the plans differs from that of processes, Stopped if a training was asked to end.
LayerMeasurement measure_layer(const std::vector<PlannedRun>& planned, const LayerBenchSettings& settings);

}  // namespace moe::measure
