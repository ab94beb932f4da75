#pragma once
// The parts of a PyTorch profiler's trace (Kineto's Chrome trace) that an import can use.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::exchange {

/// What the arguments of record_param_comms, or of a kernel, say of a collective.
struct CommArguments {
  std::string name;  // "allreduce", "_allgather_base"
  std::string dtype;
  std::string group;       // name of the process group
  std::vector<int> ranks;  // of the group; empty: unknown
  int group_size = 0;      // 0: unknown
  int64_t sequence = -1;   // which of the group's collectives it is; -1: unknown
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

struct KinetoTrace {
  std::string path;
  int world_size = 0;  // 0: unknown
  bool on_gpu = false;
  std::vector<TimedKernel> kernels;           // by start; of a trace without a GPU the operations themselves
  std::map<int64_t, LaunchingOp> operations;  // by external id
};

/// Returns whether an operation of this name multiplies matrices: aten::mm and the like.
bool is_gemm_op(std::string_view name);

/// Reads a trace, compressed by gzip or not. Throws BadInput naming the file.
KinetoTrace read_kineto(const std::string& path);

// Sizes of the GEMM that an operation of PyTorch runs.

/// (m, k) x (k, n), `batch` times.
struct GemmSize {
  double m = 0, k = 0, n = 0, batch = 1;

  double multiplied() const { return batch * m * k * n; }
  /// True if a matrix is so thin that memory, not arithmetic, takes the time.
  bool is_thin() const;
};

/// Returns the size by the shapes of the operation's inputs; none: they are missing, or are not those of a product.
std::optional<GemmSize> gemm_size(const LaunchingOp& op);

}  // namespace moe::exchange
