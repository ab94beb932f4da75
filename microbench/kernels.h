#pragma once
// The layer's own kernels, each with the check of its result: what `microbench --kernels` times.
#include <functional>
#include <span>
#include <vector>

#include "moe/layer/orders/order.h"
#include "moe/measure/kernels/kernel_bench.h"
#include "moe/sharding/rank_shape.h"

namespace moe::microbench {

struct KernelSizes {
  int64_t tokens = 2048, experts = 8, top_k = 2;
  int64_t mixed_tokens = 512;                           // of gates whose rows mix tokens
  int64_t model_dim = 1024, hidden = 4096;              // of gates and experts
  int64_t expert_rows = 512;                            // of an expert alone
  std::vector<int64_t> order_widths{1024, 2048, 4096};  // M of the orders
  DType dtype = DType::float32;                         // a CPU's are float32
};

/// Takes kernels, which take turns; what they read and write lives as long as the call.
using KernelGroup = std::function<void(std::span<const measure::Kernel>)>;

/// Give `group` kernels of one thread in float32: orders beside memcpy of as many bytes, experts beside their GEMMs
/// alone by LibTorch's mm, gates beside the experts' time; experts come before gates.
void order_kernels(const KernelSizes& sizes, const KernelGroup& group);
void expert_kernels(const KernelSizes& sizes, const KernelGroup& group);
void gate_kernels(const KernelSizes& sizes, const KernelGroup& group);

/// Gives `group` the GPU's kernels, at sizes of their own: orders beside a copy inside its memory of as many bytes and
/// a gather by Thrust, experts beside their GEMMs by the fastest of cuBLASLt's algorithms, in float32 and bfloat16;
/// gates in float32, beside copies. A build without CUDA, or a machine without a GPU, has none.
void gpu_kernels(const KernelSizes& cpu, const KernelGroup& group);

/// Returns random numbers in [-0.5, 0.5), in the host's memory or that of a device.
Tensor random_rows(std::initializer_list<int64_t> shape, DType dtype = DType::float32,
                   MemorySpace& memory = cpu_memory());
/// Returns the shape of a rank alone whose gate routes so many tokens, all of one group.
RankShape routed_shape(const KernelSizes& sizes, std::string_view gate, int64_t tokens, int64_t width);
/// Returns the layout of all rows of such a rank, expert after expert.
RowLayout layout_of(const RankShape& rank);

/// Rows beside the routing that says whose they are; float32 in the host's memory, perhaps rounded to `stored`.
struct RoutedRows {
  const Routing& routing;
  RowsView rows;
  DType stored = DType::float32;
};
/// Returns what is wrong with the maps of an order (order.h), by their definitions: rows as sums of by * token over the
/// pairs of each, tokens as sums of by * row, dots of tokens with rows; `by`: a factor of each pair; null: 1. Some
/// columns of all rows and tokens, and some pairs of the dots, are computed.
measure::WrongElements wrong_rows(const RoutedRows& found, const float* by, TensorView tokens);
measure::WrongElements wrong_tokens(const RoutedRows& of, const float* by, TensorView found);
measure::WrongElements wrong_dots(const RoutedRows& of, TensorView tokens, TensorView found);

}  // namespace moe::microbench
