// Settings of frameworks whose layers are made in Python: JSON of the arguments, and beside them what they don't say.
#include <algorithm>
#include <ostream>

#include "exchange/formats.h"
#include "exchange/tuned_layer.h"
#include "moe/base/check.h"
#include "moe/base/json.h"

namespace moe::exchange {
namespace {

// The arguments below `maker`, a function or class; above them what the records say; behind them a configuration file
// that stands in their place, where the framework has one.
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
    tuned.notes.push_back(fmt::format("the gate {} is not among {}'s: its routing is another", gate, framework));
  if (tuned.shape.layer.shared_hidden > 0)
    tuned.notes.push_back(fmt::format("shared expert: a module of your own, {} -> {} -> {}, whose output is added",
                                      tuned.shape.layer.model_dim, tuned.shape.layer.shared_hidden,
                                      tuned.shape.layer.model_dim));
  if (tuned.shape.layer.z_loss > 0) tuned.notes.push_back(fmt::format("{} has no z-loss", framework));
}

}  // namespace

// Arguments of tutel.moe.moe_layer. Devices that share an expert are a negative number of experts a device.
void write_tutel(const ExportOptions& options, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, verbs::framework_of("tutel"));
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  const bool dropless = !l.capacity_factor.has_value(), sharded = p.esp > 1;
  const int64_t local = l.experts / p.ep;
  note_gate(tuned, "Tutel", {"gshard", "switch", "xmoe"});
  if (sharded && local > 1)
    tuned.notes.push_back(
        fmt::format("Tutel shards one expert over its devices alone: these arguments say {} whole experts on each "
                    "of {} devices",
                    local, p.ep));
  if (tuned.shape.rounding != Rounding::tutel)
    tuned.notes.push_back(fmt::format("rows were rounded as {}, Tutel rounds as --capacity-rounding tutel",
                                      name_of(tuned.shape.rounding)));
  if (p.mp > 1) tuned.notes.push_back(fmt::format("attention over {} MP ranks is not Tutel's", p.mp));
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

// Returns the part of DeepSpeed's configuration that spreads the experts of a Hugging Face model, and notes what that
// needs and what it does otherwise.
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
  Json config{{"expert_parallel", {{"enabled", true}, {"autoep_size", p.ep}}}};
  if (p.zero > 0) config["zero_optimization"] = {{"stage", p.zero}};
  return config;
}

// Arguments of deepspeed.moe.layer.MoE; the expert's module is the caller's.
void write_deepspeed(const ExportOptions& options, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, verbs::framework_of("deepspeed"));
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  const double factor = l.capacity_factor.value_or(1.0);
  note_gate(tuned, "DeepSpeed", {"gshard", "switch"});
  if (l.top_k > 2)
    tuned.notes.push_back(fmt::format("k is {}: releases of DeepSpeed before top-k gates have 1 and 2 alone", l.top_k));
  if (tuned.shape.rounding != Rounding::deepspeed)
    tuned.notes.push_back(fmt::format("rows were rounded as {}, DeepSpeed rounds as --capacity-rounding deepspeed",
                                      name_of(tuned.shape.rounding)));
  if (l.dispatcher != "alltoall")
    tuned.notes.push_back(fmt::format("the dispatcher {} is not DeepSpeed's, which has one AlltoAll", l.dispatcher));
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
    arguments["top2_2nd_expert_sampling"] = false;  // else the second expert is drawn at random
    tuned.notes.emplace_back("top2_2nd_expert_sampling: releases of DeepSpeed before 0.14 lack it; leave it out there");
  }
  write_arguments(options, tuned, "deepspeed.moe.layer.MoE", arguments, out, auto_ep(tuned));
}

}  // namespace moe::exchange
