#pragma once
// What profilers of one rank or several recorded, as far as an import can use it: collectives and GEMMs become samples;
// attention, copies and what no name tells are counted and left out.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/exchange/import.h"

namespace moe::exchange {

/// What the arguments of record_param_comms, or of a kernel, say of a collective.
struct CommArguments {
  std::string name;  // "allreduce", "_allgather_base", "ncclAllReduce"
  std::string dtype;
  std::string group;         // name of the process group
  std::vector<int> ranks;    // of the group; empty: unknown
  std::string network = {};  // of the group, "inter" or "intra"; empty: unknown
  int group_size = 0;        // 0: unknown
  int64_t sequence = -1;     // which of the group's collectives it is; -1: unknown
  double elements_in = 0, elements_out = 0;
};

/// The operation on the CPU that started a kernel.
struct LaunchingOp {
  std::string name;  // "aten::mm"
  std::vector<std::vector<double>> dims;
  std::string dtype;  // of its first matrix, as C++ names it
  std::optional<CommArguments> comm;
};

struct TimedKernel {
  std::string name;
  double start_us = 0, us = 0;
  int64_t stream = 0;
  int64_t external_id = -1;  // of the operation that started it; -1: unknown
  std::optional<CommArguments> comm = {};
};

/// What one rank did, as a profiler recorded it.
struct RankTrace {
  std::string path;    // and which rank of the file, for messages
  std::string host;    // empty: unknown
  int world_size = 0;  // 0: unknown
  bool on_gpu = false;
  std::vector<TimedKernel> kernels;           // by start; of a trace without a GPU the operations themselves
  std::map<int64_t, LaunchingOp> operations;  // by external id
};

/// Returns whether an operation of this name multiplies matrices: aten::mm and the like.
bool is_gemm_op(std::string_view name);

/// What a profile can't say without, for messages: of the arguments of collectives, and of the sizes of all.
struct TraceNeeds {
  std::string_view arguments, sizes;
};

using AddTrace = std::function<void(const RankTrace&)>;

/// Appends records of the traces that `read` hands on, one after the other, as ImportedSamples does. Of the traces of
/// several ranks the shortest time of a collective counts. Throws BadInput where nothing has sizes.
void import_traces(const ImportOptions& options, const TraceNeeds& needs,
                   const std::function<void(const AddTrace&)>& read);

}  // namespace moe::exchange
