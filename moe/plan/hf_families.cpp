#include "moe/plan/hf_families.h"

#include <algorithm>
#include <array>

namespace moe {
namespace {

constexpr KeyDefault kMixtralDefaults[] = {{"num_key_value_heads", 8}, {"rope_theta", 1'000'000}};
constexpr KeyDefault kQwen2Defaults[] = {{"num_key_value_heads", 16}, {"qkv_bias", 1}, {"rope_theta", 10'000}};
constexpr KeyDefault kQwen3Defaults[] = {{"num_key_value_heads", 4}, {"rope_theta", 10'000}};
constexpr KeyDefault kQwen3NextDefaults[] = {{"num_key_value_heads", 2},     {"head_dim", 256},
                                             {"full_attention_interval", 4}, {"linear_num_key_heads", 16},
                                             {"linear_num_value_heads", 32}, {"linear_key_head_dim", 128},
                                             {"linear_value_head_dim", 128}, {"linear_conv_kernel_dim", 4},
                                             {"rope_theta", 10'000}};
constexpr KeyDefault kDeepseekDefaults[] = {{"q_lora_rank", 1536},    {"kv_lora_rank", 512}, {"qk_nope_head_dim", 128},
                                            {"qk_rope_head_dim", 64}, {"v_head_dim", 128},   {"rope_theta", 10'000}};
constexpr KeyDefault kDeepseek3Defaults[] = {
    {"q_lora_rank", 1536}, {"kv_lora_rank", 512},  {"qk_nope_head_dim", 128},    {"qk_rope_head_dim", 64},
    {"v_head_dim", 128},   {"rope_theta", 10'000}, {"first_k_dense_replace", 3}, {"n_shared_experts", 1}};
constexpr KeyDefault kOlmoeDefaults[] = {{"rope_theta", 10'000}};
constexpr KeyDefault kGptOssDefaults[] = {{"num_key_value_heads", 8},
                                          {"head_dim", 64},
                                          {"sliding_window", 128},
                                          {"attention_bias", 1},
                                          {"rope_theta", 150'000}};
constexpr KeyDefault kGlmDefaults[] = {
    {"num_key_value_heads", 8}, {"first_k_dense_replace", 1}, {"n_shared_experts", 1}, {"rope_theta", 10'000}};
constexpr KeyDefault kMiniMaxDefaults[] = {{"num_key_value_heads", 8}, {"rope_theta", 1'000'000}};
constexpr KeyDefault kMiniMaxM2Defaults[] = {{"use_qk_norm", 1}, {"use_routing_bias", 1}, {"rope_theta", 5'000'000}};
constexpr KeyDefault kPhiDefaults[] = {{"num_key_value_heads", 8}, {"rope_theta", 1'000'000}};
constexpr KeyDefault kGraniteDefaults[] = {{"rope_theta", 10'000}};
constexpr KeyDefault kDbrxDefaults[] = {{"attn_config.kv_n_heads", 1}, {"attn_config.rope_theta", 10'000}};
constexpr KeyDefault kLlama4Defaults[] = {
    {"num_key_value_heads", 8},    {"head_dim", 128},  {"attention_chunk_size", 8192},
    {"no_rope_layer_interval", 4}, {"use_qk_norm", 1}, {"rope_theta", 500'000}};
constexpr KeyDefault kJambaDefaults[] = {
    {"num_key_value_heads", 8}, {"num_experts", 16},      {"num_experts_per_tok", 2}, {"expert_layer_period", 2},
    {"expert_layer_offset", 1}, {"attn_layer_period", 8}, {"attn_layer_offset", 4},   {"mamba_d_state", 16},
    {"mamba_d_conv", 4},        {"mamba_expand", 2},      {"mamba_conv_bias", 1}};

constexpr FixedKey kMiniMaxM2Fixed[] = {{"qk_norm_type", "'per_layer'"}, {"mtp_transformer_layers", "1"}};

// Widths that latent attention has from its own keys.
constexpr std::string_view kLatentIgnored[] = {"head_dim", "qk_head_dim", "num_key_value_heads"};
constexpr std::string_view kGptOssIgnored[] = {"experts_per_token", "initial_context_length", "swiglu_limit"};
constexpr std::string_view kMiniMaxIgnored[] = {"rotary_dim", "postnorm", "shared_moe_mode", "block_size"};
constexpr std::string_view kMiniMaxM2Ignored[] = {"rotary_dim", "use_mtp", "shared_moe_mode"};
constexpr std::string_view kDbrxIgnored[] = {"attn_config.tie_word_embeddings", "ffn_config.tie_word_embeddings",
                                             "attn_config.model_type",          "ffn_config.model_type",
                                             "attn_config.torch_dtype",         "ffn_config.torch_dtype"};
constexpr std::string_view kLlama4Ignored[] = {"attn_temperature_tuning", "floor_scale", "attn_scale",
                                               "for_llm_compressor"};
constexpr std::string_view kJambaIgnored[] = {"use_mamba_kernels", "num_logits_to_keep"};

constexpr ModelFamily deepseek(std::string_view name) {
  return {.name = name,
          .experts = "n_routed_experts",
          .hidden = "moe_intermediate_size",
          .dense_hidden = "intermediate_size",
          .first_dense = "first_k_dense_replace",
          .step = "moe_layer_freq",
          .shared_count = "n_shared_experts",
          .latent = true,
          .mtp = "num_nextn_predict_layers",
          .always_selection_bias = true,
          .sigmoid_gate = true,
          .defaults = kDeepseek3Defaults,
          .ignored = kLatentIgnored};
}

constexpr ModelFamily deepseek_v2() {
  ModelFamily family = deepseek("deepseek_v2");
  family.always_selection_bias = false;
  family.sigmoid_gate = false;
  family.defaults = kDeepseekDefaults;
  return family;
}

constexpr ModelFamily qwen(std::string_view name) {
  return {.name = name,
          .hidden = "moe_intermediate_size",
          .dense_hidden = "intermediate_size",
          .step = "decoder_sparse_step",
          .dense_list = "mlp_only_layers",
          .last_of_step = true,
          .mixers = MixerRule::use_window_key};
}

constexpr ModelFamily qwen2_moe() {
  ModelFamily family = qwen("qwen2_moe");
  family.shared_hidden = "shared_expert_intermediate_size";
  family.shared_gate = true;
  family.attention_bias = "qkv_bias";
  family.output_bias = false;
  family.defaults = kQwen2Defaults;
  return family;
}

constexpr ModelFamily qwen3_moe() {
  ModelFamily family = qwen("qwen3_moe");
  family.qk_norm = QkNorm::head;
  family.defaults = kQwen3Defaults;
  return family;
}

constexpr ModelFamily qwen3_next() {
  ModelFamily family = qwen3_moe();
  family.name = "qwen3_next";
  family.shared_hidden = "shared_expert_intermediate_size";
  family.shared_gate = true;
  family.gated_attention = true;
  family.mixers = MixerRule::full_interval;
  family.linear = Mixer::gated_delta;
  family.defaults = kQwen3NextDefaults;
  return family;
}

constexpr ModelFamily minimax(std::string_view name, MixerRule mixers) {
  return {.name = name,
          .experts = "num_local_experts",
          .shared_hidden = "shared_intermediate_size",
          .mixers = mixers,
          .linear = Mixer::lightning,
          .defaults = kMiniMaxDefaults,
          .ignored = kMiniMaxIgnored};
}

constexpr std::array kFamilies{
    ModelFamily{.name = "mixtral", .experts = "num_local_experts", .attention_bias = {}, .defaults = kMixtralDefaults},
    qwen2_moe(),
    qwen3_moe(),
    qwen3_next(),
    deepseek_v2(),
    deepseek("deepseek_v3"),
    deepseek("kimi_k2"),
    ModelFamily{.name = "olmoe", .qk_norm = QkNorm::width, .defaults = kOlmoeDefaults},
    ModelFamily{.name = "gpt_oss",
                .experts = "num_local_experts",
                .mixers = MixerRule::alternating,
                .sinks = true,
                .router_bias = true,
                .expert_bias = true,
                .defaults = kGptOssDefaults,
                .ignored = kGptOssIgnored},
    ModelFamily{.name = "glm4_moe",
                .experts = "n_routed_experts",
                .hidden = "moe_intermediate_size",
                .dense_hidden = "intermediate_size",
                .first_dense = "first_k_dense_replace",
                .shared_count = "n_shared_experts",
                .qk_norm = QkNorm::head,
                .qk_norm_key = "use_qk_norm",
                .mtp = "num_nextn_predict_layers",
                .output_bias = false,
                .always_selection_bias = true,
                .sigmoid_gate = true,
                .defaults = kGlmDefaults},
    minimax("minimax", MixerRule::linear_odd),
    minimax("minimax_text_01", MixerRule::attn_type_list),
    minimax("minimax_m1", MixerRule::attn_type_list),
    ModelFamily{.name = "minimax_m2",
                .experts = "num_local_experts",
                .shared_hidden = "shared_intermediate_size",
                .mixers = MixerRule::attn_type_list,
                .qk_norm = QkNorm::width,
                .qk_norm_key = "use_qk_norm",
                .mtp = "num_mtp_modules",
                .selection_bias = "use_routing_bias",
                .sigmoid_gate = true,
                .defaults = kMiniMaxM2Defaults,
                .fixed = kMiniMaxM2Fixed,
                .ignored = kMiniMaxM2Ignored},
    ModelFamily{.name = "phimoe",
                .experts = "num_local_experts",
                .head_bias = "lm_head_bias",
                .norm_bias = true,
                .norm = Norm::layernorm,
                .defaults = kPhiDefaults},
    ModelFamily{.name = "granitemoe", .experts = "num_local_experts", .defaults = kGraniteDefaults},
    ModelFamily{.name = "dbrx",
                .model_dim = "d_model",
                .layers = "n_layers",
                .heads = "n_heads",
                .kv_heads = "attn_config.kv_n_heads",
                .head_dim = {},
                .length = "max_seq_len",
                .experts = "ffn_config.moe_num_experts",
                .top_k = "ffn_config.moe_top_k",
                .hidden = "ffn_config.ffn_hidden_size",
                .attention_bias = {},
                .norm = Norm::layernorm,
                .rope_theta = "attn_config.rope_theta",
                .defaults = kDbrxDefaults,
                .ignored = kDbrxIgnored},
    ModelFamily{.name = "llama4_text",
                .experts = "num_local_experts",
                .dense_hidden = "intermediate_size_mlp",
                .step = "interleave_moe_layer_step",
                .expert_list = "moe_layers",
                .last_of_step = true,
                .shared_is_one = true,
                .mixers = MixerRule::chunked,
                .qk_norm = QkNorm::weightless,
                .qk_norm_key = "use_qk_norm",
                .sigmoid_gate = true,
                .defaults = kLlama4Defaults,
                .ignored = kLlama4Ignored},
    ModelFamily{.name = "jamba",
                .dense_hidden = "intermediate_size",
                .step = "expert_layer_period",
                .offset = "expert_layer_offset",
                .mixers = MixerRule::attention_period,
                .linear = Mixer::mamba,
                .attention_bias = {},
                .rope_theta = {},
                .defaults = kJambaDefaults,
                .ignored = kJambaIgnored},
};

constexpr std::string_view kIgnored[] = {
    // training, and what is printed
    "architectures", "auto_map", "transformers_version", "use_cache", "pretraining_tp", "ep_size", "hidden_act",
    "ffn_act_fn", "attn_implementation", "use_bfloat16", "torchscript", "output_attentions", "output_hidden_states",
    "output_router_logits", "return_dict", "seq_aux", "aux_loss_alpha", "norm_topk_prob", "routed_scaling_factor",
    "clip_qkv", "moe_jitter_eps", "router_jitter_noise", "input_jitter_noise", "moe_loss_weight",
    "moe_normalize_expert_weights", "uniform_expert_assignment", "logits_scaling", "original_max_position_embeddings",
    "partial_rotary_factor", "chunk_size_feed_forward", "pruned_heads", "tf_legacy_loss", "quantization_config",
    "quantization", "compression_config",
    // classes of task heads
    "finetuning_task", "id2label", "label2id", "problem_type", "task_specific_params", "tokenizer_class", "prefix",
    "is_decoder", "is_encoder_decoder", "tie_encoder_decoder", "cross_attention_hidden_size", "add_cross_attention",
    // generation
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    "max_new_tokens"};

constexpr std::string_view kIgnoredEnds[] = {"_token_id", "_token_index",  "_token_ids",  "_eps",  "_dropout", "_pdrop",
                                             "_version",  "_range",        "_multiplier", "_coef", "_alpha",   "_beta",
                                             "_epsilon",  "_alpha_factor", "_beta_factor"};

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

bool is_ignored_key(std::string_view key) {
  if (key.starts_with("rope_scaling") || key.starts_with("rope_parameters.")) return true;
  const std::string_view leaf = key.substr(key.rfind('.') + 1);
  return leaf.starts_with('_') || std::ranges::find(kIgnored, leaf) != std::end(kIgnored) ||
         std::ranges::any_of(kIgnoredEnds, [&](std::string_view end) { return leaf.ends_with(end); });
}

}  // namespace moe
