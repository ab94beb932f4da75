#pragma once
// The layer that is trained (LayerShape) and its distribution over ranks (ParallelShape). The letters B, L, M, H, E, k
// and f are explained at the fields of LayerShape.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "moe/base/units.h"
#include "moe/shape/parts.h"

namespace moe {

constexpr const FfnPart& part_of(Ffn ffn) {
  const auto i = static_cast<size_t>(ffn);
  return i < kFfnParts.size() ? kFfnParts[i] : ffn_parts()[i];
}
constexpr std::string_view name_of(Ffn ffn) { return part_of(ffn).name; }
Ffn ffn_from(std::string_view name, std::string_view where);
constexpr int gemms_of(Ffn ffn) { return part_of(ffn).gemms; }
/// Returns whether an expert has a W3 beside W1, as in SwiGLU.
constexpr bool is_gated(Ffn ffn) { return gemms_of(ffn) == 3; }
/// Returns whether rows and weights are multiplied as FP8 numbers, in the forward and for the gradients of rows.
/// Gradients of weights use the layer's own type, so they do not depend on how rows are cut into chunks.
constexpr bool in_fp8(Ffn ffn) { return part_of(ffn).in_fp8; }
/// Returns the block size of an expert's weights: on each rank, their widths must be multiples of it.
constexpr int64_t block_of(Ffn ffn) { return in_fp8(ffn) ? kFp8Block : 1; }
/// Throws BadInput naming `name` and `group` unless `width` divides into `shards` shards of whole blocks (block_of()).
void require_blocks(Ffn ffn, int64_t width, int shards, std::string_view name, std::string_view group);

/// The norms of a layer. by_ffn: rmsnorm for Mixtral's feed-forward, else layernorm. Each has a gain of M. Norms
/// precede attention and the gate, except that post_layernorm (BERT's) follows each of the two residual sums.
enum class Norm { by_ffn, none, layernorm, rmsnorm, post_layernorm };
constexpr bool is_post_norm(Norm norm) { return norm == Norm::post_layernorm; }
std::string_view name_of(Norm norm);
Norm norm_from(std::string_view name, std::string_view where);

/// The rounding of T_rank, the number of rows that a rank may send to each expert, for its N = B L / N_MP tokens. The r
/// chunks of T_rank have floor or ceil(T_rank / r) rows each.
///   ragged     ceil(k f N / E)
///   exact      k f N / E unrounded, equal chunks: planning only, what the papers' figures assume
///   tutel      k floor(f ceil(N / E)); if no token is dropped, padded to the largest load of any expert
///   deepspeed  ceil(k f N / E), at least 4; padded as tutel if no token is dropped
///   megatron   ceil(k f N / E); if no token is dropped, unequal AlltoAll, as with ragged
///   lcm        ceil(k f N / E), padded to a multiple of lcm(r_f, r_b): chunks are equal, as in FSMoE's code; if no
///              token is dropped, the largest load of any expert is padded to such a multiple
enum class Rounding { ragged, exact, tutel, deepspeed, megatron, lcm };
std::string_view name_of(Rounding rounding);
Rounding rounding_from(std::string_view name, std::string_view where);

/// One MoE transformer layer. B counts the samples of one MP group or, with context parallelism, of one CP group.
struct LayerShape {
  int64_t batch = 4;          // B, samples
  int64_t seq = 1024;         // L, tokens per sample
  int64_t model_dim = 1024;   // M
  int64_t hidden = 4096;      // H, of one expert before sharding over ESP
  int64_t shared_hidden = 0;  // hidden size of the shared expert before sharding over MP; 0: no shared expert
  int64_t heads = 16;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // width of a head; 0: M / heads
  int64_t window = 0;    // tokens that a token sees, itself included; 0: all tokens before it
  int64_t parts = 1;     // number of parts that each sample is cut into; each is a micro-batch (Plan::part_of)
  int64_t first_stage_layers = 0, last_stage_layers = 0;  // of pipeline stages (StageSplit); 0: as the others
  double rope_theta = 0;  // base of the rotary positions in attention; 0: no rotary positions
  // Latent attention (MLA; DeepSeek-V2, arXiv:2405.04434, section 2.1): the ranks to which queries and keys and values
  // are compressed, and the widths of a head: queries and keys without and with rotary positions, and values.
  int64_t q_lora_rank = 0;   // 0: queries are not compressed
  int64_t kv_lora_rank = 0;  // 0: attention is not latent; then all five of these fields are 0
  int64_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  int64_t experts = 0;        // E; 0: one per node
  int64_t top_k = 2;          // k
  int64_t node_limit = 0;     // M, most nodes that a token's k experts may lie on; 0: no limit
  int64_t router_groups = 0;  // groups of experts that node_limit counts; 0: each node's experts are a group
  std::optional<double> capacity_factor = 1.2;  // f; empty: dropless
  Ffn ffn = Ffn::gpt;
  Norm norm = Norm::by_ffn;
  bool residual = true;  // around attention and around the MoE part
  bool causal = true;    // a token sees only earlier tokens; else all tokens of its sample (BERT)
  bool bias = false;     // attention's projections, experts' GEMMs and LayerNorms have biases (GPT-2)
  double aux_loss = 0;   // coefficient of the gate's load-balancing loss, if the original gate has one
  double z_loss = 0;     // coefficient of the mean squared log-sum-exp of the gate's logits
  DType dtype = DType::float32;
  std::string gate = "gshard";
  std::string order = "tutel";
  std::string dispatcher = "alltoall";
  std::string hook = "none";
  bool operator==(const LayerShape&) const = default;
};

/// Returns whether attention is latent (MLA); if so, head_dim is 0 and kv_heads equals heads.
constexpr bool is_latent(const LayerShape& l) { return l.kv_lora_rank > 0; }
/// Makes attention plain by setting the widths of latent attention to 0.
constexpr void clear_latent(LayerShape& l) {
  l.q_lora_rank = l.kv_lora_rank = 0;
  l.qk_nope_head_dim = l.qk_rope_head_dim = l.v_head_dim = 0;
}
/// Width of a head of queries and keys.
constexpr int64_t head_width(const LayerShape& l) {
  if (is_latent(l)) return l.qk_nope_head_dim + l.qk_rope_head_dim;
  return l.head_dim > 0 ? l.head_dim : l.model_dim / l.heads;
}
/// Width of a head of values.
constexpr int64_t value_width(const LayerShape& l) { return is_latent(l) ? l.v_head_dim : head_width(l); }
/// Width of all heads together: columns of W_q, rows of W_o.
constexpr int64_t attention_width(const LayerShape& l) { return l.heads * head_width(l); }
constexpr int64_t attention_output_width(const LayerShape& l) { return l.heads * value_width(l); }

/// The parts of the forward that the backward recomputes (MoNTA, Table 4). none: nothing; selective: attention scores;
/// full: everything, from the layer's input. Attention keeps its scores only with `none`.
enum class Recompute : uint8_t { none, selective, full };
std::string_view name_of(Recompute recompute);
Recompute recompute_from(std::string_view name, std::string_view where);

/// The states that a rank keeps in the host's memory (Lina section 4.2, after ZeRO-Offload). experts: the weights and
/// optimizer states of its routed experts; the device then has only the experts' weights of kWindowLayers layers, and
/// the optimizer updates the experts on the host.
enum class Offload : uint8_t { none, experts };
std::string_view name_of(Offload offload);
Offload offload_from(std::string_view name, std::string_view where);
/// Number of layers whose offloaded experts the device has at the same time: those of the current pass and of the next.
inline constexpr int kWindowLayers = 2;

/// How the ranks that share each sample exchange keys and values. allgather: they gather those of whole samples before
/// attention (Grattafiori et al. 2024). ring: they pass blocks round a ring, and attention computes with one block at a
/// time (ring attention, Liu et al. 2023).
enum class CpExchange : uint8_t { allgather, ring };
std::string_view name_of(CpExchange exchange);
CpExchange cp_exchange_from(std::string_view name, std::string_view where);

/// The states that ZeRO shards over the replicas of a weight: over DP in the dense part, over EDP in the experts.
/// (MoNTA, Table 3, prints d for both, although experts have N_EDP replicas.)
///   0 nothing   1 optimizer states   2 gradients too   3 weights too
inline constexpr int kMaxZeroStage = 3;

/// The framework whose rules decide the states and activations that a rank keeps (memory_rules in moe/plan/memory.h).
enum class Trainer : uint8_t { moetune, megatron, deepspeed, torchtitan };

/// The sizes of the groups. The same P ranks are grouped in two ways: P = pp dp cp mp for the dense part and P = pp ep
/// esp edp for the experts. rank = ((pp N_DP + dp) N_CP + cp) N_MP + mp; inside a stage, also rank = (edp N_EP + ep)
/// N_ESP + esp or, if ep_inside, (edp N_ESP + esp) N_EP + ep (the two placements of Parm section IV-B).
struct ParallelShape {
  int nodes = 1;
  int ranks_per_node = 1;
  int dp = 0, mp = 0, ep = 0, esp = 0, pp = 1, edp = 0;  // 0: the default
  int cp = 1;                                            // ranks that share each sample: context parallelism
  CpExchange cp_exchange = CpExchange::allgather;        // how CP ranks exchange keys and values
  bool ep_inside = false;
  int zero = 0;                           // ZeRO stage, 0 to kMaxZeroStage
  Recompute recompute = Recompute::none;  // what the backward recomputes
  Offload offload = Offload::none;        // what the host's memory keeps
  Trainer trainer = Trainer::moetune;
  int ranks() const { return nodes * ranks_per_node; }
  /// Returns the number of ranks with the same dense weights: dp x cp.
  int replicas() const { return dp * cp; }
  /// Returns whether the backward computes attention's scores again.
  bool recomputes_scores() const { return recompute != Recompute::none || ring_blocks() > 0; }
  /// Returns the number of blocks of keys and values that go round the ring, one per CP rank; 0 without a ring.
  int ring_blocks() const { return cp > 1 && cp_exchange == CpExchange::ring ? cp : 0; }
  bool operator==(const ParallelShape&) const = default;
};

/// Returns the name of the placement: "ep-inside" or "esp-inside", by the group that consists of neighbouring ranks.
std::string_view placement_name(const ParallelShape& parallel);
bool ep_inside_from(std::string_view name, std::string_view where);

/// A layer and its distribution over ranks, with defaults filled in by complete(). head_dim may stay 0 (M / heads);
/// experts is 0 in a dense layer (moe/shape/dense_layers.h).
struct LayerCase {
  LayerShape layer;
  ParallelShape parallel;
  Rounding rounding = Rounding::ragged;
  int64_t row_multiple = 1;  // T_rank is a multiple of this; with Rounding::lcm, the degrees decide it (decided_case)
  int part = 0;              // the part of the samples that a pass covers
  bool operator==(const LayerCase&) const = default;
};

/// Returns the tokens of one MP group in a pass: B L / N_CP, divided by the number of parts.
inline int64_t mp_tokens(const LayerCase& c) { return c.layer.batch * c.layer.seq / c.parallel.cp / c.layer.parts; }
/// Returns the case of a layer's pass over one part of its samples.
LayerCase part_case(LayerCase shape, int part);

/// Returns the row of the layer's gate in gate_parts(). Throws BadInput listing the known gates.
const GatePart& gate_of(const LayerShape& layer);

/// Returns the case with all defaults filled in, and checks that all sizes divide. Defaults: MP = ESP = ranks per node
/// and E = nodes, on one node MP = ESP = 1 and E = ranks; EP is the largest divisor of E up to the nodes of a stage, on
/// one node up to its ranks / ESP. MP, ESP and EP are smaller if the layer's sizes do not divide; DP and
/// EDP follow from the others. Throws BadInput naming the field.
LayerCase complete(LayerShape layer, ParallelShape parallel, Rounding rounding);

/// Returns the number of nodes that an EP group spans; together they have all experts.
int expert_nodes(const ParallelShape& parallel);

/// Returns the element type that dispatch and combine send: the layer's own, unless its hook sends another.
DType wire_type(const LayerShape& layer);

/// Returns "DP 8 MP 4 EP 8 ESP 4 PP 1", with CP after DP if it is above 1.
std::string describe_groups(const ParallelShape& parallel);

/// Returns why the experts of this case cannot be offloaded to the host: a dense layer has none; ranks have shares of
/// their states (ZeRO over EDP); or the device keeps rounded copies of them (FP8). Empty if they can, or if nothing is
/// offloaded.
std::optional<std::string> offload_refusal(const LayerCase& shape);
/// Throws Unsupported with the reason that offload_refusal() returns, if it returns one.
void check_offload(const LayerCase& shape);

/// Returns how a rank saves memory, such as "ZeRO 1, scores recomputed, experts offloaded"; empty if it does not.
std::string describe_states(const ParallelShape& parallel);

/// Returns "B4 L1024 M4096 H14336 E4 k2 f1.2 mixtral", followed by the element type unless it is float32.
std::string describe(const LayerShape& layer);

}  // namespace moe
