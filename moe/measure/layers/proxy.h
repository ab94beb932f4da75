#pragma once
// The proxy of an emulated cluster: four ranks run the tasks of the nominal plan on small tensors with real data, while
// the nominal shape determines the duration of each task.
#include <memory>
#include <string>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/exec/executor.h"
#include "moe/measure/layers/overlap.h"
#include "moe/plan/plan.h"

namespace moe::measure {

inline constexpr int kProxyNodes = 2, kProxyRanksPerNode = 2;
/// Returns "2 x 2 threads": the ranks that emulate a cluster.
std::string proxy_ranks();

/// Returns the proxy's case: 2 nodes x 2 ranks per stage; groups of 2 for each nominal group of more than one rank, and
/// EP groups of at least `max_packing`; as many experts per rank as nominal; k' = min(k, E'); M' = 64, H' = 64 H / M;
/// enough rows for every chunk of both degrees.
LayerCase proxy_case(const LayerCase& nominal, int degree_forward, int degree_backward, int max_packing = 1);
/// Returns the largest factor, a power of two, by which packing can multiply the experts on a device of the proxy.
int max_proxy_packing(const LayerCase& nominal);

/// Returns a small case on all ranks of `nominal`, to verify the plan if the layer is too large for a reference.
LayerCase small_case(const LayerCase& nominal, int degree_forward, int degree_backward);
/// Returns the approximate FLOPs of a layer's reference, forward and backward.
double reference_flops(const LayerCase& shape);

/// Returns a plan with the nominal plan's structure and the proxy's shape, whose gradient slices are cut at the same
/// fractions. `vocabulary`: of a model's proxy. In groups of one rank, collectives move no data but take the nominal
/// time.
Plan proxy_plan(const Plan& nominal, const LayerCase& proxy, int64_t vocabulary = 0);
/// Returns the plans that run on an emulated cluster: proxy_plan() with proxy_case(), in a type that the device
/// supports. `nominal`: plans of one model; plan i has 2^i times as many experts per device as the first.
/// `max_packing`: the largest packing of all plans that must have equal results.
std::vector<Plan> emulated_plans(const std::vector<const Plan*>& nominal, DeviceKind device, int64_t vocabulary,
                                 int max_packing);
/// Returns the plan that is verified instead of `nominal`: proxy_plan() with small_case().
Plan proving_plan(const Plan& nominal, int64_t vocabulary);

// The choice of the dilation, the factor by which an emulated cluster runs slower than modelled so that the real work
// fits under its paces.

/// One schedule's plan, priced.
struct PlannedRun {
  Plan plan;                             // nominal
  std::vector<double> task_seconds;      // modelled seconds by task id
  double forward_s = 0, backward_s = 0;  // predicted
  // The slowdowns and stalls between tasks (moe/simulator/slowdown.h), and the resource of each task by id; all three
  // are empty if tasks don't slow each other.
  Pacer::Slowdown slowdown = {};
  Pacer::Stall stall = {};
  std::vector<int> resources = {};
  /// The same with 2, 4, 8 .. times as many experts per device, to which a training may change
  /// (moe/schedule/packing.h); empty: no change.
  std::vector<PlannedRun> packed = {};
};

struct Dilation {
  double factor = 1;
  std::string set_by = {};  // the requirement that decides: "the shortest pass", "the work of ..."
};

/// Returns the smallest dilation at which passes and tasks are long enough to be paced well, ignoring the work under
/// the paces.
Dilation min_dilation(const std::vector<PlannedRun>& planned);

/// Returns the larger of min_dilation() and four times the largest ratio of unpaced work to modelled time. A ratio is
/// the median over all passes and all tasks of one kind and phase of a schedule, so single interrupted passes or tasks
/// do not count. Kinds with very few tasks, and those of a step, need less if they take a negligible share of a pass.
/// `unpaced`: [schedule][pass].
Dilation choose_dilation(const std::vector<PlannedRun>& planned, const std::vector<std::vector<RankTimes>>& unpaced);

/// Returns a pacer with the modelled slowdowns and dilated stalls; null if the run's tasks don't slow each other.
std::unique_ptr<Pacer> make_pacer(const PlannedRun& run, int ranks, const Dilation& dilation);

}  // namespace moe::measure
