#pragma once
// Lina's training results (ATC'23) beside our numbers.
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "commands/reproduce/assume.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/report.h"
#include "moe/search/model_search.h"
#include "moe/schedule/packing.h"

namespace moe::reproduce {

// Lina's training runs as replays of whole models: what is assumed, what follows from print, and what a replay shows.

/// Returns the expert's forward over the AlltoAll's by a printed share of AlltoAll in a layer's forward: two AlltoAlls
/// and an expert take 2 t_a / share (Lina, Figure 2); what else is in a layer counts as expert.
double expert_over_alltoall(double layer_share);
/// Returns the busy share of computation while AlltoAlls run that this ratio allows without packing, all of the expert
/// under them.
double efficiency_by_share(double layer_share);

/// Returns the layer of a model on as many GPUs as experts, 4 a node, one expert each, top-2, no MP (Lina, sections 2.1
/// and 7.1); B from the assumed tokens a GPU.
LayerCase lina_case(const std::string& model, int experts, const Assumptions& assumed);
/// Returns the profile: the assumed rows, a rank's 40 GB, and the experts' time by the printed share with 16 GPUs.
Profile lina_profile(const std::string& model, const Assumptions& assumed);

struct LinaRun {
  std::string model;
  int experts = 16;  // as many as GPUs
  std::string schedule = "lina-baseline";
  int64_t micro_op_bytes = kMicroOpBytes;
  int layers = 0;  // 0: the model's
};

/// The seconds of one training step; MoE parts summed over layers, from the first dispatch to the last combine of
/// each.
struct LinaStep {
  double step_s = 0, moe_forward_s = 0, moe_backward_s = 0;
  double alltoall_s = 0, alltoall_backward_s = 0;  // busy, slowed as they were
  double slowdown = 1;                             // of the backward's AlltoAlls, in the median
  double efficiency_forward = 0, efficiency = 0;   // pipelining: computation's busy share while an AlltoAll runs
  int packing = 1;                                 // experts a device
  double utilization = 0;                          // computation's busy share of the step
  double communication_s = 0;                      // all collectives, each alone
};

/// Returns nothing where a row is missing, whose name `missing` then gains.
std::optional<LinaStep> lina_step(const LinaRun& run, const Assumptions& assumed, std::set<std::string>& missing);

/// One packing that Lina's rule reaches.
struct LinaPacking {
  int packing = 1;  // experts a device
  MicroOpTimes times;
  double layer_s = 0;
};
std::vector<LinaPacking> lina_packing_steps(const std::string& model, int experts, const Assumptions& assumed);
/// Returns the bytes of a rank that trains a model with 16 experts, so many on a device.
MemoryEstimate lina_memory(const std::string& model, int packing, const Assumptions& assumed);
/// Returns the seconds by which a step's micro-ops are concatenated: what is cut is read and written once.
double lina_concatenation_s(const std::string& model, const Assumptions& assumed);

/// Where Lina's rule for packing ends, whatever it costs: experts a device, and the speedup of one layer over none
/// packed.
struct LinaRule {
  int packing = 1;
  double speedup = 1;
};
LinaRule lina_rule(const std::string& model, int experts, const Assumptions& assumed);

// What Lina's training figures show, and where the paper's own numbers do not fit together.

inline const std::array<std::string, 3> kLinaModels{"transformer-xl", "gpt-2", "bert2gpt2"};

struct LinaKey {
  std::string model;
  int experts;
  std::string schedule;
  auto operator<=>(const LinaKey&) const = default;
};
using LinaSteps = std::map<LinaKey, LinaStep>;

std::vector<std::string> lina_from_print();
std::vector<std::string> lina_unexplained(const std::vector<PrintedLina>& printed);
/// Returns what a layer's gradients take over what its backward's two AlltoAlls do, each alone, with 16 experts. Lanes
/// share a link without loss, so it bounds the AlltoAlls' mean slowdown, less 1.
double lina_gradient_share(const std::string& model, const Assumptions& assumed);
/// Return findings over all models: slowdowns of AlltoAlls as a sentence; Table 4 and the overheads as figures.
std::string lina_slowdowns(const LinaSteps& steps, const Assumptions& assumed);
Comparison lina_table4(const LinaSteps& steps, const Assumptions* assumed);
Comparison lina_overheads(const LinaSteps& steps, const Assumptions* assumed);
/// Tabulates the packing controller, fed with the replay's micro-ops: 16 experts, 30 steps.
TextTable lina_controller(const Assumptions& assumed);
/// Returns what Table 4 says of memory, by what packed experts need.
std::string lina_table4_unexplained();
std::string lina_packings(const LinaSteps& steps, const Assumptions& assumed);
std::vector<std::string> lina_conventions();

}  // namespace moe::reproduce
