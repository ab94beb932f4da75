#include "moe/shape/model_file.h"

#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <tuple>

#include "moe/base/config_files.h"
#include "moe/base/json.h"
#include "moe/shape/hf_config.h"
#include "moe/shape/layer_file.h"

namespace moe {
namespace {

constexpr Limits kLayerLimits{.min = 1, .max = 100'000};

std::optional<int> layers_from(const TableReader& table) {
  if (const auto layers = table.optional_integer("layers", kLayerLimits)) return static_cast<int>(*layers);
  return std::nullopt;
}

std::vector<std::string> clusters_from(const TableReader& table, const std::vector<ModelOverride>& earlier) {
  constexpr std::string_view kKey = "clusters";
  std::vector<std::string> names;
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  const auto known = [&](const std::string& name) {
    return has(names, name) ||
           std::any_of(earlier.begin(), earlier.end(), [&](const ModelOverride& o) { return has(o.clusters, name); });
  };
  for (const ConfigValue& item : table.list(kKey)) {
    if (item.kind != ConfigKind::text || item.text.empty()) table.fail(item, kKey, "names of clusters");
    if (known(item.text)) table.fail(item, kKey, "each cluster once");
    names.push_back(item.text);
  }
  return names;
}

std::vector<ModelOverride> overrides_from(const TableReader& root) {
  std::vector<ModelOverride> all;
  for (const TableReader& table : root.tables("on", {"clusters", "layers", "batch", "seq", "experts", "ep"})) {
    ModelOverride o;
    o.clusters = clusters_from(table, all);
    o.layers = layers_from(table);
    o.batch = table.optional_integer("batch", kSizeLimits);
    o.seq = table.optional_integer("seq", kSizeLimits);
    o.experts = table.optional_integer("experts", kSizeLimits);
    if (const auto ep = table.optional_integer("ep", kSizeLimits)) o.ep = static_cast<int>(*ep);
    all.push_back(std::move(o));
  }
  return all;
}

// Reads the rule for dense layers from any of three keys. At least one layer must have experts.
DenseRule dense_from(const TableReader& root, int layers) {
  constexpr std::string_view kEvery = "moe_every", kFirst = "first_dense", kListed = "dense_layers",
                             kHidden = "dense_hidden";
  const Limits numbers{.min = 0, .max = 1.0 * layers - 1};
  DenseRule dense;
  dense.every = static_cast<int>(root.optional_integer(kEvery, {.min = 1, .max = 1.0 * layers}).value_or(1));
  dense.first = static_cast<int>(root.optional_integer(kFirst, numbers).value_or(0));
  if (root.has(kListed))
    for (const ConfigValue& item : root.list(kListed))
      dense.listed.push_back(static_cast<int>(root.integer_of(item, kListed, numbers)));
  const int found = dense.expand(layers).count(0, layers);
  for (const std::string_view key : {kListed, kFirst, kEvery})
    if (found == layers && root.has(key)) root.fail(root.value(key), key, "at least one MoE layer");
  if (found > 0)
    dense.hidden = root.integer(kHidden, kSizeLimits);
  else if (root.has(kHidden))
    root.fail(root.value(kHidden), kHidden, "a key beside it that says which layers are dense");
  return dense;
}

// Reads the pattern of layers that have the window of `layer`.
std::string windowed_from(const TableReader& root, const LayerShape& layer) {
  constexpr std::string_view kKey = "windowed_layers";
  if (!root.has(kKey)) return {};
  std::string pattern = root.text(kKey);
  if (layer.window == 0) root.fail(root.value(kKey), kKey, "a window in [layer] beside it");
  if (pattern.find_first_not_of("01") != std::string::npos || pattern.find('1') == std::string::npos)
    root.fail(root.value(kKey), kKey, "1 for layers with the window of [layer], and 0 for others");
  return pattern;
}

// Throws if one of the required keys is missing; other keys default to LayerShape's values.
void require_shape(const TableReader& layer) {
  for (const std::string_view key : {"seq", "model_dim", "hidden", "heads"}) layer.value(key);
}

const ModelOverride* override_for(const Model& model, const std::string& cluster) {
  for (const ModelOverride& o : model.overrides)
    if (std::find(o.clusters.begin(), o.clusters.end(), cluster) != o.clusters.end()) return &o;
  return nullptr;
}

constexpr std::array kModelKeys{"schema",          "name",         "source",       "layers",     "moe_every",
                                "first_dense",     "dense_layers", "dense_hidden", "vocabulary", "tied_embedding",
                                "windowed_layers", "layer",        "parallel",     "on"};

// Returns the keys of a model's file.
std::vector<std::string_view> model_keys() {
  std::vector<std::string_view> keys(kModelKeys.begin(), kModelKeys.end());
  for_each_model_trait([&](const auto& trait) { keys.push_back(trait.key); });
  return keys;
}

ModelTraits traits_from(const TableReader& root) {
  ModelTraits traits;
  for_each_model_trait([&](const auto& trait) {
    using Value = std::remove_cvref_t<decltype(traits.*trait.member)>;
    if (!root.has(trait.key)) return;
    if constexpr (std::same_as<Value, bool>)
      traits.*trait.member = root.boolean(trait.key);
    else if constexpr (std::same_as<Value, int64_t>)
      traits.*trait.member = root.integer(trait.key, trait.limits);
    else if constexpr (std::same_as<Value, double>)
      traits.*trait.member = root.real(trait.key, trait.limits);
    else
      traits.*trait.member = root.text(trait.key);
  });
  return traits;
}

// Returns the TOML table [parallel] with the groups whose size is not the default; empty if there are none.
std::string parallel_toml(const ParallelShape& p) {
  std::string text;
  for (const auto& [key, size] : {std::pair{"dp", p.dp}, {"mp", p.mp}, {"ep", p.ep}, {"esp", p.esp}})
    if (size > 0) text += fmt::format("{} = {}\n", key, size);
  if (p.cp > 1) text += fmt::format("cp = {}\n", p.cp);
  if (p.cp_exchange != CpExchange::allgather) text += fmt::format("cp_exchange = \"{}\"\n", name_of(p.cp_exchange));
  if (p.pp > 1) text += fmt::format("pp = {}\n", p.pp);
  if (p.ep_inside) text += fmt::format("placement = \"{}\"\n", placement_name(p));
  return text.empty() ? text : "\n[parallel]\n" + text;
}

}  // namespace

Model read_model(const std::string& path) {
  const ConfigFile file = read_toml(path);
  const TableReader root(file, model_keys());
  root.integer("schema", {.min = 1, .max = 1});
  Model out;
  out.file = path;
  out.name = root.name("name");
  out.source = root.text("source", false);
  out.layers = static_cast<int>(root.integer("layers", kLayerLimits));
  out.dense = dense_from(root, out.layers);
  out.vocabulary = root.optional_integer("vocabulary", {.min = 1, .max = 1 << 30}).value_or(0);
  if (root.has("tied_embedding")) out.tied_embedding = root.boolean("tied_embedding");
  out.traits = traits_from(root);
  const TableReader layer = root.table("layer", kLayerKeys);
  require_shape(layer);
  read_layer_keys(layer, out.layer);
  out.names_dtype = layer.has("dtype");
  out.windowed_layers = windowed_from(root, out.layer);
  out.parallel = read_parallel_keys(root.table("parallel", kParallelKeys));
  out.overrides = overrides_from(root);
  return out;
}

std::string find_model_file(const std::string& name_or_path) {
  std::error_code error;
  if (std::filesystem::is_directory(name_or_path, error))
    return (std::filesystem::path(name_or_path) / "config.json").string();
  return find_config("models", name_or_path);
}

Model find_model(const std::string& name_or_path) {
  const std::string path = find_model_file(name_or_path);
  return is_hf_config(path) ? planned_model(read_hf_config(path)) : read_model(path);
}

namespace {

std::string toml_string(std::string_view value) { return Json(std::string(value)).dump(-1, ' ', true); }

std::string toml_line(std::string_view key, const auto& value) { return fmt::format("{} = {}\n", key, value); }

// Returns the TOML table [layer] with the fields that differ from their defaults or are always stated.
std::string layer_toml(const LayerShape& l) {
  std::string text = "\n[layer]\n";
  const auto add = [&](std::string_view key, const auto& value) { text += toml_line(key, value); };
  const LayerShape usual;
  for_each_layer_field([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(l.*field.member)>;
    const Value& value = l.*field.member;
    if constexpr (std::same_as<Value, int64_t>) {
      if (value > 0) add(field.key, value);
    } else if (field.stated || value != usual.*field.member) {
      if constexpr (std::is_enum_v<Value>)
        add(field.key, toml_string(name_of(value)));
      else if constexpr (std::same_as<Value, std::string>)
        add(field.key, toml_string(value));
      else if constexpr (std::same_as<Value, std::optional<double>>)
        add(field.key, value ? fmt::format("{}", *value) : toml_string("none"));
      else
        add(field.key, value);
    }
  });
  return text;
}

}  // namespace

std::string model_toml(const Model& m) {
  std::string text;
  const auto add = [&](std::string_view key, const auto& value) { text += toml_line(key, value); };
  add("schema", 1);
  add("name", toml_string(m.name));
  add("source", toml_string(m.source));
  add("layers", m.layers);
  if (m.dense.every > 1) add("moe_every", m.dense.every);
  if (m.dense.first > 0) add("first_dense", m.dense.first);
  if (!m.dense.listed.empty()) add("dense_layers", m.dense.listed);
  if (m.dense.hidden > 0) add("dense_hidden", m.dense.hidden);
  if (!m.windowed_layers.empty()) add("windowed_layers", toml_string(m.windowed_layers));
  if (m.vocabulary > 0) add("vocabulary", m.vocabulary);
  add("tied_embedding", m.tied_embedding);
  for_each_model_trait([&](const auto& trait) {
    const auto& value = m.traits.*trait.member;
    if (value == ModelTraits{}.*trait.member) return;
    if constexpr (std::same_as<std::remove_cvref_t<decltype(value)>, std::string>)
      add(trait.key, toml_string(value));
    else
      add(trait.key, value);
  });
  return text + layer_toml(m.layer) + parallel_toml(m.parallel);
}

Model model_on_cluster(Model model, const std::string& cluster) {
  const ModelOverride* found = override_for(model, cluster);
  if (found == nullptr && cluster.ends_with(kFitted))
    found = override_for(model, cluster.substr(0, cluster.size() - kFitted.size()));
  const ModelOverride o = found != nullptr ? *found : ModelOverride{};
  model.overrides.clear();
  model.layers = o.layers.value_or(model.layers);
  model.parallel.ep = o.ep.value_or(model.parallel.ep);
  model.layer.batch = o.batch.value_or(model.layer.batch);
  model.layer.seq = o.seq.value_or(model.layer.seq);
  model.layer.experts = o.experts.value_or(model.layer.experts);
  return model;
}

}  // namespace moe
