#pragma once
// Estimates the bytes that the rank with the most memory needs to train a layer or a model. A model's MoE layers have
// the same shape; dense layers may lie between them (dense_layers.h).
//
// Notation of the sources: b, s, h, a, k, l = samples of a micro-batch, tokens per sample, model dim, heads, experts
// per token, layers; p, t, e, d = sizes of PP, tensor parallelism (MP in the dense part, ESP in the experts), EP, DP.
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/plan/flow.h"
#include "moe/plan/pipeline.h"
#include "moe/plan/plan.h"
#include "moe/shape/dense_layers.h"
#include "moe/shape/shape.h"

namespace moe {

/// How a framework stores 16-bit training states. Sources: Megatron-LM, docs/user-guide/features/dist_optimizer.md and
/// megatron/training/theoretical_memory_usage.py (18 bytes per parameter, 6 + 12 / d with the distributed optimizer);
/// DeepSpeed, runtime/engine.py (gradients accumulate in the model's type unless data_types differs); torchtitan,
/// distributed/fsdp.py and config/job_config.py (weights, gradients in float32, cast when gathered).
struct MemoryRules {
  double weight_bytes = 2, gradient_bytes = 2, optimizer_bytes = 12;  // per parameter
  /// The copy of logits that is kept for the backward is in float32.
  bool float_logits = false;
  /// Rows that MP ranks gather for a GEMM are kept in shards and gathered again for the gradients of weights.
  bool gathers_again = false;
  /// Attention's kernel keeps no scores, with or without recomputation.
  bool fused_attention = false;
  /// Gate weights are applied before the last GEMM, so that the returned rows need not be kept for their gradient.
  bool weighs_before_combine = false;
};
const MemoryRules& memory_rules(Trainer trainer);

/// The formula for the bytes of activations.
///   printed    MoNTA, Table 4, row PP+TP+EP+SP as printed: b s h l ((13 + 21 k / e) / t + 5 a s / h), all l layers on
///              the rank, elements of two bytes.
///   corrected  the same with three repairs. The attention scores 5 a s / h are divided by t, since heads are sharded
///              over t (the term comes from Megatron-LM's count, which divides it). l becomes the layers of a stage
///              times the micro-batches in flight there: with pipeline stages a rank holds l / p layers, and one set of
///              activations for each micro-batch whose backward is yet to come. Elements have the layer's own width
///              w: 13 = 6 w + 1, 21 = 10 w + 1, 5 = 2 w + 1 (dropout masks are a byte).
///   counted    ours: the tensors that this layer's backward reads, from its own H, FFN, capacity, groups and
///              flow; no dropout. Table 4 takes H = 4 h, two GEMMs and f = 1, and its k / e holds only
///              if the EP ranks share their tokens: if each has its own, as in MoNTA's own runs, e times as
///              many arrive. Only `counted` includes a shared expert's activations. Recompute::full keeps the outputs
///              of all layers and the activations of one layer of each kind, or of more if a plan's order needs them.
/// For a dense layer, printed and corrected replace the experts' k (10 w + 1) / e by 10 w + 1, divided by t; `counted`
/// has the feed-forward's input, gathered and normed, and the rows between its GEMMs.
enum class ActivationModel : uint8_t { printed, corrected, counted };
std::string_view name_of(ActivationModel model);

/// Numbers of sets of temporary tensors that a stage has at the same time, by the part of a layer that uses them.
struct PartSlots {
  int dense = 1, moe = 1, input_sums = 1, output_gradients = 1;
};

/// Numbers of sets that a stage keeps at the same time. A set of activations is that of one layer and micro-batch.
/// Outputs are those of layers, except the last layer of each chunk.
struct StageSlots {
  int kept = 0, kept_dense = 0;  // sets of activations of all layers; of dense layers
  int outputs = 0, outputs_dense = 0;
  PartSlots parts = {};
};

struct MemoryRequest {
  LayerCase shape;         // case of an MoE layer; its batch: samples of one micro-batch
  int layers = 1;          // layers of the model, over all stages
  DenseLayers dense = {};  // the dense layers among them
  int micro_batches = 1;   // m
  PipelineOrder order = PipelineOrder::gpipe;
  int virtual_stages = 1;  // chunks of layers per stage
  Flow flow = Flow::sharded;
  std::vector<StageSlots> slots = {};  // for each stage; empty: derived from `order`
  ActivationModel activations = ActivationModel::counted;
  bool dense_part = true;  // false: count only the MoE layer, gate and experts
  bool scores = true;      // false: the device's attention never keeps scores (stores_attention_scores)
  int64_t vocabulary = 0;  // size of the embedding and the output projection, sharded over MP; 0: neither is counted
  /// True as in models that moetune runs: all micro-batches keep a stage's inputs and outputs, and the logits and rows
  /// of a model's ends. False: only one micro-batch does.
  bool keeps_ends = false;
  bool tied_embedding = false;  // the output projection is the embedding; first and last stage have a copy each
  StageSplit split() const { return split_of(shape, layers, shape.parallel.pp, virtual_stages); }
};

/// Bytes on one rank.
struct MemoryEstimate {
  double weights = 0;      // in the layer's dtype, or by the trainer's rules
  double gradients = 0;    // in the layer's dtype, or by the trainer's rules
  double optimizer = 0;    // Adam; 16-bit dtypes: 12 per parameter (float32 master copy, two moments: MoNTA, Table
                           // 3); others: two moments of their own width. So 16 per parameter in total up to float32.
  double activations = 0;  // tensors kept for the backward
  double buffers = 0;      // all other tensors; passes share them, except for the stage's inputs and outputs
  int stage = 0;           // pipeline stage of the rank
  double host = 0;         // in the host's memory, not in total(): offloaded weights, gradients and optimizer states
  double total() const { return weights + gradients + optimizer + activations + buffers; }
};

/// Parameters of one layer on the rank with the most.
struct RankParameters {
  double dense = 0;    // shards of attention and the shared expert; both norms and the gate, unsharded
  double experts = 0;  // E / N_EP experts, each sharded over N_ESP
};
RankParameters rank_parameters(const MemoryRequest& request);

/// Returns the largest number of micro-batches whose activations a stage holds at the same time. With virtual stages, a
/// micro-batch that only some of the stage's chunks hold counts as that fraction.
double micro_batches_in_flight(const MemoryRequest& request, int stage);

/// Estimates a rank of the stage that needs the most memory (the first such stage). Weights, gradients and optimizer
/// follow MoNTA, Table 3 (16 P1 / (p t), 16 P2 / (p t e), and its ZeRO rows); activations follow `request.activations`.
/// Buffers are the temporary tensors of a layer's parts; a stage's inputs, outputs and their gradients; tensors that
/// each pass has for itself; and gathered weights: under ZeRO 1 and 2 the weights of a layer that are gathered
/// together, under ZeRO 3 all of one layer. Offloaded experts count only with the weights of the layers in the window.
/// Fragmentation, library workspaces and a framework's own memory are excluded; a dropless layer is counted with
/// balanced routing. Throws BadInput for counts below 1 and an unknown ZeRO stage, Unsupported as check_offload does.
MemoryEstimate estimate_memory(const MemoryRequest& request);
/// Estimates a rank of the given stage in the same way.
MemoryEstimate estimate_stage(const MemoryRequest& request, int stage);

/// Estimates a model with one layer per pipeline stage, with one micro-batch and without ZeRO. Layer plans are shown
/// with this estimate.
MemoryEstimate layer_memory(const LayerCase& shape, Flow flow = Flow::sharded, bool scores = true);

/// Returns the request for a plan, including packed experts, with as many sets of tensors as it has memory slots.
MemoryRequest memory_request(const Plan& plan);

/// Returns the refusal "does not fit: needs 31.20 GiB, a rank has 11.00 GiB"; empty if the estimate fits.
std::optional<Refusal> memory_refusal(const MemoryEstimate& estimate, double capacity_bytes);

// The lifetimes of the tensors of a layer's pass over a micro-batch, and the memory slots that passes share.
//
// Idea: two passes may share memory if every task that uses it in one pass is ordered before every task that uses it in
// the other. The order must follow from dependencies and lanes (Ancestors), so that it holds for any timing; the issue
// order is not enough.

/// How long a tensor is needed. The dense part has all tasks except those of rows, of the shared expert and i_order.
/// The MoE part has all tasks except attention and its collectives; so gate, order and a dense layer's feed-forward are
/// in both. A forward's AllGather of its input is in the MoE part alone. A backward's sum over MP after its attention,
/// which reads no kept tensor, is in neither.
/// A layer that repeats its forward needs kept tensors and the forward's temporary tensors twice: in the first forward,
/// and from the start of the repeated one.
enum class Lifetime : uint8_t {
  kept,            // from a forward to the end of its backward
  output,          // as kept, but not released before a repeated forward: the next layer's input
  dense_forward,   // during a forward's dense part
  dense_backward,  // during a backward's dense part
  moe_forward,     // during a forward's MoE part
  moe_backward,    // during a backward's MoE part
  input_sum,       // from attention's backward until the MP ranks' parts are summed
  output_gradient  // from the backward of the next layer until this layer's attention
};
inline constexpr int kLifetimes = 8;

/// Memory that passes use one after the other. The dense parts of forwards and backwards share slots, and so do their
/// MoE parts. A slot for kept tensors or outputs belongs either to MoE layers or to dense layers.
struct MemorySlot {
  Lifetime lifetime = Lifetime::kept;  // for slots that both phases share: the forward's lifetime
  int stage = 0;
  bool dense_layers = false;  // for Lifetime::kept and output
  auto operator<=>(const MemorySlot&) const = default;
};

struct MemorySlots {
  int micro_batches = 0;
  std::vector<MemorySlot> slots;
  using PassSlots = EnumArray<Lifetime, int, kLifetimes>;  // for each lifetime, an index into `slots`; -1: not shared
  std::vector<PassSlots> slots_by_pass;  // for each layer and micro-batch, the micro-batch varies fastest

  /// Returns whether no pass shares memory.
  bool none() const { return slots.empty(); }
  const PassSlots& pass_slots(int layer, int micro_batch) const {
    return slots_by_pass[layer * micro_batches + micro_batch];
  }
  bool operator==(const MemorySlots& other) const { return slots_by_pass == other.slots_by_pass; }
};

/// Assigns each pass, in the order in which passes begin, a free slot for each lifetime. The output of a chunk's last
/// layer and its gradient get no slot, because they are the stage's outputs.
MemorySlots memory_slots(const Plan& plan);

// Counts the bytes of one layer's pass over a micro-batch on the rank with the most, tensor by tensor, as MoeLayer
// allocates them.

/// Bytes of one pass by lifetime. Forward and backward use the same temporary memory.
struct PassBytes {
  double kept = 0;            // tensors that the backward reads
  double dense = 0, moe = 0;  // temporary tensors of a phase's dense part, and of its MoE part or feed-forward
  double input_sum = 0;       // this rank's part of the input's gradient, until MP ranks sum their parts
  double output = 0;          // the layer's output; its gradient has the same size
  double permanent = 0;       // tensors that no two passes share
};

/// Whether attention is counted, and whether it keeps scores. Without attention, only the gate of the dense part is
/// counted. The CPU's attention never keeps scores (attention_heads.h).
struct AttentionKept {
  bool attends = true, scores = true;
};

/// Returns the bytes of one pass of an MoE or dense layer, with balanced routing.
PassBytes pass_bytes(const LayerCase& shape, Flow flow, AttentionKept attention = {});

}  // namespace moe
