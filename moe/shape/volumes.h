#pragma once
// Volumes of one MoE layer per rank (FSMoE section 4.1; bytes and FLOPs, forward and backward).
#include <array>
#include <cstdint>

#include "moe/shape/dense_layers.h"
#include "moe/shape/shape.h"

namespace moe {

/// The most elements or bytes that a rank's layer may have: up to here they are counted exactly, in int64_t and in
/// double.
inline constexpr int64_t kMostBytes = int64_t{1} << 53;
/// Throws BadInput naming the fields whose product is more than kMostBytes.
void check_volumes(const LayerCase& c);

/// Names rows [begin, end) of T_rank.
struct Rows {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
  bool operator==(const Rows&) const = default;
};

/// Returns chunk `chunk` of `chunks` over `total` rows: floor or ceil(total / chunks) rows, the longer ones first.
Rows chunk_rows(int64_t total, int chunks, int chunk);

/// Returns k f B L / (N_CP N_MP E), unrounded; f = 1 where the layer drops nothing (expected, under balanced routing).
double capacity_exact(const LayerCase& c);
/// Returns the rows of each expert that a rank's tokens may fill, rounded as the case says (exact: up). What comes
/// beyond is dropped.
int64_t capacity_rows(const LayerCase& c);
/// Returns `rows` and as many empty ones as make a multiple of the case's row_multiple.
int64_t padded_rows(const LayerCase& c, int64_t rows);
/// Returns T_rank: the rows that a rank sends to each expert, those of its capacity padded.
int64_t padded_rows(const LayerCase& c);
/// Returns T_rank as plans are priced and counted: unrounded where the case is exact, else padded.
double planned_rows(const LayerCase& c);
/// Returns whether nothing is dropped and every expert gets as many rows as the one that is chosen most.
bool pads_to_largest_load(const LayerCase& c);

/// Returns in how many of `places` (nodes, or ranks) with experts / places experts each a token's k experts lie in the
/// mean: `allowed` of these are any, the k any of their experts, allowed (1 - C((allowed - 1) e, k) / C(allowed e, k)),
/// e = experts / places. A row that is sent once a place has so many copies, one a chosen expert k.
double places_reached(int64_t experts, int64_t places, int64_t allowed, int64_t top_k);
/// Returns how many nodes of an EP group a token's experts lie on in the mean, as places_reached() counts them.
/// Node-limited routing (DeepSeek-V3, arXiv:2412.19437, section 2.1.2) first chooses M = node_limit of them: M bounds
/// what a token reaches, and what is sent where rows are sent once a node.
double nodes_reached(const LayerCase& c);

/// Counts everything that a chunk of `rows` rows of T_rank moves and computes on one rank.
struct MoeVolumes {
  double alltoall_bytes = 0;  // D or C: rows E M elements
  double gathered_bytes = 0;  // G's gathered size, S's input size: N_ESP times D's
  double expert_flops = 0;    // forward; backward is twice that
};
MoeVolumes moe_volumes(const LayerCase& c, double rows);

/// Counts the heads of the MP rank that has most: whole key-value heads, each with the heads that read it; where there
/// are fewer of them than ranks, ranks share one.
struct Heads {
  int64_t query = 0, key_value = 0;
};
Heads most_heads(const LayerCase& c);

/// Columns of queries, keys, values and of what heads mix to.
struct HeadColumns {
  int64_t query = 0, key = 0, value = 0, mixed = 0;
};
HeadColumns head_columns(const LayerShape& layer, const Heads& heads);
HeadColumns most_columns(const LayerCase& c);  // of the rank with most heads

/// A product of rows with one of attention's weights (in, out); in = 0: there is none.
struct Projection {
  int64_t in = 0, out = 0;
  bool of_keys = false;  // makes keys or values
  bool alike = false;    // all ranks of a stage have the whole weight; else MP ranks have shards of it
  int64_t elements() const { return in * out; }
};
/// Returns the projections of these heads: to q, k, v, and W_o. Of latent attention: from the tokens to the latents of
/// queries, of keys and values (with the rotary key behind), up from both, and W_o.
std::array<Projection, 5> projections(const LayerShape& layer, const Heads& heads);

double attention_flops(const LayerCase& c);  // forward, of the rank with most heads
/// Returns, of these, those of Q K^T and of its product with V: of all L tokens, of which a causal kernel computes
/// half; of a window twice its band, so that this half is the band.
double scores_flops(const LayerCase& c);
double keys_values_flops(const LayerCase& c);  // of attention's: keys and values of the rank's tokens, forward
double cp_bytes(const LayerCase& c);           // CP AllGather's gathered size: keys and values of whole samples
double mp_bytes(const LayerCase& c);           // MP AllGather's gathered size, MP ReduceScatter's input: B L M / N_CP
double shared_flops(const LayerCase& c);       // of the shared expert: forward
/// Returns the bytes of a rank's dense gradients, which are summed over DP: attention's projections, the shared expert
/// and the biases of both.
int64_t gradient_bytes(const LayerCase& c);
int64_t expert_gradient_bytes(const LayerCase& c);  // of a rank's experts' shards, summed over EDP
int64_t attention_parameters(const LayerCase& c);   // of the largest MP shard, without latent_parameters()
int64_t shared_parameters(const LayerCase& c);      // of an MP shard of the shared expert
/// These count the biases' elements of the largest shard, beside those parameters; 0 where a layer has none. What makes
/// M columns from sharded rows has its bias sharded by those columns.
int64_t dense_biases(const LayerCase& c);      // of attention and of the shared expert, over MP
int64_t attention_biases(const LayerCase& c);  // of these, attention's
int64_t expert_biases(const LayerCase& c);     // of a rank's experts, over ESP
/// Counts the elements of a norm's gain, and of its bias where it has one; 0 where a layer has no norms.
int64_t norm_parameters(const LayerShape& layer);
/// Counts the weights of latent attention that all ranks hold alike: those that make the latents, and the gains of the
/// latents' norms; 0 where attention is not latent.
int64_t latent_parameters(const LayerShape& layer);
/// Returns the low rank in which xmoe's gate compares tokens and experts: E / 2, but at least 16 and at most M.
int64_t cosine_rank(const LayerShape& layer);
/// Counts the weights of a layer's gate, which all ranks hold alike: a logit's M for each expert, or for each row of
/// every expert; gshard's spread as many more; xmoe's projection, embeddings and temperature.
int64_t gate_parameters(const LayerCase& c);
/// Counts the pairs of a token (Choices).
int64_t choices_of(const LayerCase& c);

// FLOPs that a step of training needs, however it is spread over ranks: what model FLOPs utilisation counts.

/// How much a model has beside its layer's case: layers over all stages, and an output projection onto
/// `vocabulary` tokens (0: none).
struct ModelDepth {
  int layers = 1, micro_batches = 1;
  int64_t vocabulary = 0;
  DenseLayers dense = {};
};

/// Counts the GEMMs of a forward of all samples (B L tokens of each DP group and micro-batch), three times: a backward
/// has two of each. A token has attention's four projections and scores with all L tokens, or those of its window,
/// whatever is masked; gate, k experts (dropped or not) and shared expert, or a dense layer's feed-forward; the output
/// projection. Nothing counts that is computed again, or on several ranks alike. Source: Chowdhery et al., PaLM, 2022,
/// appendix B. `shape`: complete.
double step_flops(const LayerCase& shape, const ModelDepth& depth);

}  // namespace moe
