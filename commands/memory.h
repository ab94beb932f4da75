#pragma once
// The verb `memory`: what a layer or a model takes on one rank, by each count of activations, and whether it fits.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/chosen_model.h"
#include "moe/base/json.h"
#include "moe/plan/memory.h"
#include "moe/shape/grid.h"

namespace moe::commands {

struct MemoryOptions {
  commands::Selection selection;  // cluster and layer; its flags go over the model's layer
  commands::ModelFlags model;
  std::string framework;             // by whose rules a rank keeps states and activations; empty: moetune's
  std::optional<double> memory_gib;  // of a rank; empty: the profile's
  bool parm = false;                 // count Parm's layers that fit
  bool json = false;
};

int run_memory(const MemoryOptions& options);

// Memory of a rank as a table and as JSON, and the count of Parm's layers that fit.

/// What is reported: one request, counted in each way.
struct MemoryReport {
  std::string name, cluster;             // name: the model's; empty: a layer
  std::string framework = "moetune";     // its key
  MemoryRequest request;                 // its `activations` is not read
  std::optional<double> capacity_bytes;  // of one rank; empty: unknown
};

/// Returns one line: bytes of each kind, activations by the tensors that a layer keeps, their sum, and the share of a
/// rank's memory or that it does not fit.
std::string memory_table(const MemoryReport& report);
/// Returns cluster, model, shape, counts, memory_bytes and estimates[] = {activations_model, weights_bytes,
/// gradients_bytes, optimizer_bytes, activations_bytes, buffers_bytes, total_bytes, fits, reason}.
Json to_json(const MemoryReport& report);

/// What neither Parm nor its tables say about the layers it ran.
struct ParmAssumptions {
  std::optional<int64_t> top_k, experts;  // empty: the grids' (k = 2, E = P / N_ESP)
  bool table4_groups = false;             // only N_MP and N_ESP of 2 and 4, of which Table IV has rows
};

/// What one way to count finds over all layers of Parm's grids.
struct ParmCount {
  ActivationModel activations = ActivationModel::counted;
  bool replicated = false;  // as Parm's baseline, which had to run too, or as its own schedules
  bool optimizer = false;   // Adam's states beside weights and gradients
  std::vector<int> fits;    // by ParmCounts::columns
};

struct ParmCounts {
  std::vector<std::string> columns;  // "A P8", "B P32": testbed and ranks
  std::vector<int> layers, shaped;   // by column: combinations of the grid, and those whose sizes divide
  std::vector<ParmCount> counts;
};

/// The printed number of layers that Parm ran (INFOCOM'24, section VI-A).
inline constexpr int kParmLayers = 1296;

/// Counts the layers in `grids`, each with [parallel] and memory_bytes, that fit by each way of counting: one layer,
/// one micro-batch, without attention, float32.
ParmCounts count_parm_layers(const std::vector<Grid>& grids, const ParmAssumptions& assumptions);
std::string parm_table(const ParmCounts& counts);
Json to_json(const ParmCounts& counts);

}  // namespace moe::commands
