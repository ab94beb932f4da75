#pragma once
// A published MoE model as its config.json describes it: what an exact count of parameters and FLOPs needs, and the
// planner's model of it.
#include <string>
#include <vector>

#include "moe/shape/model_file.h"

namespace moe {

/// What mixes tokens in a layer. Lightning: linear attention with an output gate (MiniMax-01, arXiv:2501.08313);
/// gated_delta: gated DeltaNet (arXiv:2412.06464); mamba: a selective state space (arXiv:2312.00752).
enum class Mixer : uint8_t { attention, windowed, lightning, gated_delta, mamba };
std::string_view name_of(Mixer mixer);

/// Norms of queries and keys: with a gain of a head's width, or of all heads together; weightless has no gain.
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
  std::string family;              // model_type; empty: a model file
  std::vector<Mixer> mixers;       // by layer
  std::vector<bool> dense_layers;  // by layer
  int64_t window = 0;              // tokens that a windowed layer sees; 0: no layer is windowed
  int64_t model_dim = 0, vocabulary = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::optional<LatentAttention> latent;  // in the place of kv_heads and head_dim
  GatedDelta gated_delta;
  Mamba mamba;
  QkNorm qk_norm = QkNorm::none;
  bool gated_attention = false;  // queries have an output gate as wide as they are
  bool qkv_bias = false, output_bias = false, sinks = false;
  int64_t experts = 0, top_k = 0, hidden = 0;        // experts 0: one a node
  int64_t shared_hidden = 0, dense_hidden = 0;       // 0: none
  bool shared_gate = false;                          // a sigmoid gate weighs the shared expert
  bool router_bias = false, selection_bias = false;  // added to logits; added for the choice of experts alone
  bool expert_bias = false, norm_bias = false, head_bias = false;
  bool sigmoid_gate = false;
  int64_t node_limit = 0;
  int gemms = 3;  // of an expert
  Norm norm = Norm::by_ffn;
  bool tied_embedding = false;
  int mtp_modules = 0;  // modules that predict further tokens, each with a layer of experts
  double rope_theta = 0;
  int64_t seq = 0;  // tokens a sample that plans and FLOPs assume
  DType dtype = DType::bfloat16;
  std::vector<std::string> other_parts;   // of the file that are no part of the model here: "vision_config"
  std::vector<std::string> ignored_keys;  // of the file that change neither shape nor cost
  int layers() const { return static_cast<int>(mixers.size()); }
  int dense_count() const;
  int count_of(Mixer mixer) const;
};

/// Numbers of parameters, and FLOPs of a token's forward.
struct ModelCounts {
  double parameters = 0;  // without MTP modules
  double active = 0;      // those that one token's forward uses, the whole embedding among them
  double embedding = 0;   // of the input alone
  double mtp = 0;         // of all MTP modules, without their copies of embedding and output projection
  /// Two FLOPs for each weight of a matrix that a token meets, and for scores and their sums over `seq` tokens, or over
  /// the window, whatever a causal mask hides (PaLM, arXiv:2204.02311, appendix B). Without convolutions and
  /// recurrences of layers that are no attention. A backward has twice as many.
  double forward_flops = 0;
};
ModelCounts count_model(const PublishedModel& model);

/// Returns a line for each thing of the published model that plans leave out or replace.
std::vector<std::string> left_out_of_plans(const PublishedModel& model);

/// Returns the model that plans take: one sample of `seq` tokens, dropless, with plain attention in every layer.
Model planned_model(const PublishedModel& model);

/// Returns a planner's model, one with experts, as a published one.
PublishedModel published_model(const Model& model);

}  // namespace moe
