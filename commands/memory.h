#pragma once
// The verb `memory`: the memory of a layer or model on one rank, with each rule to count activations, and whether it
// fits.
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/chosen_model.h"
#include "moe/base/json.h"
#include "moe/plan/memory.h"
#include "moe/shape/grid.h"

namespace moe::commands {

struct MemoryOptions {
  commands::Selection selection;  // cluster and layer; the layer's flags override the model's layer
  commands::ModelFlags model;
  std::optional<double> memory_gib;  // memory of a rank; none: the profile's
  bool parm = false;                 // instead counts the layers of Parm's grid that fit
  bool json = false;
};

int run_memory(const MemoryOptions& options);

// The memory of a rank as a table and as JSON, and the count of Parm's layers that fit.

/// The content of the report: one request, counted in each way.
struct MemoryReport {
  std::string name, cluster;             // name of the model; empty: a layer
  std::string framework = "moetune";     // key of the framework
  MemoryRequest request;                 // `activations` is not used
  LayerSet whole = {};                   // of the model's layers, which take no other memory
  std::optional<double> capacity_bytes;  // memory of one rank; none: unknown
};

/// Returns one line: the bytes of each kind, with activations by the tensors that a layer keeps, the sum, and its share
/// of a rank's memory or a note that it does not fit.
std::string memory_table(const MemoryReport& report);
/// Returns cluster, model, shape, counts, memory_bytes and estimates[] = {activations_model, weights_bytes,
/// gradients_bytes, optimizer_bytes, activations_bytes, buffers_bytes, total_bytes, fits, reason}.
Json to_json(const MemoryReport& report);

/// Assumptions about the layers of Parm that neither the paper nor its tables give.
struct ParmAssumptions {
  std::optional<int64_t> top_k, experts;  // none: as in the grids (k = 2, E = P / N_ESP)
  bool table4_groups = false;             // only N_MP and N_ESP of 2 and 4, the values in Table IV
};

/// The result of one way to count, over all layers of Parm's grids.
struct ParmCount {
  ActivationModel activations = ActivationModel::counted;
  bool replicated = false;  // memory of Parm's baseline; false: of its own schedules
  bool optimizer = false;   // includes Adam's states, besides weights and gradients
  std::vector<int> fits;    // number of layers that fit, by ParmCounts::columns
};

struct ParmCounts {
  std::vector<std::string> columns;  // "A P8", "B P32": testbed and ranks
  std::vector<int> layers, shaped;   // by column: number of the grid's combinations, and of those whose sizes divide
  std::vector<ParmCount> counts;
};

/// The printed number of layers that Parm ran (INFOCOM'24, section VI-A).
inline constexpr int kParmLayers = 1296;

/// Counts the layers in `grids` that fit, for each way of counting. Each grid has [parallel] and memory_bytes; layers
/// are counted alone, with one micro-batch, without attention, in float32.
ParmCounts count_parm_layers(const std::vector<Grid>& grids, const ParmAssumptions& assumptions);
std::string parm_table(const ParmCounts& counts);
Json to_json(const ParmCounts& counts);

}  // namespace moe::commands
