// Settings of frameworks whose layers are made in Python: JSON of the arguments, and notes on the differences.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <ostream>

#include "commands/exchange/formats.h"
#include "commands/exchange/tuned_layer.h"
#include "moe/base/check.h"
#include "moe/base/json.h"
#include "moe/plan/pipeline.h"

namespace moe::exchange {
namespace {

// Writes the notes and the records' values, then `maker` (a function or class) and its arguments, then, if the
// framework has one, a configuration file that can replace them.
void write_arguments(const ExportOptions& options, const TunedLayer& tuned, std::string_view maker,
                     const Json& arguments, std::ostream& out, const Json& config = {}) {
  const CaseRecord& record = tuned.chosen.record;
  Json json{{"comment", tuned.notes},
            {"layer", tuned.name},
            {"schedule", record.schedule},
            {"degree_forward", record.degree_forward},
            {"degree_backward", record.degree_backward},
            {"total_s", tuned.chosen.seconds},
            {"fastest", {{"schedule", tuned.fastest.record.schedule}, {"total_s", tuned.fastest.seconds}}},
            {"call", maker},
            {"arguments", arguments}};
  if (!config.is_null()) json["config"] = config;
  out << document_text(json) << "\n";
  log_notes(options, tuned);
}

void note_gate(TunedLayer& tuned, std::string_view framework, std::initializer_list<std::string_view> has) {
  const std::string& gate = tuned.shape.layer.gate;
  if (std::ranges::find(has, gate) == has.end())
    tuned.notes.push_back(fmt::format("{} has no gate {}; its routing differs", framework, gate));
  if (tuned.shape.layer.shared_hidden > 0)
    tuned.notes.push_back(fmt::format("shared expert: a module of your own, {} -> {} -> {}, whose output is added",
                                      tuned.shape.layer.model_dim, tuned.shape.layer.shared_hidden,
                                      tuned.shape.layer.model_dim));
  if (tuned.shape.layer.z_loss > 0) tuned.notes.push_back(fmt::format("{} has no z-loss", framework));
}

}  // namespace

// Arguments of tutel.moe.moe_layer. If devices share an expert, the number of experts per device is negative.
void write_tutel(const ExportOptions& options, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, commands::framework_of("tutel"));
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  const bool dropless = !l.capacity_factor.has_value(), sharded = p.esp > 1;
  const int64_t local = l.experts / p.ep;
  note_gate(tuned, "Tutel", {"gshard", "switch", "xmoe"});
  if (tuned.shape.rounding != Rounding::tutel)
    tuned.notes.push_back(fmt::format("rows were rounded as {}; Tutel rounds as --capacity-rounding tutel",
                                      name_of(tuned.shape.rounding)));
  if (p.mp > 1)
    tuned.notes.push_back(fmt::format("Tutel does not shard attention, which the plan shards over {} MP ranks", p.mp));
  Json experts{{"type", is_gated(l.ffn) ? "llama_ffn" : "ffn"},
               {"num_experts_per_device", sharded && local == 1 ? -int64_t{p.esp} : local},
               {"hidden_size_per_expert", l.hidden}};
  if (!is_gated(l.ffn)) experts["has_fc1_bias"] = experts["has_fc2_bias"] = l.bias;
  const Json arguments{
      {"gate_type",
       {{"type", l.gate == "xmoe" ? "cosine_top" : "top"},
        {"k", l.top_k},
        {"capacity_factor", dropless ? 0.0 : *l.capacity_factor}}},
      {"model_dim", l.model_dim},
      {"experts", experts},
      {"a2a_ffn_overlap_degree", tuned.chosen.record.degree_forward},
      {"parallel_type", sharded && local == 1 ? "model" : "data"},
      {"use_2dh", l.dispatcher == "2dh"},
  };
  write_arguments(options, tuned, "tutel.moe.moe_layer", arguments, out);
}

// Sets a value at a path of keys from the root, joined by dots.
void set_key(Json& config, std::string_view keys, Json value) {
  std::string pointer = fmt::format("/{}", keys);
  std::ranges::replace(pointer, '.', '/');
  config[Json::json_pointer(pointer)] = std::move(value);
}

// Returns DeepSpeed's configuration of groups, micro-batches and experts for a Hugging Face model, and adds notes on
// its requirements and differences.
Json auto_ep(TunedLayer& tuned) {
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  std::vector<std::string>& notes = tuned.notes;
  notes.emplace_back(
      "config: AutoEP, in the place of the call; it needs DeepSpeed 0.19.2, Transformers 5 and a model of Hugging Face "
      "that it knows (mixtral, qwen3_moe, qwen3_5_moe, deepseek_v2, deepseek_v3), or the patterns of its names");
  if (l.capacity_factor) notes.emplace_back("config: AutoEP drops no token, whatever the capacity factor");
  if (p.esp > 1) notes.push_back(fmt::format("config: AutoEP has whole experts on a rank, not shards of {}", p.esp));
  if (p.mp > 1)
    notes.push_back(fmt::format("config: AutoEP of 0.19 does not run beside tensor parallelism, here of {}", p.mp));
  Json config{{"expert_parallel", {{"enabled", true}}}};
  const auto set = [&](std::string_view flag, int64_t value) {
    const auto names = commands::framework_of("deepspeed").formats.front().names;
    set_key(config, std::ranges::find(names, flag, &commands::SettingName::flag)->theirs, value);
  };
  set("--ep", p.ep);
  if (p.mp > 1) set("--mp", p.mp);
  set("--batch", l.batch);
  set("--micro-batches", tuned.model.micro_batches);
  set("--global-batch", l.batch * tuned.model.micro_batches * p.dp);
  if (p.zero > 0) set("--zero", p.zero);
  return config;
}

// Arguments of deepspeed.moe.layer.MoE; the caller provides the expert's module.
void write_deepspeed(const ExportOptions& options, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, commands::framework_of("deepspeed"));
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  const double factor = l.capacity_factor.value_or(1.0);
  note_gate(tuned, "DeepSpeed", {"gshard", "switch"});
  if (l.top_k > 2)
    tuned.notes.push_back(fmt::format("k is {}: DeepSpeed releases without top-k gates support only 1 and 2", l.top_k));
  if (tuned.shape.rounding != Rounding::deepspeed)
    tuned.notes.push_back(fmt::format("rows were rounded as {}; DeepSpeed rounds as --capacity-rounding deepspeed",
                                      name_of(tuned.shape.rounding)));
  if (l.dispatcher != "alltoall")
    tuned.notes.push_back(fmt::format("DeepSpeed has no dispatcher {}; it uses one AlltoAll", l.dispatcher));
  tuned.notes.push_back(fmt::format("expert: a module of your own, {} -> {} -> {}{}{}", l.model_dim, l.hidden / p.esp,
                                    l.model_dim, l.bias ? ", with biases" : "",
                                    p.esp > 1 ? fmt::format(", a shard of {} of the expert", p.esp) : ""));
  Json arguments{{"hidden_size", l.model_dim},
                 {"num_experts", l.experts},
                 {"ep_size", p.ep},
                 {"k", l.top_k},
                 {"capacity_factor", factor},
                 {"eval_capacity_factor", factor},
                 {"min_capacity", tuned.shape.rounding == Rounding::deepspeed ? 4 : 0},
                 {"drop_tokens", l.capacity_factor.has_value()},
                 {"use_rts", false},
                 {"use_tutel", l.order == "tutel" && l.top_k == 1},
                 {"enable_expert_tensor_parallelism", p.esp > 1}};
  if (l.top_k == 2) {
    arguments["top2_2nd_expert_sampling"] = false;  // otherwise the second expert is drawn at random
    tuned.notes.emplace_back("top2_2nd_expert_sampling: releases of DeepSpeed before 0.14 lack it; leave it out there");
  }
  write_arguments(options, tuned, "deepspeed.moe.layer.MoE", arguments, out, auto_ep(tuned));
}

// Arguments of Megatron-Core and of FSMoE's published layer, which is a modification of it: a bash array to source.

namespace {

constexpr int64_t kVocabularyStep = 128;  // default of --make-vocab-size-divisible-by

class Arguments {
 public:
  void add(std::string_view flag) { lines_.emplace_back(flag); }
  template <class Value>
  void add(std::string_view flag, const Value& value) {
    lines_.push_back(fmt::format("{} {}", flag, value));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// Returns which layers have experts as a Python expression: "([0]*2+[1]*2+[0]*1+[1]*1)" for "001101".
std::string layer_frequency(std::string_view moe_layers) {
  std::string text;
  for (size_t begin = 0; begin < moe_layers.size();) {
    const size_t end = std::min(moe_layers.find_first_not_of(moe_layers[begin], begin), moe_layers.size());
    text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", moe_layers[begin], end - begin);
    begin = end;
  }
  return fmt::format("\"({})\"", text);
}

// Returns which layers have a window: N if each N-th alone has none, else a list.
std::string window_frequency(const LayerSet& whole) {
  const std::string layers = windowed_pattern(whole, static_cast<int>(std::ssize(whole.by_layer)));
  const size_t period = std::min(layers.find('0'), layers.size()) + 1;
  bool is_regular = true;
  for (size_t i = 0; i < layers.size(); ++i) is_regular &= (layers[i] == '0') == ((i + 1) % period == 0);
  return is_regular ? fmt::format("{}", period) : layer_frequency(layers);
}

// Returns a parameter of the record's model; 1 if the record is of a layer.
int64_t recorded(const CaseRecord& record, const char* name) {
  return record.parameters.has(name) ? record.parameters.whole(name, record.where) : 1;
}

bool recorded_yes(const CaseRecord& record, const char* name) {
  return record.parameters.has(name) && record.parameters.text(name, record.where) == "yes";
}

// Adds Megatron-Core's setting for a flag of tune.
void add_setting(std::string_view flag, const auto& value, Arguments& a) {
  a.add(commands::setting_of(commands::framework_of("megatron").formats.front(), flag, fmt::format("{}", value)));
}

// Adds the model's parts besides its layers. Megatron-Core ties the output projection by default.
void add_ends(const CaseRecord& record, Arguments& a) {
  if (record.parameters.has("vocabulary")) {
    a.add("--vocab-size", recorded(record, "vocabulary"));
    if (!recorded_yes(record, "tied_embedding")) a.add("--untie-embeddings-and-output-weights");
  }
}

// Adds latent attention. Its latents only have norms with --qk-layernorm, and --rope-type yarn is the default.
void add_latent(const LayerShape& l, Arguments& a) {
  a.add("--multi-latent-attention");
  if (l.q_lora_rank > 0) a.add("--q-lora-rank", l.q_lora_rank);
  a.add("--kv-lora-rank", l.kv_lora_rank);
  a.add("--qk-head-dim", l.qk_nope_head_dim);
  a.add("--qk-pos-emb-head-dim", l.qk_rope_head_dim);
  a.add("--v-head-dim", l.v_head_dim);
  a.add("--rope-type", "rope");
  a.add("--qk-layernorm");
}

// Megatron-Core has biases of all projections and of the router, or of the queries, keys and values, or none.
bool has_all_biases(const LayerShape& l, const ModelTraits& traits) {
  return l.bias || (traits.qkv_bias && traits.output_bias && traits.expert_bias);
}

void add_biases(const LayerShape& l, const ModelTraits& traits, Arguments& a) {
  if (has_all_biases(l, traits)) return;
  a.add("--disable-bias-linear");
  if (traits.qkv_bias) a.add("--add-qkv-bias");
}

// The activation of gpt-oss is clamped, and its linear part is one larger.
void add_activation(const LayerShape& l, const ModelTraits& traits, Arguments& a) {
  if (!is_gated(l.ffn)) return;
  if (traits.swiglu_limit == 0) return a.add("--swiglu");
  a.add("--quick-geglu");
  a.add("--glu-linear-offset", 1);
  a.add("--activation-func-clamp-value", traits.swiglu_limit);
}

void add_model(const TunedLayer& tuned, int64_t ffn_hidden, Arguments& a) {
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  if (tuned.model.layers > 1) a.add("--num-layers", tuned.model.layers);
  a.add("--hidden-size", l.model_dim);
  a.add("--ffn-hidden-size", ffn_hidden);
  a.add("--num-attention-heads", l.heads);
  if (is_latent(l))
    add_latent(l, a);
  else
    a.add("--kv-channels", head_width(l));
  if (l.kv_heads < l.heads) a.add("--group-query-attention");
  if (l.kv_heads < l.heads) a.add("--num-query-groups", l.kv_heads);
  if (l.window > 0) a.add("--window-size", fmt::format("{},0", l.window - 1));  // tokens to the left and to the right
  if (!tuned.model.whole.by_layer.empty()) a.add("--window-attn-skip-freq", window_frequency(tuned.model.whole));
  if (tuned.traits.attention_sinks) a.add("--softmax-type", "learnable");
  if (tuned.traits.attention_gate) a.add("--attention-output-gate");
  a.add("--position-embedding-type", l.rope_theta > 0 ? "rope" : "learned_absolute");
  if (l.rope_theta > 0) a.add("--rotary-base", std::llround(l.rope_theta));
  if (l.rope_theta > 0 && tuned.traits.rotary_share < 1) a.add("--rotary-percent", tuned.traits.rotary_share);
  add_ends(tuned.chosen.record, a);
  if (tuned.traits.qk_norm && !is_latent(l)) a.add("--qk-layernorm");
  a.add("--seq-length", l.seq);
  a.add("--max-position-embeddings", l.seq);
  add_setting("--batch", l.batch, a);
  add_setting("--global-batch", l.batch * p.dp * tuned.model.micro_batches, a);
  a.add("--normalization", l.norm == Norm::rmsnorm ? "RMSNorm" : "LayerNorm");
  add_biases(l, tuned.traits, a);
  a.add("--attention-dropout", 0);  // the default is not 0
  a.add("--hidden-dropout", 0);
  add_activation(l, tuned.traits, a);
  if (l.dtype == DType::bfloat16) a.add("--bf16");
  if (l.dtype == DType::float16) a.add("--fp16");
  add_setting("--mp", p.mp, a);
  if (p.mp > 1) a.add("--sequence-parallel");
  if (p.cp > 1) add_setting("--cp", p.cp, a);
  if (p.cp > 1) add_setting("--cp-exchange", name_of(p.cp_exchange), a);
  add_setting("--pp", p.pp, a);
  if (tuned.model.virtual_stages > 1) add_setting("--virtual-stages", tuned.model.virtual_stages, a);
  if (l.first_stage_layers > 0) add_setting("--first-stage-layers", l.first_stage_layers, a);
  if (l.last_stage_layers > 0) add_setting("--last-stage-layers", l.last_stage_layers, a);
  add_setting("--ep", p.ep, a);
}

// Adds the load-balancing loss: the layer's own, else the one that its model is trained with.
void add_balance(const LayerShape& l, const ModelTraits& traits, Arguments& a) {
  const double coefficient = l.aux_loss > 0 ? l.aux_loss : traits.balance_loss;
  const bool by_sample = l.aux_loss == 0 && traits.balance_by_sample;
  a.add("--moe-router-load-balancing-type", coefficient == 0 ? "none" : by_sample ? "seq_aux_loss" : "aux_loss");
  if (coefficient > 0) a.add("--moe-aux-loss-coeff", coefficient);
}

void add_moe(const TunedLayer& tuned, Arguments& a) {
  const LayerShape& l = tuned.shape.layer;
  a.add("--num-experts", l.experts);
  a.add("--moe-router-topk", l.top_k);
  add_balance(l, tuned.traits, a);
  if (l.z_loss > 0) a.add("--moe-z-loss-coeff", l.z_loss);
  a.add("--moe-token-dispatcher-type", "alltoall");
  if (!l.capacity_factor) return;
  a.add("--moe-expert-capacity-factor", *l.capacity_factor);
  a.add("--moe-pad-expert-input-to-capacity");
}

// Keeps a comment on one line, whatever a name contains.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  return text;
}

void write_array(const ExportOptions& options, const TunedLayer& tuned, const Arguments& arguments, std::ostream& out) {
  out << fmt::format("# {}\n", one_line(tuned.name));
  for (const std::string& note : tuned.notes) out << fmt::format("# {}\n", one_line(note));
  out << "MOE_ARGS=(\n";
  for (const std::string& line : arguments.lines()) out << fmt::format("    {}\n", line);
  out << ")\n";
  log_notes(options, tuned);
}

void note_differences(TunedLayer& tuned, std::string_view framework, std::initializer_list<std::string_view> gates) {
  const LayerShape& l = tuned.shape.layer;
  if (std::ranges::find(gates, l.gate) == gates.end())
    tuned.notes.push_back(fmt::format("{} has no gate {}; its routing differs", framework, l.gate));
  if (l.dispatcher != "alltoall")
    tuned.notes.push_back(fmt::format("{} has no dispatcher {}; the export uses alltoall", framework, l.dispatcher));
  if (tuned.shape.rounding != Rounding::megatron)
    tuned.notes.push_back(fmt::format("rows were rounded as {}; {} rounds as --capacity-rounding megatron",
                                      name_of(tuned.shape.rounding), framework));
  if (l.dtype == DType::float64)
    tuned.notes.push_back(fmt::format("{} has no float64; the export uses float32", framework));
  if (l.rope_theta != std::round(l.rope_theta))
    tuned.notes.push_back(fmt::format("--rotary-base takes whole numbers: {} was planned", l.rope_theta));
  const CaseRecord& record = tuned.chosen.record;
  if (!record.parameters.has("vocabulary"))
    tuned.notes.emplace_back(
        "set --vocab-size and --untie-embeddings-and-output-weights yourself: the record has layers only");
  else if (const int64_t words = recorded(record, "vocabulary"), step = kVocabularyStep * tuned.shape.parallel.mp;
           words % step != 0)
    tuned.notes.push_back(fmt::format("{} pads the vocabulary of {} to a multiple of {}", framework, words, step));
  if (tuned.traits.qk_norm)
    tuned.notes.emplace_back("--qk-layernorm follows the model: times and memory here leave that norm out");
}

// Adds how Megatron-Core scores and chooses experts.
void add_router(const LayerShape& l, const ParallelShape& p, const ModelTraits& traits, Arguments& a) {
  // Weights are probabilities among all experts; otherwise among the chosen ones, where a single one would have 1.
  if (l.gate != "sigmoid" && (l.top_k == 1 || l.gate == "switch")) a.add("--moe-router-pre-softmax");
  if (l.gate == "sigmoid") a.add("--moe-router-score-function", "sigmoid");
  if (traits.routed_scale != 1) a.add("--moe-router-topk-scaling-factor", traits.routed_scale);
  if (traits.selection_bias && l.gate == "sigmoid") a.add("--moe-router-enable-expert-bias");
  if (l.node_limit == 0 || l.node_limit >= l.top_k) return;  // a token's k experts are in at most k groups
  const int64_t groups = l.router_groups > 0 ? l.router_groups : expert_nodes(p);
  if (groups == 1) return;
  a.add("--moe-router-num-groups", groups);
  a.add("--moe-router-group-topk", std::min(l.node_limit, groups));
}

// Notes the properties of a published model that Megatron-Core's settings don't say, or that plans leave out.
void note_model(TunedLayer& tuned) {
  const LayerShape& l = tuned.shape.layer;
  const ModelTraits& traits = tuned.traits;
  const auto note = [&](bool is_so, std::string text) {
    if (is_so) tuned.notes.push_back(std::move(text));
  };
  note((l.gate == "gshard" || l.gate == "topk") && l.top_k == 1,
       fmt::format("{} weighs the one expert of a token by 1, Megatron-Core by its probability", l.gate));
  note(traits.unnormalized_scores,
       "norm_topk_prob is false: Megatron-Core divides the weights of sigmoids by their sum");
  note(traits.selection_bias && l.gate != "sigmoid",
       "the model has a bias that corrects the choice of experts: --moe-router-enable-expert-bias needs sigmoids");
  const bool is_model = tuned.chosen.record.parameters.has("origin");
  note(is_model && l.aux_loss == 0 && traits.balance_loss == 0 && !traits.selection_bias,
       "set --moe-router-load-balancing-type yourself: config.json has no coefficient of a load-balancing loss");
  note(l.aux_loss == 0 && traits.balance_loss > 0 && !traits.balance_by_sample,
       "--moe-aux-loss-coeff follows the model: Megatron-Core's loss is a mean over k in each layer, Transformers' a "
       "sum over k, once for all layers");
  note(l.router_groups > 0 && l.gate == "switch" && l.top_k / l.node_limit > 1,
       fmt::format(
           "--moe-router-group-topk: Megatron-Core ranks groups by the sum of their best {} scores, DeepSeek-V2 by "
           "the best one",
           l.top_k / std::max<int64_t>(l.node_limit, 1)));
  note(traits.mtp_modules > 0, "--mtp-num-layers follows the model: times and memory here leave these modules out");
  note(traits.attention_sinks, "--softmax-type follows the model: it has attention sinks, which times here leave out");
  note(traits.attention_gate, "--attention-output-gate follows the model: times and memory here leave that gate out");
  note(traits.shared_expert_gate, "--moe-shared-expert-gate follows the model: times here leave that gate out");
  note(!traits.other_mixers.empty(),
       fmt::format("the model has {}: planned and written as attention over all tokens", traits.other_mixers));
  note(!traits.rope_scaling.empty(),
       fmt::format("set {} and its factors yourself: the model's rope_scaling is {}",
                   is_latent(l) ? "--rope-type" : "--position-embedding-type", traits.rope_scaling));
  const bool all_biases = has_all_biases(l, traits);
  note(traits.output_bias && !all_biases, "the output projection of attention has a bias: --add-qkv-bias adds none");
  note(traits.expert_bias && !all_biases, "the model's experts have biases: --disable-bias-linear leaves them out");
  note(traits.expert_bias && all_biases && tuned.shape.parallel.esp > 1,
       fmt::format("Megatron-Core refuses experts with biases over ETP {}", tuned.shape.parallel.esp));
}

void write_megatron_arguments(const ExportOptions& options, bool overlaps, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, commands::framework_of(overlaps ? "megatron-overlap" : "megatron"));
  const LayerShape& l = tuned.shape.layer;
  note_differences(tuned, "Megatron-Core", {"gshard", "switch", "topk", "sigmoid"});
  note_model(tuned);
  Arguments arguments;
  add_model(tuned, tuned.dense_hidden > 0 ? tuned.dense_hidden : l.hidden, arguments);
  if (!tuned.moe_layers.empty()) arguments.add("--moe-layer-freq", layer_frequency(tuned.moe_layers));
  if (tuned.traits.mtp_modules > 0) arguments.add("--mtp-num-layers", tuned.traits.mtp_modules);
  add_setting("--esp", tuned.shape.parallel.esp, arguments);
  arguments.add("--moe-ffn-hidden-size", l.hidden);
  if (l.shared_hidden > 0) arguments.add("--moe-shared-expert-intermediate-size", l.shared_hidden);
  if (tuned.traits.shared_expert_gate) arguments.add("--moe-shared-expert-gate");
  add_moe(tuned, arguments);
  add_router(l, tuned.shape.parallel, tuned.traits, arguments);
  // Releases before 0.16 refuse this flag for other types.
  if (l.experts > tuned.shape.parallel.ep && l.dtype == DType::bfloat16) arguments.add("--moe-grouped-gemm");
  if (const int zero = tuned.shape.parallel.zero; zero > 0) add_setting("--zero", zero, arguments);
  if (const Recompute recompute = tuned.shape.parallel.recompute; recompute != Recompute::none)
    add_setting("--recompute", name_of(recompute), arguments);
  if (overlaps) {
    arguments.add("--overlap-moe-expert-parallel-comm");
    arguments.add("--delay-wgrad-compute");
  }
  write_array(options, tuned, arguments, out);
}

}  // namespace

void write_megatron(const ExportOptions& options, std::ostream& out) { write_megatron_arguments(options, false, out); }

void write_megatron_overlap(const ExportOptions& options, std::ostream& out) {
  write_megatron_arguments(options, true, out);
}

namespace {

void write_yaml(const Json& table, const std::string& indent, std::ostream& out) {
  for (const auto& [key, value] : table.items()) {
    out << indent << key << ':';
    if (value.is_object()) {
      out << '\n';
      write_yaml(value, indent + "  ", out);
    } else {
      out << ' ' << value.get<std::string>() << '\n';
    }
  }
}

// Writes groups, micro-batches and what a rank keeps as YAML that overrides a recipe, which has the model.
void write_overrides(const ExportOptions& options, std::string_view format_name, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, commands::framework_of("megatron"));
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  const auto& format =
      *std::ranges::find(commands::framework_of("megatron").formats, format_name, &commands::SettingsFormat::name);
  Json keys;
  const auto set = [&](std::string_view flag, const auto& value) {
    for (const auto& [name, theirs] : commands::settings_of(format, flag, fmt::format("{}", value)))
      set_key(keys, name, theirs);
  };
  set("--mp", p.mp);
  const std::string mp(format.names.front().theirs);
  if (p.mp > 1) set_key(keys, mp.substr(0, mp.rfind('.') + 1) + "sequence_parallel", "true");
  if (p.cp > 1) {
    set("--cp", p.cp);
    set("--cp-exchange", name_of(p.cp_exchange));
  }
  set("--pp", p.pp);
  if (tuned.model.virtual_stages > 1) set("--virtual-stages", tuned.model.virtual_stages);
  if (l.first_stage_layers > 0) set("--first-stage-layers", l.first_stage_layers);
  if (l.last_stage_layers > 0) set("--last-stage-layers", l.last_stage_layers);
  set("--ep", p.ep);
  set("--esp", p.esp);
  set("--batch", l.batch);
  set("--global-batch", l.batch * p.dp * tuned.model.micro_batches);
  set("--zero", p.zero);
  set("--recompute", name_of(p.recompute));
  out << fmt::format("# {}\n", one_line(tuned.name));
  for (const std::string& note : tuned.notes) out << fmt::format("# {}\n", one_line(note));
  write_yaml(keys, "", out);
  log_notes(options, tuned);
}

}  // namespace

void write_megatron_bridge(const ExportOptions& options, std::ostream& out) {
  write_overrides(options, "Megatron-Bridge", out);
}

void write_nemo(const ExportOptions& options, std::ostream& out) { write_overrides(options, "NeMo", out); }

// The published layer cuts rows in the same way, requires alltoall and a capacity factor, and shards experts over TP.
void write_fsmoe(const ExportOptions& options, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, commands::framework_of("fsmoe"));
  const LayerShape& l = tuned.shape.layer;
  note_differences(tuned, "FSMoE's published layer", {"gshard", "switch"});
  Arguments arguments;
  add_model(tuned, l.hidden, arguments);
  add_moe(tuned, arguments);
  arguments.add("--pipeline-degree", tuned.chosen.record.degree_forward);
  arguments.add("--bp-pipeline-degree", tuned.chosen.record.degree_backward);
  write_array(options, tuned, arguments, out);
}

}  // namespace moe::exchange
