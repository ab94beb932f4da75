#include "commands/model.h"

#include <fmt/ranges.h>

#include "moe/base/json.h"
#include "moe/shape/hf_config.h"

namespace moe::commands {
namespace {

/// Returns a number of parameters as text: "30.53 B", "912.3 M".
std::string count_text(double count) {
  return count >= 1e9 ? fmt::format("{:.2f} B", count / 1e9) : fmt::format("{:.1f} M", count / 1e6);
}

std::string flops_text(double flops) { return fmt::format("{:.4g} GFLOP", flops / 1e9); }

std::string describe_attention(const PublishedModel& m) {
  if (const auto& l = m.latent)
    return fmt::format("{} heads, latent: ranks {} of queries, {} of keys and values; a head {} + {} rotary, values {}",
                       m.heads, l->query_rank, l->kv_rank, l->nope_dim, l->rope_dim, l->value_dim);
  return fmt::format("{} heads of {}, {} of keys and values", m.heads, m.head_dim, m.kv_heads);
}

std::string describe_experts(const PublishedModel& m) {
  std::string text = m.experts > 0 ? fmt::format("{} of width {}, top {}", m.experts, m.hidden, m.top_k)
                                   : fmt::format("one a node, of width {}, top {}", m.hidden, m.top_k);
  if (m.shared_hidden > 0) text += fmt::format("; shared expert of width {}", m.shared_hidden);
  return text;
}

std::string describe_mixers(const PublishedModel& m) {
  std::string text;
  for (const Mixer mixer : {Mixer::attention, Mixer::windowed, Mixer::lightning, Mixer::gated_delta, Mixer::mamba})
    if (const int layers = m.count_of(mixer); layers > 0)
      text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", layers, m.name_of(mixer),
                          mixer == Mixer::windowed ? fmt::format(" of {} tokens", m.window) : "");
  return text;
}

// Returns a whole number in JSON if the count is exact.
Json exact(double count) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  return count < kExact ? Json(static_cast<int64_t>(count)) : Json(count);
}

Json mixers_json(const PublishedModel& m) {
  Json json = Json::array();
  for (const Mixer mixer : m.mixers) json.push_back(m.name_of(mixer));
  return json;
}

Json to_json(const PublishedModel& m, const Model& planned) {
  const ModelCounts counts = count_model(m), of_plans = count_model(published_model(planned));
  const bool counted = m.experts > 0;
  const auto or_null = [&](double count) { return counted ? exact(count) : Json(); };
  Json json{{"name", m.name}, {"file", m.file}, {"origin", planned.origin.empty() ? planned.source : planned.origin}};
  json["layers"] = m.layers();
  json["dense_layers"] = m.dense_count();
  json["moe_layers"] = m.layers() - m.dense_count();
  json["mixers"] = mixers_json(m);
  for (const auto& [key, value] : {std::pair<const char*, int64_t>{"model_dim", m.model_dim},
                                   {"heads", m.heads},
                                   {"kv_heads", m.kv_heads},
                                   {"head_dim", m.head_dim},
                                   {"experts", m.experts},
                                   {"top_k", m.top_k},
                                   {"hidden", m.hidden},
                                   {"shared_hidden", m.shared_hidden},
                                   {"dense_hidden", m.dense_hidden},
                                   {"vocabulary", m.vocabulary},
                                   {"window", m.window},
                                   {"mtp_modules", m.mtp_modules},
                                   {"seq", m.seq}})
    json[key] = value;
  const LatentAttention latent = m.latent.value_or(LatentAttention{});
  for (const auto& [key, value] : {std::pair<const char*, int64_t>{"q_lora_rank", latent.query_rank},
                                   {"kv_lora_rank", latent.kv_rank},
                                   {"qk_nope_head_dim", latent.nope_dim},
                                   {"qk_rope_head_dim", latent.rope_dim},
                                   {"v_head_dim", latent.value_dim}})
    if (m.latent) json[key] = value;
  json["tied_embedding"] = m.tied_embedding;
  json["parameters"] = or_null(counts.parameters);
  json["active_parameters"] = or_null(counts.active);
  json["embedding_parameters"] = exact(counts.embedding);
  json["mtp_parameters"] = or_null(counts.mtp);
  json["planned_parameters"] = or_null(of_plans.parameters);
  json["forward_flops_per_token"] = or_null(counts.forward_flops);
  json["flops_per_token"] = or_null(3 * counts.forward_flops);
  json["left_out"] = unplanned_properties(m);
  json["ignored_keys"] = m.ignored_keys;
  json["toml"] = model_toml(planned);
  return json;
}

void print_line(std::string_view name, const std::string& text) { fmt::print("  {:<12} {}\n", name, text); }

void print_counts(const PublishedModel& m, const Model& planned) {
  const ModelCounts counts = count_model(m), of_plans = count_model(published_model(planned));
  print_line("parameters", fmt::format("{}{}; plans have {}", count_text(counts.parameters),
                                       m.vocabulary > 0 ? "" : " without its ends, whose vocabulary is unknown",
                                       count_text(of_plans.parameters)));
  print_line("active", fmt::format("{}, {} without the embedding", count_text(counts.active),
                                   count_text(counts.active - counts.embedding)));
  if (counts.mtp > 0) print_line("MTP modules", fmt::format("{} more, not counted above", count_text(counts.mtp)));
  print_line("FLOPs", fmt::format("{} a token forward, {} forward and backward, at L = {}",
                                  flops_text(counts.forward_flops), flops_text(3 * counts.forward_flops), m.seq));
}

}  // namespace

int run_model(const ModelOptions& options) {
  const std::string path = find_model_file(options.model);
  const bool published = is_hf_config(path);
  const Model file = published ? Model{} : read_model(path);
  const PublishedModel m = published ? read_hf_config(path) : published_model(file);
  const Model planned = published ? planned_model(m) : file;
  if (options.json) {
    fmt::print("{}\n", document_text(to_json(m, planned)));
    return 0;
  }
  fmt::print("{}: {}\n", m.name, published ? planned.origin + ", " + m.file : m.file);
  print_line("layers",
             fmt::format("{}, {} with experts, {} dense{}", m.layers(), m.layers() - m.dense_count(), m.dense_count(),
                         m.dense_hidden > 0 ? fmt::format(" of width {}", m.dense_hidden) : ""));
  print_line("mixers", describe_mixers(m));
  print_line("width", fmt::format("{}, vocabulary {}{}", m.model_dim, m.vocabulary, m.tied_embedding ? ", tied" : ""));
  print_line("attention", describe_attention(m));
  print_line("experts", describe_experts(m));
  if (m.experts > 0) print_counts(m, planned);
  const std::vector<std::string> left_out = unplanned_properties(m);
  if (!left_out.empty()) fmt::print("\nplans leave out, or replace:\n");
  for (const std::string& line : left_out) fmt::print("  - {}\n", line);
  fmt::print("\n{}", model_toml(planned));
  return 0;
}

}  // namespace moe::commands
