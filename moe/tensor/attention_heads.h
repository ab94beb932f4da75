#pragma once
// The part of attention between the projections: out = softmax(q k^T / sqrt(d)) v for every head. A token sees its
// whole sequence, or only the tokens up to itself (causal), or only the last few of those (a sliding window). Each head
// is a block of consecutive columns; heads / kv_heads consecutive query heads share one key-value head.
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "moe/tensor/math.h"
#include "moe/tensor/tensor_store.h"

namespace moe {

struct HeadsShape {
  int64_t tokens = 0, seq = 0;  // tokens with queries here; tokens of a whole sequence
  int64_t heads = 0, kv_heads = 0, dim = 0;
  int64_t value_dim = 0;  // width of a head of v and of the output; 0 means `dim`, the width for q and k
  DType dtype = DType::float32;
  bool recompute = false;  // whether the backward recomputes the scores, so that the forward keeps none
  bool causal = true;      // whether a token sees no later tokens
  int64_t window = 0;      // if causal, the number of tokens that a token sees, itself included; 0: no limit
  // Number of ranks that share each sequence (context parallelism), and the index of this rank. A sequence is cut into
  // 2 * ranks equal pieces. A rank has the queries of pieces `rank` and 2 * ranks - 1 - rank, because these two
  // together see equally many keys on every rank under a causal mask.
  int ranks = 1, rank = 0;
  // Number of parts into which each sequence is cut, and the part that these queries belong to, which also sees the
  // parts before it (HeadInputs::earlier_parts). The backward of the last part runs first and overwrites the gradients
  // of keys and values; the other parts add to them.
  int parts = 1, part = 0;
  int64_t rank_stride = 0;  // elements from the keys (or values) of one rank to those of the next
  int64_t value_width() const { return value_dim > 0 ? value_dim : dim; }
  /// Returns whether LibTorch supports the shape: no window, values as wide as keys, whole sequences.
  bool is_plain() const { return ranks == 1 && parts == 1 && window == 0 && value_width() == dim; }
};

struct KeysValues {
  TensorView k, v;
};
/// Views of q (tokens, heads dim), k (tokens, kv_heads dim) and v (tokens, kv_heads value_dim), or of their gradients.
/// If ranks share the sequences, k and v are those of rank 0, and those of the other ranks follow at multiples of
/// rank_stride. If sequences are cut into parts, k and v are those of this part.
struct HeadInputs {
  TensorView q, k, v;
  std::span<const KeysValues> earlier_parts = {};  // by part
};

class AttentionHeads {
 public:
  virtual ~AttentionHeads() = default;
  /// Computes out (tokens, heads value_dim), overwriting it.
  virtual void forward(const HeadInputs& in, TensorView out) = 0;
  /// Overwrites d by the gradients of `in`. `in` and `out` are the last forward's, whose kept data may be changed.
  virtual void backward(const HeadInputs& in, TensorView out, TensorView d_out, const HeadInputs& d) = 0;
};

/// Memory for the scores of one tile, and for their gradients. It is used only during a call, so all layers of a rank,
/// whose calls do not overlap, share it.
struct HeadsScratch {
  Tensor scores, d_scores;
};

/// Number of query tokens whose scores are computed at once if scores are not kept.
inline constexpr int64_t kTileTokens = 512;

/// Makes heads that use GEMMs and a softmax, for all shapes. The scores, an (L, L) matrix per head and sequence, are
/// kept in `kept` for the backward. With HeadsShape::recompute nothing is kept: work proceeds by tiles of `tile` query
/// tokens, each of which reads only the keys and values that its tokens see. A causal mask then saves half of the work,
/// a window more. If a sequence is a single tile, results are equal to those with kept scores; otherwise the gradients
/// of keys and values are rounded to their type once per tile and query head.
std::unique_ptr<AttentionHeads> make_composed_heads(Math& math, const HeadsShape& shape, TensorStore& kept,
                                                    std::shared_ptr<HeadsScratch> scratch = nullptr,
                                                    int64_t tile = kTileTokens);
/// Makes heads that use LibTorch's FlashAttention kernels for float32 and float64 on the CPU. They keep one number per
/// token and head, and every backward recomputes the scores.
std::unique_ptr<AttentionHeads> make_flash_heads(const HeadsShape& shape);

/// The GPU on which LibTorch computes: its index in this process, and a function that returns the cudaStream_t to use.
struct TorchGpu {
  int index = 0;
  std::function<void*()> stream;
};

/// Makes heads that use the fastest kernel that LibTorch has for their type and shape, on the CPU or a GPU; a GPU needs
/// open_torch_cuda() first. From a forward to its backward they keep the output, one number per token and head, and
/// views of q, k and v. Without a fused kernel, LibTorch uses products and a softmax, and keeps the scores. On a GPU,
/// gradients of q may differ in their last bits between passes. The kept data is in memory of LibTorch's own allocator,
/// which memory estimates and measured peaks do not include. Calls throw OutOfMemory or RankFailure.
std::unique_ptr<AttentionHeads> make_torch_heads(const HeadsShape& shape, std::optional<TorchGpu> gpu = {});
/// Loads LibTorch's CUDA library, if it isn't loaded yet. Call it before LibTorch first checks for GPUs. Throws
/// NoHardware if the library isn't installed or can't be loaded.
void open_torch_cuda();

}  // namespace moe
