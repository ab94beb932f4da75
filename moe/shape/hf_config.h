#pragma once
// Models as a Hugging Face config.json describes them, of the families of moe/shape/hf_config.h.
#include <span>
#include <string>
#include <string_view>

#include "moe/shape/published_model.h"

namespace moe {

/// Returns whether the file is a config.json and no model file: it is named *.json, or begins with '{'.
bool is_hf_config(const std::string& path);

/// Reads a config.json. Its own keys, or those of its text_config, are all understood, or known to change neither shape
/// nor cost, or off (null, false, empty). Throws BadInput "FILE: KEY: found ..., expected ..." for any other.
PublishedModel read_hf_config(const std::string& path);

/// Reads the model of that name or path, of either kind of file.
PublishedModel find_published_model(const std::string& name_or_path);

// Families of MoE models that a Hugging Face config.json may describe: which of its keys say what, and what a family
// has whatever its config says. Source of keys and defaults: transformers, src/transformers/models/*/configuration_*.py
// and modeling_*.py; of minimax_text_01 and minimax_m2, the models' own code.

/// A value that a family takes where a config leaves the key out; a boolean is 0 or 1.
struct KeyDefault {
  std::string_view key;
  int64_t value;
};

/// A key that is understood with this one value alone, as describe() of a ConfigValue shows it.
struct FixedKey {
  std::string_view key, value;
};

/// How a family says which of its layers have other mixers than attention over all tokens.
enum class MixerRule : uint8_t {
  uniform,          // all are alike, windowed if sliding_window is set
  use_window_key,   // layer_types, else none is windowed unless use_sliding_window says so
  alternating,      // layer_types, else layers 0, 2, 4, .. are windowed
  chunked,          // layer_types, no_rope_layers or no_rope_layer_interval: the others see attention_chunk_size tokens
  attn_type_list,   // a list of 1 (attention) and 0 (linear)
  linear_odd,       // layer_types, else layers 1, 3, 5, .. are linear
  full_interval,    // layer_types, else every full_attention_interval-th layer is attention
  attention_period  // every attn_layer_period-th layer is attention, from attn_layer_offset on
};

/// A row of the table of families. An empty key: the family has no such key.
struct ModelFamily {
  std::string_view name;  // model_type
  std::string_view model_dim = "hidden_size", layers = "num_hidden_layers", heads = "num_attention_heads",
                   kv_heads = "num_key_value_heads", head_dim = "head_dim", length = "max_position_embeddings";
  std::string_view experts = "num_experts", top_k = "num_experts_per_tok", hidden = "intermediate_size";
  std::string_view dense_hidden = {};
  // Which layers have experts: none of the first `first_dense`; of the rest those of number `offset` in each `step`
  // (empty offset: the last of a step if `last_of_step`, else the first), but for those in `dense_list`; or those alone
  // that `expert_list` has.
  std::string_view first_dense = {}, step = {}, offset = {}, dense_list = {}, expert_list = {};
  bool last_of_step = false;
  std::string_view shared_hidden = {}, shared_count = {};  // a width, or a number of experts' widths
  bool shared_is_one = false, shared_gate = false;         // a shared expert as wide as the others, always
  MixerRule mixers = MixerRule::uniform;
  Mixer linear = Mixer::attention;  // what a linear layer is
  bool latent = false;
  QkNorm qk_norm = QkNorm::none;
  std::string_view qk_norm_key = {};  // empty: always
  std::string_view attention_bias = "attention_bias", head_bias = {}, mtp = {}, selection_bias = {};
  bool output_bias = true;  // attention_bias reaches the output projection
  bool gated_attention = false, sinks = false, always_selection_bias = false, router_bias = false, expert_bias = false,
       norm_bias = false, sigmoid_gate = false;
  Norm norm = Norm::by_ffn;
  std::string_view rope_theta = "rope_theta";  // empty: no positions
  std::span<const KeyDefault> defaults = {};
  std::span<const FixedKey> fixed = {};
  std::span<const std::string_view> ignored = {};  // beside those of every family
};

std::span<const ModelFamily> model_families();

/// Returns whether a key changes neither shape nor cost in any family: training and generation settings, scales,
/// token numbers. Keys of nested objects are "object.key".
bool is_ignored_key(std::string_view key);

}  // namespace moe
