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
  int64_t mixed_tokens = 512;                           // number of tokens for gates whose rows mix tokens
  int64_t model_dim = 1024, hidden = 4096;              // M and H of gates and experts
  int64_t expert_rows = 512;                            // rows of a single expert
  std::vector<int64_t> order_widths{1024, 2048, 4096};  // M of the orders that are timed
  DType dtype = DType::float32;                         // on a CPU always float32
};

/// Receives kernels, which are then timed in turns. Their operands live as long as the call.
using KernelGroup = std::function<void(std::span<const measure::Kernel>)>;

/// Pass kernels of one thread in float32 to `group`. The bound of an order is a memcpy of as many bytes, that of an
/// expert its GEMMs alone by LibTorch's mm, that of a gate the experts' time. Call expert_kernels before gate_kernels.
void order_kernels(const KernelSizes& sizes, const KernelGroup& group);
void expert_kernels(const KernelSizes& sizes, const KernelGroup& group);
void gate_kernels(const KernelSizes& sizes, const KernelGroup& group);

/// Passes the GPU's kernels to `group`; some of their sizes differ from `cpu`. Orders and experts run in float32 and
/// bfloat16, gates in float32. The bound of an order is a copy of as many bytes inside the GPU's memory, with a gather
/// by Thrust as a comparison; that of an expert its GEMMs by cuBLASLt's fastest algorithm; that of a gate's kernel a
/// copy. Passes none in a build without CUDA or on a machine without a GPU.
void gpu_kernels(const KernelSizes& cpu, const KernelGroup& group);

/// Returns random numbers in [-0.5, 0.5), in the host's or a device's memory.
Tensor random_rows(std::initializer_list<int64_t> shape, DType dtype = DType::float32,
                   MemorySpace& memory = cpu_memory());
/// Returns the shape of a single rank whose gate routes `tokens` tokens, all of one group.
RankShape routed_shape(const KernelSizes& sizes, std::string_view gate, int64_t tokens, int64_t width);
/// Returns the layout of all rows of the rank, ordered by expert.
RowLayout layout_of(const RankShape& rank);

/// Rows and the routing that assigns them to tokens. The rows are float32 in the host's memory, but their values may
/// have been rounded to `stored`.
struct RoutedRows {
  const Routing& routing;
  RowsView rows;
  DType stored = DType::float32;
};
/// Return the wrong elements in the results of an order's maps (order.h). Expected by definition: a row is the sum of
/// by * token over its pairs (a pair is a token and one of its experts), a token the sum of by * row over its pairs, a
/// dot the product of a pair's token and row. `by`: a factor for each pair; null: 1. Checks some columns of all rows
/// and tokens, and the dots of some pairs.
measure::WrongElements wrong_rows(const RoutedRows& found, const float* by, TensorView tokens);
measure::WrongElements wrong_tokens(const RoutedRows& routed, const float* by, TensorView found);
measure::WrongElements wrong_dots(const RoutedRows& routed, TensorView tokens, TensorView found);

}  // namespace moe::microbench
