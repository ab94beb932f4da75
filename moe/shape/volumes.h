#pragma once
// Volumes of one MoE layer per rank (FSMoE section 4.1): bytes and FLOPs, forward and backward.
#include <array>
#include <cstdint>

#include "moe/shape/dense_layers.h"
#include "moe/shape/shape.h"

namespace moe {

/// Limit of the elements or bytes of a rank's layer. Numbers up to it are exact in both int64_t and double.
inline constexpr int64_t kMaxBytes = int64_t{1} << 53;
/// Throws BadInput naming the fields whose product is more than kMaxBytes.
void check_volumes(const LayerCase& c);

/// The rows [begin, end) of the T_rank rows.
struct Rows {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const Rows&) const = default;
};

/// Returns the rows of chunk `chunk` if `total` rows are cut into `chunks` chunks. Each has floor or ceil(total /
/// chunks) rows; the longer ones come first.
Rows chunk_rows(int64_t total, int chunks, int chunk);

/// Returns the unrounded capacity k f B L / (N_CP N_MP E); f = 1 for dropless layers, as with balanced routing.
double capacity_exact(const LayerCase& c);
/// Returns the number of rows that a rank's tokens may fill in each expert, rounded by the case's Rounding (`exact`
/// rounds up). Further rows are dropped.
int64_t capacity_rows(const LayerCase& c);
/// Returns `rows`, rounded up to a multiple of the case's row_multiple.
int64_t padded_rows(const LayerCase& c, int64_t rows);
/// Returns T_rank, the number of rows that a rank sends to each expert: its capacity after padding.
int64_t padded_rows(const LayerCase& c);
/// Returns the T_rank that plans use for prices and volumes: unrounded if the rounding is exact, else padded.
double planned_rows(const LayerCase& c);
/// Returns whether the layer is dropless and pads every expert's rows to the number of the most chosen expert.
bool pads_to_largest_load(const LayerCase& c);

/// Returns the mean number of places (nodes or ranks) that a token's k experts lie on, which is the number of copies of
/// a row that is sent once per place. Each of `places` has e = experts / places experts, and the token chooses k
/// experts of `allowed` places, all choices being equally likely: allowed (1 - C((allowed - 1) e, k) / C(allowed e,
/// k)).
double places_reached(int64_t experts, int64_t places, int64_t allowed, int64_t top_k);
/// Returns the largest number of `places` that a token's experts may lie on. They belong to at most node_limit router
/// groups. A group lies inside one place if `places` divides the number of groups; otherwise it may extend over
/// several.
int64_t places_allowed(const LayerShape& layer, int64_t places);
/// Returns the mean number of nodes of an EP group that a token's experts lie on (places_reached()). Node-limited
/// routing (DeepSeek-V3, arXiv:2412.19437, section 2.1.2) first chooses M = node_limit nodes, so M limits this number,
/// and with it the bytes of dispatchers that send a row once per node. A router with other groups than the nodes limits
/// it to places_allowed(), as if a token chose among all experts of these nodes.
double nodes_reached(const LayerCase& c);

/// The bytes and FLOPs of one rank for a chunk of `rows` rows of T_rank.
struct MoeVolumes {
  double alltoall_bytes = 0;  // dispatch or combine: rows E M elements
  double gathered_bytes = 0;  // AllGather's gathered size, ReduceScatter's input size: N_ESP times alltoall_bytes
  double expert_flops = 0;    // forward; the backward has twice as many
};
MoeVolumes moe_volumes(const LayerCase& c, double rows);

/// Numbers of heads of the MP rank that has the most. A rank has whole key-value heads, each with the query heads that
/// use it; if there are fewer key-value heads than ranks, ranks share them.
struct Heads {
  int64_t query = 0, key_value = 0;
};
Heads max_heads(const LayerCase& c);

/// Numbers of columns of queries, keys, values and the heads' output (`mixed`).
struct HeadColumns {
  int64_t query = 0, key = 0, value = 0, mixed = 0;
};
HeadColumns head_columns(const LayerShape& layer, const Heads& heads);
HeadColumns max_columns(const LayerCase& c);  // columns of the rank with the most heads

/// A product of rows with a weight of attention that has `in` rows and `out` columns; in = 0: no such product.
struct Projection {
  int64_t in = 0, out = 0;
  bool of_keys = false;        // computes keys or values
  bool is_replicated = false;  // replicated on all ranks of a stage; else sharded over MP
  int64_t elements() const { return in * out; }
};
/// Returns the projections of these heads: W_q, W_k, W_v and W_o. For latent attention: from the tokens to the latents
/// of queries and of keys and values (with the rotary key), from both latents to the heads, and W_o.
std::array<Projection, 5> projections(const LayerShape& layer, const Heads& heads);

double attention_flops(const LayerCase& c);  // forward, of the rank with most heads
/// Returns the FLOPs in attention_flops() of Q K^T and of its product with V, over all L tokens. A causal kernel
/// computes half of them. With a window, the result is twice the FLOPs of the window's band, so that half is right here
/// too.
double scores_flops(const LayerCase& c);
double keys_values_flops(const LayerCase& c);  // FLOPs in attention_flops() for the rank's keys and values
double out_flops(const LayerCase& c);          // FLOPs in attention_flops() for the projection of the output
double cp_bytes(const LayerCase& c);           // CP AllGather's gathered size: keys and values of whole samples
double mp_bytes(const LayerCase& c);           // MP AllGather's gathered size, MP ReduceScatter's input: B L M / N_CP
double shared_flops(const LayerCase& c);       // forward of the shared expert
/// Returns the bytes of a rank's dense gradients, which are summed over DP: attention's projections, the shared expert
/// and the biases of both.
int64_t gradient_bytes(const LayerCase& c);
int64_t expert_gradient_bytes(const LayerCase& c);  // gradient bytes of a rank's experts, summed over EDP
int64_t attention_parameters(const LayerCase& c);   // weights in the largest MP shard, without latent_parameters()
int64_t shared_parameters(const LayerCase& c);      // weights in an MP shard of the shared expert
/// Numbers of bias elements on the rank with the most, which the parameters above exclude; 0 if the layer has no
/// biases. The bias of a weight that maps sharded columns to M columns is sharded over these M columns.
int64_t dense_biases(const LayerCase& c);      // biases of attention and the shared expert, sharded over MP
int64_t attention_biases(const LayerCase& c);  // those of attention in dense_biases()
int64_t expert_biases(const LayerCase& c);     // biases of a rank's experts, sharded over ESP
/// Returns the elements of a norm's gain and, if it has one, its bias; 0 if the layer has no norms.
int64_t norm_parameters(const LayerShape& layer);
/// Returns the number of weights of latent attention that all ranks replicate: the projections to the latents, and the
/// gains of the latents' norms; 0 if attention is not latent.
int64_t latent_parameters(const LayerShape& layer);
/// Returns the dimension in which xmoe's gate compares tokens and experts: E / 2, but at least 16 and at most M.
int64_t cosine_rank(const LayerShape& layer);
/// Returns the number of weights of a layer's gate, which all ranks replicate: M for the logit of each expert, or of
/// each row of every expert; gshard's noise has as many more; xmoe has a projection, embeddings and a temperature.
int64_t gate_parameters(const LayerCase& c);
/// Returns the number of a token's choices (Choices).
int64_t choices_of(const LayerCase& c);

// The FLOPs that a training step needs, independent of its distribution over ranks; model FLOPs utilisation (MFU)
// divides by them.

/// The parts of a model and a step that step_flops() counts: layers of all stages, micro-batches, and the output
/// projection onto `vocabulary` tokens (0: none).
struct ModelDepth {
  int layers = 1, micro_batches = 1;
  int64_t vocabulary = 0;
  DenseLayers dense = {};
  LayerSet whole = {};
};

/// Returns three times the FLOPs of the forward's GEMMs over all samples (B L tokens of each DP group and micro-batch),
/// because a backward has two GEMMs for each. Counted for each token: attention's projections; scores with all L
/// tokens, or those of its window, masked or not; the gate, k experts (dropped or not) and the shared expert, or a
/// dense layer's feed-forward; and the output projection. Recomputation and replicated work on several ranks do not
/// count.
/// Source: Chowdhery et al., PaLM, 2022, appendix B. `shape` must be complete.
double step_flops(const LayerCase& shape, const ModelDepth& depth);

}  // namespace moe
