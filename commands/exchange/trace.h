#pragma once
// Import of profiler traces of one or several ranks: collectives and GEMMs become samples; attention, copies and
// unknown kernels are counted and left out.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/exchange/import.h"

namespace moe::exchange {

/// The arguments of a collective, from record_param_comms or from a kernel.
struct CommArguments {
  std::string name;  // "allreduce", "_allgather_base", "ncclAllReduce"
  std::string dtype;
  std::string group;         // name of the process group
  std::vector<int> ranks;    // ranks of the group; empty: unknown
  std::string network = {};  // network of the group, "inter" or "intra"; empty: unknown
  int group_size = 0;        // 0: unknown
  int64_t sequence = -1;     // index among the group's collectives; -1: unknown
  double elements_in = 0, elements_out = 0;
};

/// The operation on the CPU that launched a kernel.
struct LaunchingOp {
  std::string name;  // "aten::mm"
  std::vector<std::vector<double>> dims;
  std::string dtype;  // type of its first matrix, in C++'s notation
  std::optional<CommArguments> comm;
};

struct TimedKernel {
  std::string name;
  double start_us = 0, us = 0;
  int64_t stream = 0;
  int64_t external_id = -1;  // id of the operation that launched it; -1: unknown
  std::optional<CommArguments> comm = {};
};

/// The recording of one rank by a profiler.
struct RankTrace {
  std::string path;    // path, and the rank within the file, for messages
  std::string host;    // empty: unknown
  int world_size = 0;  // 0: unknown
  bool on_gpu = false;
  std::vector<TimedKernel> kernels;           // by start; in a trace without a GPU, the operations themselves
  std::map<int64_t, LaunchingOp> operations;  // by external id
};

/// Returns whether the operation of this name multiplies matrices: aten::mm and the like.
bool is_gemm_op(std::string_view name);

/// Hints for messages on missing data: how to record the arguments of collectives, and all sizes.
struct TraceNeeds {
  std::string_view arguments, sizes;
};

using AddTrace = std::function<void(const RankTrace&)>;

/// Appends records of the traces that `read` passes on one by one, like ImportedSamples. Over the traces of several
/// ranks, the shortest time of a collective counts. Throws BadInput if no kernel has sizes.
void import_traces(const ImportOptions& options, const TraceNeeds& needs,
                   const std::function<void(const AddTrace&)>& read);

}  // namespace moe::exchange
