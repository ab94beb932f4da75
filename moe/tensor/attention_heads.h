#pragma once
// Computes what attention does between its projections: out = softmax(q k^T / sqrt(d)) v of every head, where a token
// sees those of its sequence up to itself, the last of these alone (a sliding window), or all of the sequence. Heads
// lie side by side in the columns; heads / kv_heads consecutive ones read the same key-value head.
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "moe/tensor/math.h"
#include "moe/tensor/tensor_store.h"

namespace moe {

struct HeadsShape {
  int64_t tokens = 0, seq = 0;  // of queries; sequences are `seq` consecutive tokens, of a rank or part fewer
  int64_t heads = 0, kv_heads = 0, dim = 0;
  int64_t value_dim = 0;  // of a head of v and of what it mixes to; 0: as dim, which is that of q and k
  DType dtype = DType::float32;
  bool recompute = false;  // the forward keeps no scores: the backward computes them again
  bool causal = true;      // else a token sees those behind it too
  int64_t window = 0;      // tokens that a token sees under a causal mask, itself among them; 0: all of those
  // Ranks that share each sequence (context parallelism): of its 2 ranks pieces of alike length a rank has the queries
  // of number `rank`, then of number 2 ranks - 1 - rank, so that all see as many keys under a causal mask.
  int ranks = 1, rank = 0;
  // Of sequences in so many parts the one whose queries these are: it sees the parts before (HeadInputs::before). Their
  // backwards begin with the last one, which overwrites gradients of keys and values; the others add to them.
  int parts = 1, part = 0;
  int64_t rank_stride = 0;  // elements from a rank's keys, which lie as its queries, to the next one's; values likewise
  int64_t value_width() const { return value_dim > 0 ? value_dim : dim; }
  /// Returns whether kernels of attention know the shape: no window, values as wide as keys, whole sequences.
  bool is_plain() const { return ranks == 1 && parts == 1 && window == 0 && value_width() == dim; }
};

struct KeysValues {
  TensorView k, v;
};
/// Shows q (tokens, heads d), k (tokens, kv_heads d) and v (tokens, kv_heads value_dim), or their gradients. Of several
/// ranks k and v are the first one's, behind which the others lie; of a part of samples its own.
struct HeadInputs {
  TensorView q, k, v;
  std::span<const KeysValues> before = {};  // of the parts before
};

class AttentionHeads {
 public:
  virtual ~AttentionHeads() = default;
  /// Computes out (tokens, heads value_dim), overwriting it.
  virtual void forward(const HeadInputs& in, TensorView out) = 0;
  /// Computes d, overwriting it. `in` and `out` are the last forward's; the backward may change what that kept.
  virtual void backward(const HeadInputs& in, TensorView out, TensorView d_out, const HeadInputs& d) = 0;
};

/// Scores of a tile of one sequence and of a head of each key-value head, and their gradients: what is needed
/// during a call alone. The heads of one rank share it: their calls come one after the other.
struct HeadsScratch {
  Tensor scores, d_scores;
};

/// Tokens whose scores are computed at once where none are kept.
inline constexpr int64_t kTileTokens = 512;

/// Makes heads that keep a matrix (L, L) a head and sequence, a tensor of `kept`, or none (HeadsShape::recompute). Then
/// they go by tiles of `tile` tokens, which read the keys and values that a token of the tile sees: there is no matrix
/// (L, L), and a causal mask spares half the work, a window all that lies before it. Of sequences of one tile the
/// numbers are those of kept scores; of several, gradients of keys and values are rounded to their type once a tile and
/// query. These heads alone take sequences that ranks share, windows and values of another width than keys.
std::unique_ptr<AttentionHeads> make_composed_heads(Math& math, const HeadsShape& shape, TensorStore& kept,
                                                    std::shared_ptr<HeadsScratch> scratch = nullptr,
                                                    int64_t tile = kTileTokens);
/// Makes heads that keep a number a token and head, and compute the scores again in any backward, by LibTorch's kernels
/// for float32 and float64 on the CPU.
std::unique_ptr<AttentionHeads> make_flash_heads(const HeadsShape& shape);

/// Where LibTorch's CUDA half computes: a GPU's number in this process, and what returns a call's cudaStream_t.
struct TorchGpu {
  int index = 0;
  std::function<void*()> stream;
};

/// Makes heads that LibTorch computes by the fastest kernel it has for their type and shape, on the CPU or, once
/// open_torch_cuda() was called, on a GPU.
/// From a forward to its backward they keep their output, a number a token and head, and views of q, k, v; products and
/// a softmax, which LibTorch takes where it has no such kernel, keep the scores. A GPU's gradients of q may differ in
/// their last bits from pass to pass, and LibTorch's own allocator has what is kept and passed on: no estimate and no
/// peak counts that. Calls throw OutOfMemory, and RankFailure where LibTorch fails.
std::unique_ptr<AttentionHeads> make_torch_heads(const HeadsShape& shape, std::optional<TorchGpu> gpu = {});
/// Opens LibTorch's CUDA half, once; to be called before LibTorch first asks whether there are GPUs. Throws NoHardware
/// where it isn't installed, or can't be opened.
void open_torch_cuda();

}  // namespace moe
