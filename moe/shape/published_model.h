#pragma once
// A published MoE model as described by its config.json, in enough detail for an exact count of parameters and FLOPs,
// and its conversion to the planner's Model.
#include <string>
#include <vector>

#include "moe/shape/model_file.h"

namespace moe {

/// The token mixer of a layer. lightning: linear attention with an output gate (MiniMax-01, arXiv:2501.08313);
/// gated_delta: gated DeltaNet (arXiv:2412.06464); mamba: a selective state space model (arXiv:2312.00752).
enum class Mixer : uint8_t { attention, windowed, lightning, gated_delta, mamba };
std::string_view name_of(Mixer mixer);

/// Norms of queries and keys. weightless: without a gain; head: with a gain as wide as one head; width: with a gain as
/// wide as all heads together.
enum class QkNorm : uint8_t { none, weightless, head, width };

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): ranks and widths of a head.
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries are not compressed
  int64_t kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
};

struct GatedDelta {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, kernel = 0;
};

struct Mamba {
  int64_t state = 0, kernel = 0, inner = 0, dt_rank = 0;
  bool conv_bias = true, projection_bias = false;
};

struct PublishedModel {
  std::string name, file;
  std::string family;              // model_type of the config.json; empty if read from a model file
  std::vector<Mixer> mixers;       // by layer
  std::vector<bool> dense_layers;  // by layer
  int64_t window = 0;              // tokens that a windowed layer sees; 0: no layer is windowed
  int64_t model_dim = 0, vocabulary = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::optional<LatentAttention> latent;  // replaces kv_heads and head_dim
  GatedDelta gated_delta;
  Mamba mamba;
  QkNorm qk_norm = QkNorm::none;
  bool gated_attention = false;  // queries have an output gate of their own width
  bool qkv_bias = false, output_bias = false, sinks = false;
  int64_t experts = 0, top_k = 0, hidden = 0;        // experts 0: one per node
  int64_t shared_hidden = 0, dense_hidden = 0;       // 0: no such layer part
  bool shared_gate = false;                          // a sigmoid gate weights the shared expert
  bool router_bias = false, selection_bias = false;  // added to the logits; added only to choose experts
  bool normalized = true;                            // the weights of a token's experts are divided by their sum
  double routed_scale = 1;                           // factor of these weights
  double balance_loss = 0;                           // coefficient of the load-balancing loss; 0: not in the file
  bool balance_by_sample = false;  // the load-balancing loss is computed for each sample, not for the batch
  bool expert_bias = false, norm_bias = false, head_bias = false;
  bool sigmoid_gate = false;
  int64_t node_limit = 0, router_groups = 0;  // as in LayerShape
  double swiglu_limit = 0;                    // limit at which gpt-oss clamps its activation; 0: no limit
  int gemms = 3;                              // GEMMs of an expert
  Norm norm = Norm::by_ffn;
  bool tied_embedding = false;
  int mtp_modules = 0;  // modules that predict further tokens, each with an MoE layer
  double rope_theta = 0;
  double rotary_share = 1;   // part of a head that has rotary positions
  std::string rope_scaling;  // how rotary positions are stretched: "yarn, factor 40"; empty: they are not
  bool chunked = false;  // a token sees only its own chunk of `window` tokens, instead of a sliding window (Llama 4)
  int64_t seq = 0;       // tokens of a sample, which plans and FLOPs assume
  DType dtype = DType::bfloat16;
  std::vector<std::string> other_parts;   // parts of the file that this model does not cover: "vision_config"
  std::vector<std::string> ignored_keys;  // keys of the file that change neither shape nor cost
  int layers() const { return static_cast<int>(mixers.size()); }
  int dense_count() const;
  int count_of(Mixer mixer) const;
  /// Returns the mixer's name; "chunked attention" for windows that do not slide (chunked).
  std::string_view name_of(Mixer mixer) const;
};

/// Numbers of parameters, and the FLOPs of the forward per token.
struct ModelCounts {
  double parameters = 0;  // without MTP modules
  double active = 0;      // parameters that one token's forward uses, including the whole embedding
  double embedding = 0;   // the input embedding
  double mtp = 0;         // all MTP modules, without their copies of embedding and output projection
  /// FLOPs of one token's forward: two for each matrix weight that multiplies it, and those of scores and weighted sums
  /// over `seq` tokens or the window, including tokens that a causal mask hides (PaLM, arXiv:2204.02311, appendix B).
  /// Convolutions and recurrences of layers without attention are excluded. A backward has twice as many.
  double forward_flops = 0;
};
ModelCounts count_model(const PublishedModel& model);

/// Returns the mixers that plans replace by attention over all tokens: "gated DeltaNet in 36 of 48 layers". Sliding
/// windows are not replaced; chunked windows are, although they cost less.
std::vector<std::string> replaced_mixers(const PublishedModel& model);
/// Returns a line for each property of the published model that plans omit or replace.
std::vector<std::string> unplanned_properties(const PublishedModel& model);

/// Returns the model that plans use: one sample of `seq` tokens, dropless, with attention in every layer.
Model planned_model(const PublishedModel& model);

/// Converts a planner's model, which must have experts, to a published model.
PublishedModel published_model(const Model& model);

}  // namespace moe
