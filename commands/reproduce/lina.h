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
#include "moe/schedule/packing.h"
#include "moe/search/model_search.h"

namespace moe::reproduce {

// Lina's training runs as replays of whole models: assumptions, conclusions from printed numbers, results of replays.

/// Returns the expert's forward over the AlltoAll's, by a printed share of AlltoAll in a layer's forward. Two AlltoAlls
/// and an expert take 2 t_a / share (Lina, Figure 2); everything else in a layer counts as expert.
double expert_to_alltoall_ratio(double layer_share);
/// Returns the busy share of computation while AlltoAlls run, if this ratio applies without packing and the whole
/// expert overlaps with them.
double efficiency_by_share(double layer_share);

/// Returns the layer of a model on as many GPUs as experts, 4 per node, one expert each, top-2, no MP (Lina, sections
/// 2.1 and 7.1); B follows from the assumed tokens per GPU.
LayerCase lina_case(const std::string& model, int experts, const Assumptions& assumed);
/// Returns the profile: the assumed rows, 40 GB per rank, and the experts' time by the printed share with 16 GPUs.
Profile lina_profile(const std::string& model, const Assumptions& assumed);

struct LinaRun {
  std::string model;
  int experts = 16;  // as many as GPUs
  std::string schedule = "lina-baseline";
  int64_t micro_op_bytes = kMicroOpBytes;
  int layers = 0;  // 0: the model's number
};

/// The seconds of one training step. MoE parts are summed over layers, each from its first dispatch to its last
/// combine.
struct LinaStep {
  double step_s = 0, moe_forward_s = 0, moe_backward_s = 0;
  double alltoall_s = 0, alltoall_backward_s = 0;  // busy seconds, including slowdowns
  double slowdown = 1;                             // median slowdown of the backward's AlltoAlls
  double efficiency_forward = 0, efficiency = 0;   // pipelining: computation's busy share while an AlltoAll runs
  int packing = 1;                                 // experts per device
  double utilization = 0;                          // computation's busy share of the step
  double communication_s = 0;                      // sum of all collectives' times without overlap
};

/// Returns none if rows are missing, and adds their names to `missing`.
std::optional<LinaStep> lina_step(const LinaRun& run, const Assumptions& assumed, std::set<std::string>& missing);

/// One packing that Lina's rule reaches.
struct LinaPacking {
  int packing = 1;  // experts per device
  MicroOpTimes times;
  double layer_s = 0;
};
std::vector<LinaPacking> lina_packing_steps(const std::string& model, int experts, const Assumptions& assumed);
/// Returns the memory of a rank that trains a model with 16 experts, `packing` on each device.
MemoryEstimate lina_memory(const std::string& model, int packing, const Assumptions& assumed,
                           Offload offload = Offload::none);
/// Returns the seconds to concatenate a step's micro-ops: everything that is cut is read and written once.
double lina_concatenation_s(const std::string& model, const Assumptions& assumed);

/// The packing at which Lina's rule ends, regardless of its cost: experts per device, and the speedup of one layer over
/// no packing.
struct LinaRule {
  int packing = 1;
  double speedup = 1;
};
LinaRule lina_rule(const std::string& model, int experts, const Assumptions& assumed);

// Findings on Lina's training figures, including numbers in the paper that do not fit together.

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
/// Returns the time of a layer's gradients over that of its backward's two AlltoAlls, each alone, with 16 experts.
/// Lanes share a link without loss, so this bounds the AlltoAlls' mean slowdown minus 1.
double lina_gradient_share(const std::string& model, const Assumptions& assumed);
/// Return findings over all models: slowdowns of AlltoAlls as a sentence; Table 4 and the overheads as figures.
std::string lina_slowdowns(const LinaSteps& steps, const Assumptions& assumed);
Comparison lina_table4(const LinaSteps& steps, const Assumptions* assumed);
Comparison lina_overheads(const LinaSteps& steps, const Assumptions* assumed);
/// Tabulates the packing controller with the replay's micro-ops: 16 experts, 30 steps.
TextTable lina_controller(const Assumptions& assumed);
/// Returns the finding on Table 4's memory, by the memory that packed experts need.
std::string lina_table4_unexplained();
std::string lina_packings(const LinaSteps& steps, const Assumptions& assumed);
std::vector<std::string> lina_conventions();

}  // namespace moe::reproduce
