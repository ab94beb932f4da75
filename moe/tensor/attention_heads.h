#pragma once
// Computes the part of attention between the projections: out = softmax(q k^T / sqrt(d)) v for every head, where a
// token sees the tokens of its sequence up to itself, only the last of these (a sliding window), or the whole sequence.
// Heads are consecutive columns; heads / kv_heads consecutive query heads read the same key-value head.
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "moe/tensor/math.h"
#include "moe/tensor/tensor_store.h"

namespace moe {

struct HeadsShape {
  int64_t tokens = 0, seq = 0;  // queries; tokens of a sequence, of which a rank or part has fewer
  int64_t heads = 0, kv_heads = 0, dim = 0;
  int64_t value_dim = 0;  // of a head of v and of the output; 0: equal to dim, which is that of q and k
  DType dtype = DType::float32;
  bool recompute = false;  // the forward keeps no scores: the backward computes them again
  bool causal = true;      // false: a token also sees later tokens
  int64_t window = 0;      // tokens that a token sees under a causal mask, itself included; 0: all up to itself
  // Ranks that share each sequence (context parallelism). Of its 2 ranks pieces of equal length, a rank has the queries
  // of piece `rank` and of piece 2 ranks - 1 - rank, so that all ranks see as many keys under a causal mask.
  int ranks = 1, rank = 0;
  // The parts of each sequence, and the part of these queries, which sees the parts before (HeadInputs::before).
  // Backwards begin with the last part, which overwrites gradients of keys and values; others add to them.
  int parts = 1, part = 0;
  int64_t rank_stride = 0;  // elements from a rank's keys, which lie as its queries, to the next one's; values likewise
  int64_t value_width() const { return value_dim > 0 ? value_dim : dim; }
  /// Returns whether attention kernels support the shape: no window, values as wide as keys, whole sequences.
  bool is_plain() const { return ranks == 1 && parts == 1 && window == 0 && value_width() == dim; }
};

struct KeysValues {
  TensorView k, v;
};
/// Views of q (tokens, heads d), k (tokens, kv_heads d) and v (tokens, kv_heads value_dim), or of their gradients. With
/// several ranks, k and v are the first rank's, followed by the others'; in a part of samples, that part's.
struct HeadInputs {
  TensorView q, k, v;
  std::span<const KeysValues> earlier_parts = {};  // of the earlier parts
};

class AttentionHeads {
 public:
  virtual ~AttentionHeads() = default;
  /// Computes out (tokens, heads value_dim), overwriting it.
  virtual void forward(const HeadInputs& in, TensorView out) = 0;
  /// Computes d, overwriting it. `in` and `out` are the last forward's; the backward may change what the forward kept.
  virtual void backward(const HeadInputs& in, TensorView out, TensorView d_out, const HeadInputs& d) = 0;
};

/// Scores, and their gradients, of a tile of one sequence and of one query head per key-value head: they are needed
/// only during a call. All heads of one rank share them, because their calls come one after the other.
struct HeadsScratch {
  Tensor scores, d_scores;
};

/// Tokens whose scores are computed at once if none are kept.
inline constexpr int64_t kTileTokens = 512;

/// Makes heads that keep a matrix (L, L) per head and sequence, a tensor of `kept`, or none (HeadsShape::recompute).
/// Without it they go by tiles of `tile` tokens, which read the keys and values that a token of the tile sees, so a
/// causal mask saves half the work, and a window all that lies before it. If a sequence is one tile, the numbers are
/// those of kept scores; if it has several, gradients of keys and values are rounded to their type once per tile and
/// query head. Only these heads support sequences that ranks share, windows, and values of another width than keys.
std::unique_ptr<AttentionHeads> make_composed_heads(Math& math, const HeadsShape& shape, TensorStore& kept,
                                                    std::shared_ptr<HeadsScratch> scratch = nullptr,
                                                    int64_t tile = kTileTokens);
/// Makes heads that keep one number per token and head, and compute the scores again in every backward, by LibTorch's
/// kernels for float32 and float64 on the CPU.
std::unique_ptr<AttentionHeads> make_flash_heads(const HeadsShape& shape);

/// The GPU on which LibTorch computes: its number in this process, and a function that returns a call's cudaStream_t.
struct TorchGpu {
  int index = 0;
  std::function<void*()> stream;
};

/// Makes heads that LibTorch computes with its fastest kernel for their type and shape, on the CPU or, once
/// open_torch_cuda() was called, on a GPU.
/// From a forward to its backward they keep their output, one number per token and head, and views of q, k, v. If
/// LibTorch has no such kernel, it uses products and a softmax, which keep the scores. A GPU's gradients of q may
/// differ in their last bits from pass to pass. LibTorch's own allocator holds what is kept and returned, so no
/// estimate and no peak counts it. Calls throw OutOfMemory, and RankFailure if LibTorch fails.
std::unique_ptr<AttentionHeads> make_torch_heads(const HeadsShape& shape, std::optional<TorchGpu> gpu = {});
/// Opens LibTorch's CUDA half, once; call it before LibTorch first asks whether there are GPUs. Throws NoHardware if it
/// isn't installed or can't be opened.
void open_torch_cuda();

}  // namespace moe
