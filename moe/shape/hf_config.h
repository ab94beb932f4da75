#pragma once
// Models that a Hugging Face config.json describes, of the families in model_families().
#include <span>
#include <string>
#include <string_view>

#include "moe/shape/published_model.h"

namespace moe {

/// Returns whether the file is a config.json and not a model file: its name ends in .json, or its text begins with '{'.
bool is_hf_config(const std::string& path);

/// Reads a config.json. Throws BadInput "FILE: KEY: found ..., expected ..." for a key of the file or its text_config
/// that is not understood, unless the key is known to change neither shape nor cost, or is off (null, false, empty).
PublishedModel read_hf_config(const std::string& path);

/// Reads the model of that name or path, from a model file or a config.json.
PublishedModel find_published_model(const std::string& name_or_path);

// Families of MoE models that a Hugging Face config.json may describe: the meaning of their keys, and properties that
// no key sets. Sources of keys and defaults: transformers, src/transformers/models/*/configuration_*.py and
// modeling_*.py; for minimax_text_01 and minimax_m2, the models' own code.

/// The value that a family uses if a config lacks the key; a boolean is 0 or 1.
struct KeyDefault {
  std::string_view key;
  int64_t value;
};

/// A key for which only one value is supported. `value`: as describe() of a ConfigValue shows it.
struct FixedKey {
  std::string_view key, value;
};

/// How a config of a family says which layers do not have attention over all tokens. After "else": the rule for configs
/// without the key before it.
enum class MixerRule : uint8_t {
  uniform,          // all layers are equal, windowed if sliding_window is set
  use_window_key,   // layer_types; else all layers are equal, windowed if use_sliding_window is true
  alternating,      // layer_types; else layers 0, 2, 4, .. are windowed
  chunked,          // layer_types, no_rope_layers or no_rope_layer_interval; others see attention_chunk_size tokens
  attn_type_list,   // attn_type_list: 1 (attention) or 0 (linear) for each layer
  linear_odd,       // layer_types; else layers 1, 3, 5, .. are linear
  full_interval,    // layer_types; else every full_attention_interval-th layer is attention
  attention_period  // every attn_layer_period-th layer is attention, from attn_layer_offset on
};

/// A row of the table of families. string_view members are the family's names of keys, "" if it has no such key.
struct ModelFamily {
  std::string_view name;  // model_type
  std::string_view model_dim = "hidden_size", layers = "num_hidden_layers", heads = "num_attention_heads",
                   kv_heads = "num_key_value_heads", head_dim = "head_dim", length = "max_position_embeddings";
  std::string_view experts = "num_experts", top_k = "num_experts_per_tok", hidden = "intermediate_size";
  std::string_view dense_hidden = {};
  // Layers with experts. If the config has `expert_list`, only the layers in it. Otherwise the first `first_dense`
  // layers and those in `dense_list` are dense, and of the rest one in every `step` has experts: the one with number
  // `offset` within a step; without `offset`, the last of a step if `last_of_step`, else the first.
  std::string_view first_dense = {}, step = {}, offset = {}, dense_list = {}, expert_list = {};
  bool last_of_step = false;
  std::string_view shared_hidden = {}, shared_count = {};  // hidden size; or number of shared experts
  bool shared_is_one = false, shared_gate = false;  // one shared expert of size `hidden`; a sigmoid gate weights it
  MixerRule mixers = MixerRule::uniform;
  Mixer linear = Mixer::attention;  // the mixer of a linear layer
  bool latent = false;
  QkNorm qk_norm = QkNorm::none;
  std::string_view qk_norm_key = {};  // empty: qk_norm applies to every config
  std::string_view attention_bias = "attention_bias", head_bias = {}, mtp = {}, selection_bias = {};
  bool output_bias = true;  // attention_bias also applies to the output projection
  bool gated_attention = false, sinks = false, always_selection_bias = false, router_bias = false, expert_bias = false,
       norm_bias = false, sigmoid_gate = false;
  bool normalized = true;   // default of norm_topk_prob: weights of a token's experts are divided by their sum
  double rotary_share = 1;  // default of partial_rotary_factor and rotary_dim: part of a head with rotary positions
  std::string_view swiglu_limit = {};
  Norm norm = Norm::by_ffn;
  std::string_view rope_theta = "rope_theta";  // empty: no rotary positions
  std::span<const KeyDefault> defaults = {};
  std::span<const FixedKey> fixed = {};
  std::span<const std::string_view> ignored = {};  // keys that are ignored in addition to those of is_ignored_key
};

std::span<const ModelFamily> model_families();

/// Returns whether a key changes neither shape nor cost in any family: training and generation settings, scales, token
/// ids. Keys of nested objects are "object.key".
bool is_ignored_key(std::string_view key);

}  // namespace moe
