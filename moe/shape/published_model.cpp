#include "moe/shape/published_model.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "moe/base/enum_array.h"

namespace moe {
namespace {

/// Numbers of weights of a part: in matrices, which multiply each token (these count as FLOPs), and in vectors.
struct Weights {
  double matrices = 0, vectors = 0;
  double total() const { return matrices + vectors; }
};
Weights operator+(const Weights& a, const Weights& b) { return {a.matrices + b.matrices, a.vectors + b.vectors}; }
Weights operator*(double count, const Weights& w) { return {count * w.matrices, count * w.vectors}; }

double number(int64_t value) { return static_cast<double>(value); }

Weights latent_attention(const PublishedModel& m) {
  const LatentAttention& l = *m.latent;
  const double width = number(m.model_dim), heads = number(m.heads), rank = number(l.query_rank);
  const double query_dim = number(l.nope_dim + l.rope_dim), compressed = number(l.kv_rank + l.rope_dim);
  Weights w;
  w.matrices = l.query_rank > 0 ? width * rank + rank * heads * query_dim : width * heads * query_dim;
  w.matrices += width * compressed;
  w.matrices += number(l.kv_rank) * heads * number(l.nope_dim + l.value_dim);
  w.matrices += heads * number(l.value_dim) * width;
  w.vectors = rank + number(l.kv_rank);  // gains of the norms of the latents
  if (m.qkv_bias) w.vectors += rank + compressed;
  if (m.output_bias) w.vectors += width;
  return w;
}

Weights plain_attention(const PublishedModel& m) {
  const double width = number(m.model_dim), queries = number(m.heads * m.head_dim),
               keys = number(m.kv_heads * m.head_dim);
  const double gated_queries = m.gated_attention ? 2 * queries : queries;
  Weights w;
  w.matrices = width * (gated_queries + 2 * keys + queries);
  if (m.qkv_bias) w.vectors += gated_queries + 2 * keys;
  if (m.output_bias) w.vectors += width;
  if (m.qk_norm == QkNorm::head) w.vectors += 2 * number(m.head_dim);
  if (m.qk_norm == QkNorm::width) w.vectors += queries + keys;
  if (m.sinks) w.vectors += number(m.heads);
  return w;
}

// Weights of lightning attention: W_qkv, output gate and W_o of all heads, and the gain of the norm before W_o.
Weights lightning(const PublishedModel& m) {
  const double inner = number(m.heads * m.head_dim);
  return {5 * number(m.model_dim) * inner, inner};
}

Weights gated_delta(const PublishedModel& m) {
  const GatedDelta& d = m.gated_delta;
  const double width = number(m.model_dim), keys = number(d.key_heads * d.key_dim),
               values = number(d.value_heads * d.value_dim), heads = number(d.value_heads);
  Weights w;
  w.matrices = width * (2 * keys + 2 * values) + width * 2 * heads + values * width;
  w.vectors = (2 * keys + values) * number(d.kernel) + 2 * heads + number(d.value_dim);
  return w;
}

Weights mamba(const PublishedModel& m) {
  const Mamba& s = m.mamba;
  const double width = number(m.model_dim), inner = number(s.inner), rank = number(s.dt_rank), state = number(s.state);
  Weights w;
  w.matrices = width * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * width;
  w.vectors = inner * number(s.kernel) + inner;  // convolution, bias of dt
  w.vectors += inner * state + inner;            // A and D
  w.vectors += rank + 2 * state;                 // gains of the norms of dt, B and C (Jamba's)
  if (s.conv_bias) w.vectors += inner;
  if (s.projection_bias) w.vectors += 2 * inner + width;
  return w;
}

Weights mixer_weights(const PublishedModel& m, Mixer mixer) {
  switch (mixer) {
    case Mixer::lightning:
      return lightning(m);
    case Mixer::gated_delta:
      return gated_delta(m);
    case Mixer::mamba:
      return mamba(m);
    case Mixer::attention:
    case Mixer::windowed:
      break;
  }
  return m.latent ? latent_attention(m) : plain_attention(m);
}

// Returns the multiply-adds of a token with the keys and values of other tokens.
double score_macs(const PublishedModel& m, Mixer mixer) {
  if (mixer != Mixer::attention && mixer != Mixer::windowed) return 0;
  const double seen = number(mixer == Mixer::windowed ? std::min(m.seq, m.window) : m.seq);
  if (!m.latent) return 2 * seen * number(m.heads * m.head_dim);
  return seen * number(m.heads) * number(m.latent->nope_dim + m.latent->rope_dim + m.latent->value_dim);
}

double norm_width(const PublishedModel& m) {
  if (m.norm == Norm::none) return 0;
  return number(m.model_dim) * (m.norm_bias ? 2 : 1);
}

Weights feed_forward(const PublishedModel& m, int64_t hidden, bool bias) {
  const double width = number(m.model_dim), inner = number(hidden);
  return {m.gemms * width * inner, bias ? (m.gemms - 1) * inner + width : 0};
}

// Returns the weights of router and shared expert, which every token of an MoE layer uses.
Weights router_and_shared_weights(const PublishedModel& m) {
  const double width = number(m.model_dim), experts = number(m.experts);
  Weights w{width * experts, 0};
  if (m.router_bias) w.vectors += experts;
  if (m.selection_bias) w.vectors += experts;
  if (m.shared_hidden > 0) w = w + feed_forward(m, m.shared_hidden, m.expert_bias);
  if (m.shared_gate && m.shared_hidden > 0) w.matrices += width;
  return w;
}

std::string in_layers(int count, int layers) {
  return count == layers ? "in all layers" : fmt::format("in {} of {} layers", count, layers);
}

// Returns whether layers have sliding windows, which plans support; chunked windows do not slide.
bool has_windows(const PublishedModel& m) { return m.window > 0 && m.count_of(Mixer::windowed) > 0 && !m.chunked; }

// Returns the shortest pattern (whole_layers()) that gives the windowed layers; empty if all have a window, or none.
std::string windowed_layers(const PublishedModel& m) {
  if (!has_windows(m) || m.count_of(Mixer::windowed) == m.layers()) return {};
  std::string all;
  for (const Mixer mixer : m.mixers) all += mixer == Mixer::windowed ? '1' : '0';
  size_t period = 1;
  while (all.compare(period, std::string::npos, all, 0, all.size() - period) != 0) ++period;
  return all.substr(0, period);
}

ModelTraits traits_of(const PublishedModel& m) {
  return {.qk_norm = m.qk_norm != QkNorm::none,
          .qkv_bias = m.qkv_bias,
          .output_bias = m.output_bias,
          .expert_bias = m.expert_bias,
          .attention_gate = m.gated_attention,
          .attention_sinks = m.sinks,
          .shared_expert_gate = m.shared_gate && m.shared_hidden > 0,
          .selection_bias = m.selection_bias,
          .unnormalized_scores = m.sigmoid_gate && m.top_k > 1 && !m.normalized,
          .routed_scale = m.routed_scale,
          .balance_loss = m.balance_loss,
          .balance_by_sample = m.balance_loss > 0 && m.balance_by_sample,
          .rotary_share = m.rotary_share,
          .swiglu_limit = m.swiglu_limit,
          .mtp_modules = m.mtp_modules,
          .other_mixers = fmt::format("{}", fmt::join(replaced_mixers(m), "; ")),
          .rope_scaling = m.rope_scaling};
}

// Returns the shortest rule for a model file that gives exactly these dense layers.
DenseRule dense_rule(const PublishedModel& m) {
  DenseRule rule;
  if (m.dense_count() == 0) return rule;
  rule.hidden = m.dense_hidden;
  const int layers = m.layers();
  const auto fits = [&](const DenseRule& r) { return r.expand(layers).by_layer == m.dense_layers; };
  DenseRule first = rule;
  first.first = static_cast<int>(std::ranges::find(m.dense_layers, false) - m.dense_layers.begin());
  if (fits(first)) return first;
  DenseRule every = rule;
  every.every = first.first + 1;
  if (fits(every)) return every;
  for (int layer = 0; layer < layers; ++layer)
    if (m.dense_layers[layer]) rule.listed.push_back(layer);
  return rule;
}

}  // namespace

std::string_view name_of(Mixer mixer) {
  constexpr EnumArray<Mixer, std::string_view, 5> kNames{"attention", "windowed attention", "lightning attention",
                                                         "gated DeltaNet", "Mamba"};
  return kNames[mixer];
}

int PublishedModel::dense_count() const { return static_cast<int>(std::ranges::count(dense_layers, true)); }
std::string_view PublishedModel::name_of(Mixer mixer) const {
  return chunked && mixer == Mixer::windowed ? "chunked attention" : moe::name_of(mixer);
}
int PublishedModel::count_of(Mixer mixer) const { return static_cast<int>(std::ranges::count(mixers, mixer)); }

ModelCounts count_model(const PublishedModel& m) {
  const double layers = m.layers(), dense_layers = m.dense_count(), moe_layers = layers - dense_layers;
  const Weights expert = feed_forward(m, m.hidden, m.expert_bias), beside = router_and_shared_weights(m);
  Weights shared;  // weights that every token uses
  double scores = 0;
  for (const Mixer mixer : m.mixers) {
    shared = shared + mixer_weights(m, mixer);
    scores += score_macs(m, mixer);
  }
  shared = shared + moe_layers * beside + dense_layers * feed_forward(m, m.dense_hidden, m.expert_bias);
  shared.vectors += (2 * layers + 1) * norm_width(m);
  const double embedding = number(m.vocabulary) * number(m.model_dim);
  const double head = (m.tied_embedding ? 0 : embedding) + (m.head_bias ? number(m.vocabulary) : 0);
  ModelCounts counts;
  counts.embedding = embedding;
  counts.parameters = shared.total() + moe_layers * number(m.experts) * expert.total() + embedding + head;
  counts.active = shared.total() + moe_layers * number(m.top_k) * expert.total() + embedding + head;
  const double macs = shared.matrices + moe_layers * number(m.top_k) * expert.matrices + embedding + scores;
  counts.forward_flops = kFlopsPerMac * macs;
  if (m.mtp_modules > 0) {
    // DeepSeek-V3, arXiv:2412.19437, section 2.2: two norms, a projection of both, a layer, a norm.
    const double width = number(m.model_dim);
    const double layer =
        mixer_weights(m, Mixer::attention).total() + beside.total() + number(m.experts) * expert.total();
    counts.mtp = m.mtp_modules * (2 * width * width + layer + 5 * norm_width(m));
  }
  return counts;
}

std::vector<std::string> replaced_mixers(const PublishedModel& m) {
  std::vector<std::string> mixers;
  for (const Mixer mixer : {Mixer::windowed, Mixer::lightning, Mixer::gated_delta, Mixer::mamba}) {
    if (m.count_of(mixer) == 0 || (mixer == Mixer::windowed && has_windows(m))) continue;
    const std::string chunk = mixer == Mixer::windowed ? fmt::format(" in chunks of {} tokens", m.window) : "";
    mixers.push_back(fmt::format("{}{} {}", mixer == Mixer::windowed ? "attention" : name_of(mixer), chunk,
                                 in_layers(m.count_of(mixer), m.layers())));
  }
  return mixers;
}

std::vector<std::string> unplanned_properties(const PublishedModel& m) {
  std::vector<std::string> lines;
  const auto add = [&](bool present, const std::string& line) {
    if (present) lines.push_back(line);
  };
  for (const std::string& mixer : replaced_mixers(m))
    lines.push_back(fmt::format("{}: planned as attention over all tokens", mixer));
  add(m.qk_norm != QkNorm::none, "norms of queries and keys");
  add(m.gated_attention, "the output gate of attention");
  add(m.sinks, "attention sinks");
  const bool biases = m.qkv_bias || m.output_bias || m.expert_bias || m.router_bias || m.head_bias || m.norm_bias;
  add(biases && !m.family.empty(), "biases");
  add(m.selection_bias, "the bias that corrects the choice of experts");
  add(m.shared_gate && m.shared_hidden > 0, "the gate of the shared expert");
  add(m.mtp_modules > 0, fmt::format("{}, not counted in parameters and FLOPs",
                                     counted(static_cast<size_t>(m.mtp_modules), "MTP module")));
  for (const std::string& part : m.other_parts) lines.push_back(part);
  return lines;
}

Model planned_model(const PublishedModel& m) {
  Model out;
  out.name = m.name;
  out.file = m.file;
  out.origin = fmt::format("config.json of {}", m.family);
  out.source = fmt::format("{}, model_type {}. Assumed: B = 1 and L = {}; dropless.", m.file, m.family, m.seq);
  out.layers = m.layers();
  out.dense = dense_rule(m);
  out.windowed_layers = windowed_layers(m);
  out.vocabulary = m.vocabulary;
  out.tied_embedding = m.tied_embedding;
  out.traits = traits_of(m);
  out.names_dtype = true;
  LayerShape& l = out.layer;
  l.batch = 1;
  l.seq = m.seq;
  l.model_dim = m.model_dim;
  l.hidden = m.hidden;
  l.shared_hidden = m.shared_hidden;
  l.heads = m.heads;
  l.kv_heads = m.kv_heads;
  if (m.latent) {
    l.q_lora_rank = m.latent->query_rank;
    l.kv_lora_rank = m.latent->kv_rank;
    l.qk_nope_head_dim = m.latent->nope_dim;
    l.qk_rope_head_dim = m.latent->rope_dim;
    l.v_head_dim = m.latent->value_dim;
  } else if (m.head_dim * m.heads != m.model_dim) {
    l.head_dim = m.head_dim;
  }
  if (has_windows(m)) l.window = m.window;
  l.rope_theta = m.rope_theta;
  l.experts = m.experts;
  l.top_k = m.top_k;
  l.node_limit = m.node_limit;
  l.router_groups = m.router_groups;
  l.capacity_factor = std::nullopt;
  l.ffn = Ffn::mixtral;
  l.norm = m.norm;
  l.dtype = m.dtype;
  l.gate = m.sigmoid_gate ? "sigmoid" : m.normalized ? "topk" : "switch";
  return out;
}

PublishedModel published_model(const Model& model) {
  const LayerShape& l = model.layer;
  PublishedModel out;
  out.name = model.name;
  out.file = model.file;
  out.window = l.window;
  const LayerSet whole = whole_layers(model.windowed_layers, model.layers);
  for (int layer = 0; layer < model.layers; ++layer)
    out.mixers.push_back(l.window > 0 && !whole.has(layer) ? Mixer::windowed : Mixer::attention);
  out.dense_layers = model.dense.expand(model.layers).by_layer;
  out.dense_layers.resize(out.mixers.size());
  out.model_dim = l.model_dim;
  out.vocabulary = model.vocabulary;
  out.heads = l.heads;
  out.kv_heads = l.kv_heads > 0 ? l.kv_heads : l.heads;
  out.head_dim = head_width(l);
  if (is_latent(l))
    out.latent = LatentAttention{l.q_lora_rank, l.kv_lora_rank, l.qk_nope_head_dim, l.qk_rope_head_dim, l.v_head_dim};
  out.qk_norm = model.traits.qk_norm ? QkNorm::head : QkNorm::none;
  out.qkv_bias = l.bias;
  out.output_bias = l.bias;
  out.expert_bias = l.bias;
  out.norm = l.norm;
  out.norm_bias = l.bias && (l.norm == Norm::by_ffn ? !is_gated(l.ffn) : l.norm != Norm::rmsnorm);
  out.experts = l.experts;
  out.top_k = l.top_k;
  out.hidden = l.hidden;
  out.shared_hidden = l.shared_hidden;
  out.dense_hidden = model.dense.hidden;
  out.node_limit = l.node_limit;
  out.router_groups = l.router_groups;
  out.gemms = gemms_of(l.ffn);
  out.tied_embedding = model.tied_embedding;
  out.rope_theta = l.rope_theta;
  out.seq = l.seq;
  out.dtype = l.dtype;
  return out;
}

}  // namespace moe
