#include "moe/shape/hf_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/ranges.h>
#include <set>

#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/shape/layer_file.h"

namespace fs = std::filesystem;

namespace moe {
namespace {

constexpr int64_t kAssumedSeq = 4096;  // tokens of a sample if the model's context is longer than this
constexpr Limits kLayerCounts{.min = 1, .max = 10'000};
constexpr Limits kLengthLimits{.min = 1, .max = 1e12};
constexpr std::string_view kTextConfig = "text_config";
constexpr std::string_view kNested[] = {"attn_config", "ffn_config", "rope_parameters"};

// Moves the entries of the known nested objects to the top level, with keys of the form "object.key".
ConfigValue flattened(const ConfigValue& object) {
  ConfigValue out = object;
  out.entries.clear();
  for (const ConfigEntry& entry : object.entries) {
    const bool nested =
        entry.value.kind == ConfigKind::table && std::ranges::find(kNested, entry.key) != std::end(kNested);
    if (!nested) out.entries.push_back(entry);
    if (nested)
      for (const ConfigEntry& inner : entry.value.entries)
        out.entries.push_back({fmt::format("{}.{}", entry.key, inner.key), inner.value});
  }
  return out;
}

std::vector<std::string_view> keys_of(const ConfigValue& object) {
  std::vector<std::string_view> keys;
  for (const ConfigEntry& entry : object.entries) keys.push_back(entry.key);
  return keys;
}

bool is_off(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigKind::null:
      return true;
    case ConfigKind::boolean:
      return !value.boolean;
    case ConfigKind::text:
      return value.text.empty();
    case ConfigKind::list:
      return value.items.empty();
    case ConfigKind::table:
      return value.entries.empty();
    default:
      return false;
  }
}

/// The keys of a config whose family is known, with a record of which of them were read. A key whose value is null
/// counts as absent, except in is_null. An empty key is always absent.
class FamilyKeys {
 public:
  FamilyKeys(const TableReader& table, const ConfigValue& object, const ModelFamily& family)
      : table_(table), object_(object), family_(family) {}

  const ModelFamily& family() const { return family_; }
  bool is_null(std::string_view key) const {
    const ConfigValue* found = object_.find(key);
    return found != nullptr && found->kind == ConfigKind::null;
  }
  bool has(std::string_view key) const {
    read_.insert(std::string(key));
    return !key.empty() && table_.has(key) && !is_null(key);
  }
  std::optional<int64_t> optional_integer(std::string_view key, Limits limits = kSizeLimits) const {
    if (has(key)) return table_.integer(key, limits);
    if (!is_null(key))
      for (const KeyDefault& known : family_.defaults)
        if (known.key == key) return known.value;
    return std::nullopt;
  }
  int64_t integer(std::string_view key, Limits limits = kSizeLimits) const {
    if (const auto found = optional_integer(key, limits)) return *found;
    return table_.integer(key, limits);  // throws
  }
  bool flag(std::string_view key) const {
    if (has(key)) return table_.boolean(key);
    return optional_integer(key).value_or(0) != 0;
  }
  double real(std::string_view key, Limits limits) const {
    if (has(key)) return table_.real(key, limits);
    return static_cast<double>(optional_integer(key).value_or(0));
  }
  std::optional<std::string> choice(std::string_view key, std::span<const std::string_view> choices) const {
    return has(key) ? std::optional(table_.choice(key, choices)) : std::nullopt;
  }
  bool is_text(std::string_view key, std::string_view text) const {
    return table_.value(key).kind == ConfigKind::text && table_.value(key).text == text;
  }
  /// Returns the items of a list; empty if the key is absent.
  std::vector<ConfigValue> list(std::string_view key) const {
    if (!has(key)) return {};
    const ConfigValue& found = table_.value(key);
    if (found.kind != ConfigKind::list) fail(key, describe(found), "a list");
    return found.items;
  }
  /// Returns the layer numbers in a list.
  std::vector<int> layer_numbers(std::string_view key, int layers) const {
    std::vector<int> numbers;
    for (const ConfigValue& item : list(key))
      numbers.push_back(static_cast<int>(table_.integer_of(item, key, {.min = 0, .max = 1.0 * layers - 1})));
    return numbers;
  }
  /// Reads a list that names one of `words` for each layer. Returns their indices in `words`; empty if the key is
  /// absent.
  std::vector<int> layer_words(std::string_view key, int layers, std::span<const std::string_view> words) const {
    std::vector<int> found;
    const std::vector<ConfigValue> items = list(key);
    if (!items.empty() && std::ssize(items) < layers)
      fail(key, fmt::format("a list of {}", items.size()), fmt::format("one item for each of {} layers", layers));
    for (size_t i = 0; i < items.size() && std::ssize(found) < layers; ++i) {
      const std::string text = items[i].kind == ConfigKind::text ? items[i].text : describe(items[i]);
      const auto word = std::ranges::find(words, text);
      if (word == words.end())
        fail(key, fmt::format("{} for layer {}", describe(items[i]), i),
             fmt::format("one of: {}", fmt::join(words, ", ")));
      found.push_back(static_cast<int>(word - words.begin()));
    }
    return found;
  }
  /// Returns the rule by which rotary positions are stretched to longer contexts, such as "yarn, factor 40"; empty if
  /// they are not stretched.
  std::string rope_scaling() const {
    const ConfigValue* scaling = object_.find("rope_scaling");
    const auto find = [&](std::string_view key) {
      if (scaling != nullptr && scaling->kind == ConfigKind::table) return scaling->find(key);
      return object_.find(fmt::format("rope_parameters.{}", key));
    };
    const ConfigValue* type = find("rope_type");
    if (type == nullptr) type = find("type");
    if (type == nullptr || type->kind != ConfigKind::text || type->text == "default" || !is_line(type->text)) return "";
    const ConfigValue* factor = find("factor");
    const bool has_factor =
        factor != nullptr && (factor->kind == ConfigKind::integer || factor->kind == ConfigKind::real);
    return type->text + (has_factor ? fmt::format(", factor {}", describe(*factor)) : "");
  }
  [[noreturn]] void fail(std::string_view key, std::string_view found, std::string_view expected) const {
    table_.fail(key, found, expected);
  }

  /// Returns the keys that were not read and change neither shape nor cost. Throws for any other key that was not read.
  std::vector<std::string> check_other_keys() const {
    std::vector<std::string> ignored;
    for (const FixedKey& fixed : family_.fixed) {
      if (has(fixed.key) && describe(table_.value(fixed.key)) != fixed.value)
        fail(fixed.key, describe(table_.value(fixed.key)), fixed.value);
    }
    for (const ConfigEntry& entry : object_.entries) {
      if (read_.contains(entry.key)) continue;
      const bool harmless = is_ignored_key(entry.key) || is_off(entry.value) ||
                            std::ranges::find(family_.ignored, entry.key) != family_.ignored.end();
      if (!harmless)
        fail(is_line(entry.key) && !entry.key.empty() ? entry.key : "?", describe(entry.value),
             fmt::format("no such key: it may change shape or cost, and what it means in {} is not known",
                         family_.name));
      ignored.push_back(entry.key);
    }
    return ignored;
  }

 private:
  const TableReader& table_;
  const ConfigValue& object_;
  const ModelFamily& family_;
  mutable std::set<std::string, std::less<>> read_;
};

// Reads the part of a head that has rotary positions, and how they are stretched to longer contexts.
void read_rotary_share(const FamilyKeys& keys, PublishedModel& m) {
  constexpr Limits kShares{.max = 1, .above = 0};
  m.rotary_share = keys.family().rotary_share;
  if (keys.has("rotary_dim") && !m.latent)
    m.rotary_share = static_cast<double>(keys.integer("rotary_dim", {.min = 1, .max = 1.0 * m.head_dim})) /
                     static_cast<double>(m.head_dim);
  for (const std::string_view key : {"partial_rotary_factor", "rope_parameters.partial_rotary_factor"})
    if (keys.has(key)) m.rotary_share = keys.real(key, kShares);
  m.rope_scaling = keys.rope_scaling();
}

void read_attention(const FamilyKeys& keys, PublishedModel& m) {
  const ModelFamily& f = keys.family();
  m.heads = keys.integer(f.heads);
  if (f.latent) {
    LatentAttention l;
    l.query_rank = keys.optional_integer("q_lora_rank").value_or(0);
    l.kv_rank = keys.integer("kv_lora_rank");
    l.nope_dim = keys.integer("qk_nope_head_dim");
    l.rope_dim = keys.integer("qk_rope_head_dim");
    l.value_dim = keys.integer("v_head_dim");
    m.latent = l;
    m.kv_heads = m.heads;
    m.head_dim = l.nope_dim + l.rope_dim;
  } else {
    m.kv_heads = keys.optional_integer(f.kv_heads).value_or(m.heads);
    if (m.heads % m.kv_heads != 0)
      keys.fail(f.kv_heads, fmt::format("{}", m.kv_heads), fmt::format("a divisor of {} = {}", f.heads, m.heads));
    const auto head_dim = keys.optional_integer(f.head_dim);
    if (!head_dim && m.model_dim % m.heads != 0)
      keys.fail(f.heads, fmt::format("{}", m.heads), fmt::format("a divisor of {} = {}", f.model_dim, m.model_dim));
    m.head_dim = head_dim.value_or(m.model_dim / m.heads);
  }
  m.qkv_bias = keys.flag(f.attention_bias);
  m.output_bias = m.qkv_bias && f.output_bias;
  m.sinks = f.sinks;
  m.gated_attention = f.gated_attention;
  if (f.qk_norm_key.empty() || keys.flag(f.qk_norm_key)) m.qk_norm = f.qk_norm;
  if (f.rope_theta.empty()) return;
  constexpr Limits kThetaLimits{.max = 1e12, .above = 1};
  constexpr std::string_view kNew = "rope_parameters.rope_theta";
  m.rope_theta = keys.has(kNew) ? keys.real(kNew, kThetaLimits) : keys.real(f.rope_theta, kThetaLimits);
  read_rotary_share(keys, m);
  if (m.latent && m.latent->rope_dim % 2 != 0)
    keys.fail("qk_rope_head_dim", fmt::format("{}", m.latent->rope_dim), "an even width, which rotary positions need");
  if (!m.latent && m.head_dim % 2 != 0)
    keys.fail(f.head_dim.empty() || !keys.has(f.head_dim) ? f.heads : f.head_dim,
              fmt::format("heads of {}", m.head_dim), "an even width, which rotary positions need");
}

// Returns the mixer that the family's rule gives a layer if the config has no list of mixers.
Mixer alternate_mixer(const FamilyKeys& keys, int layer) {
  const auto each = [&](int64_t period, int64_t offset) { return layer % period == offset; };
  switch (keys.family().mixers) {
    case MixerRule::alternating:
      return each(2, 0) ? Mixer::windowed : Mixer::attention;
    case MixerRule::chunked: {
      const int64_t interval = keys.integer("no_rope_layer_interval");
      return each(interval, interval - 1) ? Mixer::attention : Mixer::windowed;
    }
    case MixerRule::linear_odd:
      return each(2, 0) ? Mixer::attention : Mixer::lightning;
    case MixerRule::full_interval: {
      const int64_t interval = keys.integer("full_attention_interval");
      return each(interval, interval - 1) ? Mixer::attention : keys.family().linear;
    }
    case MixerRule::attention_period: {
      const int64_t period = keys.integer("attn_layer_period");
      const int64_t offset = keys.integer("attn_layer_offset", {.min = 0, .max = 1.0 * period - 1});
      return each(period, offset) ? Mixer::attention : keys.family().linear;
    }
    case MixerRule::uniform:
    case MixerRule::use_window_key:
    case MixerRule::attn_type_list:
      break;
  }
  return Mixer::attention;
}

void read_windows(const FamilyKeys& keys, PublishedModel& m) {
  const MixerRule rule = keys.family().mixers;
  const bool chunked = rule == MixerRule::chunked;
  m.chunked = chunked;
  const std::string_view key = chunked ? "attention_chunk_size" : "sliding_window";
  const int64_t window = keys.optional_integer(key, kLengthLimits).value_or(0);
  if (rule == MixerRule::use_window_key) {
    keys.has("max_window_layers");
    if (keys.flag("use_sliding_window") && !keys.has("layer_types"))
      keys.fail("use_sliding_window", "true", "layer_types, which names the windowed layers");
  }
  const bool every_layer = window > 0 && (rule == MixerRule::uniform || rule == MixerRule::attn_type_list ||
                                          rule == MixerRule::attention_period);
  if (every_layer) std::ranges::replace(m.mixers, Mixer::attention, Mixer::windowed);
  if (m.count_of(Mixer::windowed) == 0) return;
  if (window == 0 && chunked) {
    std::ranges::replace(m.mixers, Mixer::windowed, Mixer::attention);
    return;
  }
  if (window == 0) keys.fail(key, "no such key", "the tokens that a layer with a window sees");
  m.window = window;
}

void read_mixers(const FamilyKeys& keys, int layers, PublishedModel& m) {
  const ModelFamily& f = keys.family();
  constexpr std::string_view kTypes[] = {"full_attention", "sliding_attention", "chunked_attention",
                                         "linear_attention"};
  constexpr std::string_view kLists[] = {"0", "1"};
  const Mixer by_type[] = {Mixer::attention, Mixer::windowed, Mixer::windowed, f.linear};
  std::vector<int> types = keys.layer_words("layer_types", layers, kTypes);
  const bool has_linear = f.linear != Mixer::attention;
  for (size_t i = 0; i < types.size(); ++i)
    if (types[i] == 3 && !has_linear)
      keys.fail("layer_types", fmt::format("'linear_attention' for layer {}", i), fmt::format("none in {}", f.name));
  const auto numbers = [&](std::string_view key, Mixer zero, Mixer one) {
    for (const int word : keys.layer_words(key, layers, kLists)) m.mixers.push_back(word == 1 ? one : zero);
  };
  for (const int type : types) m.mixers.push_back(by_type[type]);
  if (f.mixers == MixerRule::chunked) {
    keys.has("no_rope_layer_interval");
    if (m.mixers.empty()) numbers("no_rope_layers", Mixer::attention, Mixer::windowed);
    keys.has("no_rope_layers");
  }
  if (f.mixers == MixerRule::attn_type_list && m.mixers.empty()) numbers("attn_type_list", f.linear, Mixer::attention);
  if (!m.mixers.empty()) keys.has("full_attention_interval");
  for (int layer = static_cast<int>(m.mixers.size()); layer < layers; ++layer)
    m.mixers.push_back(alternate_mixer(keys, layer));
  if (m.count_of(Mixer::gated_delta) > 0)
    m.gated_delta = {.key_heads = keys.integer("linear_num_key_heads"),
                     .value_heads = keys.integer("linear_num_value_heads"),
                     .key_dim = keys.integer("linear_key_head_dim"),
                     .value_dim = keys.integer("linear_value_head_dim"),
                     .kernel = keys.integer("linear_conv_kernel_dim")};
  if (m.count_of(Mixer::mamba) == 0) return;
  constexpr std::string_view kRank = "mamba_dt_rank", kAuto = "auto";
  const bool automatic = !keys.has(kRank) || keys.is_text(kRank, kAuto);
  m.mamba = {.state = keys.integer("mamba_d_state"),
             .kernel = keys.integer("mamba_d_conv"),
             .inner = keys.integer("mamba_expand") * m.model_dim,
             .dt_rank = automatic ? (m.model_dim + 15) / 16 : keys.integer(kRank),
             .conv_bias = keys.flag("mamba_conv_bias"),
             .projection_bias = keys.flag("mamba_proj_bias")};
}

void read_expert_layers(const FamilyKeys& keys, int layers, PublishedModel& m) {
  const ModelFamily& f = keys.family();
  const int64_t first = keys.optional_integer(f.first_dense, {.min = 0, .max = 1e6}).value_or(0);
  const int64_t step = keys.optional_integer(f.step).value_or(1);
  const int64_t offset =
      keys.optional_integer(f.offset, {.min = 0, .max = 1.0 * step - 1}).value_or(f.last_of_step ? step - 1 : 0);
  const std::vector<int> dense = keys.layer_numbers(f.dense_list, layers);
  const std::vector<int> listed = keys.layer_numbers(f.expert_list, layers);
  const bool by_list = keys.has(f.expert_list);
  const auto contains = [](const std::vector<int>& list, int layer) {
    return std::ranges::find(list, layer) != list.end();
  };
  for (int layer = 0; layer < layers; ++layer) {
    const bool in_turn = layer >= first && layer % step == offset && !contains(dense, layer);
    m.dense_layers.push_back(by_list ? !contains(listed, layer) : !in_turn);
  }
  const auto dense_hidden = keys.optional_integer(f.dense_hidden);
  if (m.dense_count() == 0) return;
  for (const std::string_view key : {f.expert_list, f.dense_list, f.first_dense, f.step})
    if (m.dense_count() == layers && keys.has(key)) keys.fail(key, "only dense layers", "at least one MoE layer");
  if (m.dense_count() == layers) keys.fail(f.layers, fmt::format("{}", layers), "at least one MoE layer");
  m.dense_hidden = dense_hidden ? *dense_hidden : keys.integer(f.dense_hidden);
}

void read_experts(const FamilyKeys& keys, PublishedModel& m) {
  const ModelFamily& f = keys.family();
  m.experts = keys.integer(f.experts);
  m.top_k = keys.integer(f.top_k, {.min = 1, .max = static_cast<double>(m.experts)});
  m.hidden = keys.integer(f.hidden);
  const Limits or_none{.min = 0, .max = kSizeLimits.max};
  if (f.shared_is_one) m.shared_hidden = m.hidden;
  if (!f.shared_hidden.empty()) m.shared_hidden = keys.optional_integer(f.shared_hidden, or_none).value_or(0);
  if (!f.shared_count.empty()) {
    const double most = static_cast<double>(static_cast<int64_t>(kSizeLimits.max) / m.hidden);
    m.shared_hidden = m.hidden * keys.optional_integer(f.shared_count, {.min = 0, .max = most}).value_or(0);
  }
  m.shared_gate = f.shared_gate;
  m.router_bias = f.router_bias;
  m.expert_bias = f.expert_bias;
  m.selection_bias = f.always_selection_bias || keys.flag(f.selection_bias);
  m.sigmoid_gate = f.sigmoid_gate;
  m.normalized = keys.has("norm_topk_prob") ? keys.flag("norm_topk_prob") : f.normalized;
  constexpr Limits kScales{.min = 0, .max = 1e6};
  if (keys.has("routed_scaling_factor")) m.routed_scale = keys.real("routed_scaling_factor", {.max = 1e6, .above = 0});
  for (const std::string_view key : {"router_aux_loss_coef", "aux_loss_alpha"})
    if (keys.has(key)) m.balance_loss = keys.real(key, kScales);
  m.balance_by_sample = keys.has("seq_aux") && keys.flag("seq_aux");
  if (!f.swiglu_limit.empty()) m.swiglu_limit = keys.real(f.swiglu_limit, kScales);
  constexpr std::string_view kMethods[] = {"greedy", "group_limited_greedy", "noaux_tc"};
  constexpr std::string_view kScores[] = {"sigmoid", "softmax"};
  if (const auto method = keys.choice("topk_method", kMethods)) m.selection_bias = *method == "noaux_tc";
  if (const auto scores = keys.choice("scoring_func", kScores)) m.sigmoid_gate = *scores == "sigmoid";
  const int64_t groups = keys.optional_integer("n_group", or_none).value_or(1);
  const int64_t chosen = keys.optional_integer("topk_group", or_none).value_or(groups);
  if (groups > 1 && chosen > 0 && chosen < groups) {
    m.node_limit = chosen;
    m.router_groups = groups;
  }
}

// Reads the keys that a config may have inside or outside of its text_config.
void read_outer(const FamilyKeys& keys, const TableReader& root, PublishedModel& m) {
  const auto outer = [&](std::string_view key) { return !keys.has(key) && root.has(key); };
  constexpr std::string_view kTied = "tie_word_embeddings";
  m.tied_embedding = outer(kTied) ? root.boolean(kTied) : keys.flag(kTied);
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    constexpr std::string_view kTypes[] = {"bfloat16", "float16", "float32", "auto"};
    const std::string type = outer(key) && root.value(key).kind != ConfigKind::null
                                 ? root.choice(key, kTypes)
                                 : keys.choice(key, kTypes).value_or("auto");
    if (type != "auto") m.dtype = dtype_from(type, root.where(key));
  }
  for (const std::string_view key : {"quantization_config", "quantization"})
    if (keys.has(key) || root.has(key))
      m.other_parts.push_back(fmt::format("{}: how weights are stored; planned as {}", key, name_of(m.dtype)));
  for (const std::string_view key : {"vision_config", "audio_config"})
    if (root.has(key)) m.other_parts.push_back(fmt::format("{}: the text model alone is planned and counted", key));
}

// Returns a model's name. For a config.json: that of its folder or, in a download cache, of the model; for other files:
// the file's name without the extension.
std::string name_from(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  fs::path named = whole.stem();
  if (whole.filename() == "config.json") named = whole.parent_path().filename();
  const fs::path above = whole.parent_path().parent_path();
  if (above.filename() == "snapshots") named = above.parent_path().filename();  // models--ORGANISATION--NAME
  std::string name = named.string();
  if (const size_t at = name.rfind("--"); at != std::string::npos) name.erase(0, at + 2);
  std::ranges::replace_if(
      name, [](char c) { return !is_name(std::string_view(&c, 1)); }, '-');
  return name.empty() ? "model" : name;
}

const ModelFamily& family_of(const TableReader& root, const TableReader& table) {
  constexpr std::string_view kKey = "model_type";
  std::vector<std::string_view> names;
  for (const ModelFamily& family : model_families()) names.push_back(family.name);
  const std::string name = table.has(kKey) ? table.choice(kKey, names) : root.choice(kKey, names);
  return model_families()[std::ranges::find(names, name) - names.begin()];
}

}  // namespace

bool is_hf_config(const std::string& path) {
  std::error_code error;
  return path.ends_with(".json") || (fs::is_regular_file(path, error) && first_letter(path) == '{');
}

PublishedModel read_hf_config(const std::string& path) {
  ConfigFile file = parse_json(text_of_file(path, "a Hugging Face config.json"), path);
  const ConfigValue* inner = file.root.find(kTextConfig);
  const bool nested = inner != nullptr && inner->kind == ConfigKind::table;
  const ConfigValue object = flattened(nested ? *inner : file.root);
  ConfigValue& described =
      nested ? std::ranges::find(file.root.entries, kTextConfig, &ConfigEntry::key)->value : file.root;
  described = object;
  const TableReader root(file, keys_of(file.root));
  const TableReader table = nested ? root.table(kTextConfig, keys_of(object)) : root;
  const FamilyKeys keys(table, object, family_of(root, table));
  const ModelFamily& f = keys.family();
  keys.has("model_type");
  PublishedModel m;
  m.file = path;
  m.name = name_from(path);
  m.family = f.name;
  const int layers = static_cast<int>(keys.integer(f.layers, kLayerCounts));
  m.model_dim = keys.integer(f.model_dim);
  m.vocabulary = keys.integer("vocab_size", {.min = 1, .max = 1 << 30});
  m.seq = std::min(kAssumedSeq, keys.optional_integer(f.length, kLengthLimits).value_or(kAssumedSeq));
  m.norm = f.norm;
  m.norm_bias = f.norm_bias;
  m.head_bias = keys.flag(f.head_bias);
  read_attention(keys, m);
  read_mixers(keys, layers, m);
  read_windows(keys, m);
  read_experts(keys, m);
  read_expert_layers(keys, layers, m);
  m.mtp_modules = static_cast<int>(keys.optional_integer(f.mtp, {.min = 0, .max = 1000}).value_or(0));
  read_outer(keys, root, m);
  m.ignored_keys = keys.check_other_keys();
  log_decision(fmt::format("{}: {} changes neither shape nor cost: {}", path, f.name, fmt::join(m.ignored_keys, ", ")));
  return m;
}

PublishedModel find_published_model(const std::string& name_or_path) {
  const std::string path = find_model_file(name_or_path);
  return is_hf_config(path) ? read_hf_config(path) : published_model(read_model(path));
}

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
constexpr KeyDefault kGptOssDefaults[] = {{"num_key_value_heads", 8}, {"head_dim", 64},    {"sliding_window", 128},
                                          {"attention_bias", 1},      {"swiglu_limit", 7}, {"rope_theta", 150'000}};
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

// Keys that are ignored for latent attention, which has its own keys for these widths.
constexpr std::string_view kLatentIgnored[] = {"head_dim", "qk_head_dim", "num_key_value_heads"};
constexpr std::string_view kGptOssIgnored[] = {"experts_per_token", "initial_context_length"};
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
  family.normalized = false;
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
          .mixers = MixerRule::use_window_key,
          .normalized = false};
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
  family.normalized = true;
  family.rotary_share = 0.25;
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
    ModelFamily{.name = "olmoe", .qk_norm = QkNorm::width, .normalized = false, .defaults = kOlmoeDefaults},
    ModelFamily{.name = "gpt_oss",
                .experts = "num_local_experts",
                .mixers = MixerRule::alternating,
                .sinks = true,
                .router_bias = true,
                .expert_bias = true,
                .swiglu_limit = "swiglu_limit",
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
                .rotary_share = 0.5,
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
                .normalized = false,
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
                .normalized = false,
                .rope_theta = {},
                .defaults = kJambaDefaults,
                .ignored = kJambaIgnored},
};

constexpr std::string_view kIgnored[] = {
    // training and output
    "architectures", "auto_map", "transformers_version", "use_cache", "pretraining_tp", "ep_size", "hidden_act",
    "ffn_act_fn", "attn_implementation", "use_bfloat16", "torchscript", "output_attentions", "output_hidden_states",
    "output_router_logits", "return_dict", "seq_aux", "aux_loss_alpha", "norm_topk_prob", "routed_scaling_factor",
    "clip_qkv", "moe_jitter_eps", "router_jitter_noise", "input_jitter_noise", "moe_loss_weight",
    "moe_normalize_expert_weights", "uniform_expert_assignment", "logits_scaling", "original_max_position_embeddings",
    "partial_rotary_factor", "chunk_size_feed_forward", "pruned_heads", "tf_legacy_loss", "quantization_config",
    "quantization", "compression_config",
    // task heads
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
