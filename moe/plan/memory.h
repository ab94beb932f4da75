#pragma once
// Bytes that training a layer, or a model, takes on one rank: the rank that has most. A model's layers are alike, but
// for dense ones between them (dense_layers.h).
//
// Notation of the sources: b, s, h, a, k, l = samples of a micro-batch, tokens a sample, model dim, heads, experts a
// token, layers; p, t, e, d = sizes of PP, tensor parallelism (MP in the dense part, ESP in the experts), EP, DP.
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

/// How a framework keeps what it trains in 16 bits. Sources: Megatron-LM, docs/user-guide/features/dist_optimizer.md
/// and megatron/training/theoretical_memory_usage.py (18 bytes a parameter, 6 + 12 / d with the distributed optimizer);
/// DeepSpeed, runtime/engine.py (gradients are accumulated in the model's type unless data_types says otherwise);
/// torchtitan, distributed/fsdp.py and config/job_config.py (weights and gradients in float32, cast when gathered).
struct MemoryRules {
  double weight_bytes = 2, gradient_bytes = 2, optimizer_bytes = 12;  // a parameter
  /// What is kept of logits for the backward is in float32.
  bool float_logits = false;
  /// Rows that MP ranks gather for a GEMM are kept in shards, and gathered again for the gradients of weights.
  bool gathers_again = false;
  /// Attention's kernel keeps no scores, whatever is recomputed.
  bool fused_attention = false;
  /// Gate weights are multiplied in before the last GEMM, so that no rows that came back are kept for their gradient.
  bool weighs_before_combine = false;
};
const MemoryRules& memory_rules(Trainer trainer);

/// How activations are counted.
///   printed    MoNTA, Table 4, row PP+TP+EP+SP as printed: b s h l ((13 + 21 k / e) / t + 5 a s / h), all l layers on
///              the rank, elements of two bytes.
///   corrected  the same with three repairs. The attention scores 5 a s / h are divided by t, since heads are sharded
///              over t (the term comes from Megatron-LM's count, which divides it). l becomes the layers of a stage
///              times the micro-batches in flight there: with pipeline stages a rank holds l / p layers, and one set of
///              activations for each micro-batch whose backward is yet to come. Elements have the layer's own width
///              w: 13 = 6 w + 1, 21 = 10 w + 1, 5 = 2 w + 1 (dropout masks are a byte).
///   counted    ours: what this layer's backward reads, tensor by tensor, from its own H, FFN, capacity, groups and
///              flow; no dropout. Table 4 takes H = 4 h, two GEMMs and f = 1, and its k / e holds only
///              where the EP ranks share their tokens: where each brings its own, as in MoNTA's own runs, e times as
///              many arrive. A shared expert's activations are counted here alone. Recompute::full keeps the outputs
///              of all layers, and all of at least one layer of each kind: of more, where a plan's order asks for it.
/// A dense layer has 10 w + 1 over t in the place of the experts' k (10 w + 1) / e; counted, its feed-forward keeps its
/// input, gathered and normed, and what lies between its GEMMs.
enum class ActivationModel : uint8_t { printed, corrected, counted };
std::string_view name_of(ActivationModel model);

/// Counts what passes of a stage hold at once meanwhile.
struct PartSlots {
  int dense = 1, moe = 1, input_sums = 1, output_gradients = 1;
};

/// Counts what a stage keeps at once: layers with all of the activations of a micro-batch, and outputs of layers, but
/// its last one's.
struct StageSlots {
  int kept = 0, kept_dense = 0;  // all, and of these dense layers'
  int outputs = 0, outputs_dense = 0;
  PartSlots parts = {};
};

struct MemoryRequest {
  LayerCase shape;         // of a layer with experts; batch: samples of one micro-batch
  int layers = 1;          // of the model, over all stages
  DenseLayers dense = {};  // of these
  int micro_batches = 1;   // m
  PipelineOrder order = PipelineOrder::gpipe;
  int virtual_stages = 1;  // chunks of layers that a stage has
  Flow flow = Flow::sharded;
  std::vector<StageSlots> slots = {};  // by stage; empty: by `order`, one of each part
  ActivationModel activations = ActivationModel::counted;
  bool dense_part = true;  // false: the MoE layer alone, gate and experts
  bool scores = true;      // false: attention keeps none on the device, whatever is asked (keeps_scores)
  int64_t vocabulary = 0;  // of the embedding and the output projection, sharded over MP; 0: neither counted
  /// As models run, all micro-batches keep what enters and leaves a stage, and their logits and rows of a model's ends;
  /// else one does.
  bool keeps_ends = false;
  bool tied_embedding = false;  // the output projection is the embedding; with pipeline stages each end has a copy
  StageSplit split() const { return {layers, shape.parallel.pp, virtual_stages, static_cast<int>(shape.layer.parts)}; }
};

/// Counts bytes on one rank.
struct MemoryEstimate {
  double weights = 0;      // of the layer's dtype, or as the trainer's rules say
  double gradients = 0;    // likewise
  double optimizer = 0;    // Adam; 16-bit dtypes: 12 a parameter (master copy, two moments, in float32: MoNTA, Table
                           // 3), others: two moments of their own width. So 16 a parameter in all up to float32.
  double activations = 0;  // kept for the backward
  double buffers = 0;      // all else, which passes hold in turns but for the stage's ends
  int stage = 0;           // of the rank
  double total() const { return weights + gradients + optimizer + activations + buffers; }
};

/// Counts parameters of one layer on the rank that has most.
struct RankParameters {
  double dense = 0;    // attention's and the shared expert's shards, both norms and the gate, whole
  double experts = 0;  // E / N_EP experts, each over N_ESP
};
RankParameters rank_parameters(const MemoryRequest& request);

/// Returns how many of MemoryRequest::micro_batches a stage holds at once. With virtual stages a micro-batch that some
/// of the stage's chunks hold counts as that part of one.
double micro_batches_in_flight(const MemoryRequest& request, int stage);

/// Estimates a rank of the stage that needs most, the first of these: weights, gradients and optimizer by MoNTA, Table
/// 3 (16 P1 / (p t), 16 P2 / (p t e), and its ZeRO rows); activations as `request.activations` says. Buffers are what a
/// phase's parts need meanwhile; what enters and leaves a stage, and gradients of both; what every pass
/// has for itself; under ZeRO 1 and 2 the weights of a layer that are gathered at once, under ZeRO 3 all weights of one
/// layer. Fragmentation, workspaces of libraries and what a framework itself takes are not in it; a dropless layer is
/// counted under balanced routing. Throws BadInput for counts below 1 and an unknown ZeRO stage.
MemoryEstimate estimate_memory(const MemoryRequest& request);
/// Estimates the same of one stage.
MemoryEstimate estimate_stage(const MemoryRequest& request, int stage);

/// Estimates one layer on each pipeline stage, one micro-batch, nothing sharded by ZeRO: what stands beside a layer's
/// plan.
MemoryEstimate layer_memory(const LayerCase& shape, Flow flow = Flow::sharded, bool scores = true);

/// Returns what a plan trains and keeps, its packed experts included: as much at once as it has memory slots.
MemoryRequest memory_request(const Plan& plan);

/// Returns nothing where the estimate fits, else "does not fit: needs 31.20 GiB, a rank has 11.00 GiB".
std::optional<Refusal> misfit(const MemoryEstimate& estimate, double capacity_bytes);

// How long what a layer's pass over a micro-batch makes is needed, and which passes can hold it in the same
// memory.
//
// Idea: two passes share memory where every task that touches it in the one is ordered before every task that touches
// it in the other. What orders them are dependencies and lanes (Ancestors), so that no timing can break it; that one is
// issued first is not enough.

/// Names how long something is needed. The dense part is all but the tasks of rows, of the shared expert and i_order;
/// the MoE part is all but attention and its collectives: gate, order and a dense layer's feed-forward are in both. A
/// backward's sum over MP, behind its attention, is in neither, and reads nothing that is kept. A forward's AllGather
/// of its input is not in the dense part.
/// A layer that runs its forward again for its backward needs what is kept, and what its forward's parts need, twice:
/// in the first forward, and from the second one on.
enum class Lifetime : uint8_t {
  kept,            // from a forward to the end of its backward
  output,          // likewise, whatever runs again: what the next layer reads
  dense_forward,   // by a forward's dense part
  dense_backward,  // by a backward's
  moe_forward,     // by a forward's MoE part
  moe_backward,    // by a backward's
  input_sum,       // by attention's backward, until the MP ranks' parts are added up
  output_gradient  // from the backward of the layer behind until this layer's attention
};
inline constexpr int kLifetimes = 8;

/// Memory that passes hold one after the other. Both phases' dense parts may hold the same slot, and both MoE parts;
/// layers that differ in kind don't keep in the same.
struct MemorySlot {
  Lifetime lifetime = Lifetime::kept;  // of both phases' parts: the forward's
  int stage = 0;
  bool dense_layers = false;  // of Lifetime::kept and output
  auto operator<=>(const MemorySlot&) const = default;
};

struct MemorySlots {
  int micro_batches = 0;
  std::vector<MemorySlot> slots;
  using OfPass = EnumArray<Lifetime, int, kLifetimes>;  // -1: nothing is shared
  std::vector<OfPass> held;                             // by layer, then micro-batch

  /// Returns whether every pass has all of its memory for itself.
  bool none() const { return slots.empty(); }
  const OfPass& of(int layer, int micro_batch) const { return held[layer * micro_batches + micro_batch]; }
  bool operator==(const MemorySlots& other) const { return held == other.held; }
};

/// Gives each pass, in the order in which they begin, a slot of each lifetime that is free whenever it needs it. What
/// leaves a chunk of a stage's layers has none, nor has its gradient: they belong to that chunk's end alone.
MemorySlots memory_slots(const Plan& plan);

// Counts what one layer's pass over a micro-batch holds on the rank that has most, tensor by tensor, as MoeLayer makes
// it.

/// Bytes by how long they are needed. Both phases' parts hold the same memory.
struct PassBytes {
  double kept = 0;            // what the backward reads
  double dense = 0, moe = 0;  // what a phase's dense part, and its MoE part or feed-forward, need meanwhile
  double input_sum = 0;       // until MP ranks add up their parts of the input's gradient
  double output = 0;          // of the layer; its gradient is as large
  double apart = 0;           // what each pass has for itself all along
};

/// What of attention is there: without it all of the dense part but the gate is left out; the CPU's keeps no
/// scores, whatever is asked (attention_heads.h).
struct AttentionKept {
  bool attends = true, scores = true;
};

/// Counts a layer with experts, or a dense one, under balanced routing.
PassBytes pass_bytes(const LayerCase& shape, Flow flow, AttentionKept attention = {});

}  // namespace moe
