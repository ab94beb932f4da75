#pragma once
// Runs one layer under several schedules, for real: verifies each against the reference, then times their passes in
// turn, so that a machine's mood falls on all of them alike.
#include <optional>
#include <string>
#include <vector>

#include "moe/comm/world.h"
#include "moe/exec/executor.h"
#include "moe/layer/load.h"
#include "moe/layer/workload.h"
#include "moe/plan/plan.h"

namespace moe {

/// One schedule's plan, priced.
struct PlannedRun {
  Plan plan;                             // nominal
  std::vector<double> task_seconds;      // modelled, by task id
  double forward_s = 0, backward_s = 0;  // predicted
  // Where tasks slow each other down (moe/cost/slowdown.h), how, and by task id what each uses; else all are empty.
  Pacer::Slowdown slowdown = {};
  Pacer::Stall stall = {};
  std::vector<int> resources = {};
};

struct LayerBenchSettings {
  bool emulated = true;  // paced by the plan's modelled times over a proxy; else the plan itself, unpaced
  int iterations = 5;
  uint64_t seed = 1;
  double timeout_s = 60;
  bool check_only = false;
  Workload workload = Workload();
  std::string dump = {};  // every schedule's layer is written into DUMP/SCHEDULE (layer_dump.h); empty: none
  double most_reference_flops = 2e11;  // of a layer that is verified itself: some 10 s of a core
  DeviceKind device = DeviceKind::cpu;
  World* processes = nullptr;  // that all call with the same plans, one rank each; none: ranks are threads of this one
};

/// What one schedule's passes took; seconds are divided by the dilation.
struct MeasuredRun {
  Plan plan;                                            // as it ran
  std::vector<std::vector<double>> forward_s, total_s;  // [iteration][rank]
  std::vector<std::vector<double>> exposed_s, overlap;  // likewise (overlap.h: exposed_s, efficiency)
  std::vector<double> task_s;                           // by task id: own_seconds (overlap.h), median over iterations
  std::vector<TaskTime> median_tasks;                   // rank 0's, of the iteration whose total is the median
  int64_t overruns = 0, paced_tasks = 0;                // over all ranks and timed iterations
  RoutingLoad load;                                     // of the last pass before the verification
  double peak_bytes = 0;                                // of the layer's Tensors, a rank: the mean over ranks
  double worst_error = 0;                               // of the verification, relative to the maximum norm
  std::string worst_tensor;
  double proven_tokens = 0;  // of the layer that was verified: a smaller one where this one's reference is too large
  std::string wrong;         // how outputs or gradients disagree with the reference; such a run is never timed
};

struct LayerMeasurement {
  double dilation = 1;
  double work_ratio = 0;          // the largest ratio of unpaced work to modelled time of any task (emulated)
  int64_t tensors_made = 0;       // allocations of Tensors in all timed passes
  std::vector<MeasuredRun> runs;  // by schedule
};

/// The least dilation whose passes and tasks are long enough to be paced well, whatever the work under them takes.
double least_dilation(const std::vector<PlannedRun>& planned);

/// The same on every process, but for peak_bytes' and tensors_made's own share. Throws RankFailure if a rank fails,
/// BadInput where the plans are not for as many ranks as there are processes.
LayerMeasurement measure_layer(const std::vector<PlannedRun>& planned, const LayerBenchSettings& settings);

}  // namespace moe
