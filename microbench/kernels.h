#pragma once
// The layer's own kernels that `microbench --kernels` times, each with a check of its result.
#include <functional>
#include <span>
#include <vector>

#include "moe/layer/orders/order.h"
#include "moe/measure/kernels/kernel_bench.h"
#include "moe/sharding/rank_shape.h"

namespace moe::microbench {

struct KernelSizes {
  int64_t tokens = 2048, experts = 8, top_k = 2;
  int64_t mixed_tokens = 512;                           // tokens of gates whose rows mix tokens
  int64_t model_dim = 1024, hidden = 4096;              // sizes of gates and experts
  int64_t expert_rows = 512;                            // rows of a single expert
  std::vector<int64_t> order_widths{1024, 2048, 4096};  // M of the orders
  DType dtype = DType::float32;                         // on a CPU always float32
};

/// Receives kernels, which are then timed in turns. Their operands live as long as the call.
using KernelGroup = std::function<void(std::span<const measure::Kernel>)>;

/// Pass to `group` kernels of one thread in float32: orders beside memcpy of as many bytes, experts beside only their
/// GEMMs by LibTorch's mm, gates beside the experts' time. Experts have to come before gates.
void order_kernels(const KernelSizes& sizes, const KernelGroup& group);
void expert_kernels(const KernelSizes& sizes, const KernelGroup& group);
void gate_kernels(const KernelSizes& sizes, const KernelGroup& group);

/// Passes the GPU's kernels to `group`, at sizes of their own: orders beside a copy of as many bytes inside its memory
/// and a gather by Thrust, experts beside their GEMMs by the fastest of cuBLASLt's algorithms, in float32 and bfloat16;
/// gates in float32, beside copies. Passes none in a build without CUDA or on a machine without a GPU.
void gpu_kernels(const KernelSizes& cpu, const KernelGroup& group);

/// Returns random numbers in [-0.5, 0.5), in the host's or a device's memory.
Tensor random_rows(std::initializer_list<int64_t> shape, DType dtype = DType::float32,
                   MemorySpace& memory = cpu_memory());
/// Returns the shape of a single rank whose gate routes `tokens` tokens, all of one group.
RankShape routed_shape(const KernelSizes& sizes, std::string_view gate, int64_t tokens, int64_t width);
/// Returns the layout of all rows of such a rank, ordered by expert.
RowLayout layout_of(const RankShape& rank);

/// Rows and the routing that assigns them to tokens; float32 in the host's memory, possibly rounded to `stored`.
struct RoutedRows {
  const Routing& routing;
  RowsView rows;
  DType stored = DType::float32;
};
/// Return the wrong elements of an order's maps (order.h) by their definitions: rows are sums of by * token over their
/// pairs, tokens are sums of by * row, dots multiply tokens with rows. `by`: a factor for each pair; null: 1. Checks
/// some columns of all rows and tokens, and some pairs of the dots.
measure::WrongElements wrong_rows(const RoutedRows& found, const float* by, TensorView tokens);
measure::WrongElements wrong_tokens(const RoutedRows& routed, const float* by, TensorView found);
measure::WrongElements wrong_dots(const RoutedRows& routed, TensorView tokens, TensorView found);

}  // namespace moe::microbench
