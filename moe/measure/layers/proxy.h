#pragma once
// Makes the proxy of an emulated cluster: the nominal shape determines the duration of each task, while small tensors
// on four ranks carry real data through the same tasks.
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

/// Returns the proxy's case: 2 nodes x 2 ranks a stage; groups of 2 where the nominal has more than one rank, but EP
/// groups of at least `most_packing`; experts a rank as nominal; k' = min(k, E'); M' = 64, H' = 64 H / M; rows enough
/// that every chunk of both degrees has some.
LayerCase proxy_case(const LayerCase& nominal, int degree_forward, int degree_backward, int most_packing = 1);
/// Returns how many times as many experts a device of the proxy can hold, a power of two.
int most_proxy_packing(const LayerCase& nominal);

/// Returns such a case on all ranks of `nominal`, to verify the plan if the layer is too large for a reference.
LayerCase small_case(const LayerCase& nominal, int degree_forward, int degree_backward);
/// Returns the approximate FLOPs of a layer's reference, forward and backward.
double reference_flops(const LayerCase& shape);

/// Returns the nominal plan's structure over the proxy's shape, with gradient slices cut at the same fractions.
/// `vocabulary`: that of a model's proxy. If the proxy has one rank in a group, its collectives move nothing and take
/// the nominal time.
Plan proxy_plan(const Plan& nominal, const LayerCase& proxy, int64_t vocabulary = 0);
/// Returns proxy_plan of proxy_case, in a type that the device computes in: what runs on an emulated cluster.
/// `nominal`: plans of one model; plan i packs 2^i times as many experts a device as the first. `most_packing`: of any
/// plan that is to compute the same.
std::vector<Plan> emulated_plans(const std::vector<const Plan*>& nominal, DeviceKind device, int64_t vocabulary,
                                 int most_packing);
/// Returns proxy_plan of small_case: what is verified in the place of `nominal`.
Plan proving_plan(const Plan& nominal, int64_t vocabulary);

// Chooses how many times slower than modelled an emulated cluster runs, so that real work fits under its paces.

/// One schedule's plan, priced.
struct PlannedRun {
  Plan plan;                             // nominal
  std::vector<double> task_seconds;      // modelled, by task id
  double forward_s = 0, backward_s = 0;  // predicted
  // How tasks slow each other down and stall (moe/simulator/slowdown.h), and the resource that each task uses, by task
  // id; all three are empty if no task slows another one down.
  Pacer::Slowdown slowdown = {};
  Pacer::Stall stall = {};
  std::vector<int> resources = {};
  /// The same with 2, 4, 8 .. times as many experts a device, as which a training may go on (moe/schedule/packing.h);
  /// empty: it stays as it is.
  std::vector<PlannedRun> packed = {};
};

struct Dilation {
  double factor = 1;
  std::string set_by =
      {};  // "the shortest pass", "the shortest tasks, ..." or "the work of ...": what asks for the most
};

/// Returns the least dilation at which passes and tasks are long enough to be paced well, whatever the time of the work
/// under the paces.
Dilation least_dilation(const std::vector<PlannedRun>& planned);

/// Returns the larger of least_dilation() and four times the largest ratio of unpaced work to modelled time. A ratio is
/// the median over all passes and over all tasks of one kind and phase of a schedule, so that neither one pass nor one
/// task that the machine interrupted decides. Kinds with very few tasks, and those of a step, need less if they take a
/// negligible share of a pass. `unpaced`: [schedule][pass].
Dilation choose_dilation(const std::vector<PlannedRun>& planned, const std::vector<std::vector<RankTimes>>& unpaced);

/// Makes the pacer of a run whose tasks slow each other down, at the modelled rates, its stalls dilated; else null.
std::unique_ptr<Pacer> make_pacer(const PlannedRun& run, int ranks, const Dilation& dilation);

}  // namespace moe::measure
