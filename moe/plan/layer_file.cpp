#include "moe/plan/layer_file.h"

#include "moe/base/config_files.h"

namespace moe {
namespace {

constexpr Limits kWidthLimits{.least = 1, .most = 1 << 30};               // products of them are checked
constexpr Limits kOptionalLimits{.least = 0, .most = kWidthLimits.most};  // 0: no shared expert; M / heads
constexpr Limits kLossLimits{.least = 0, .most = 1e3}, kRopeLimits{.least = 0, .most = 1e12};

void read_sizes(const TableReader& root, LayerShape& layer) {
  const auto size = [&](std::string_view key, int64_t& value) {
    value = root.optional_integer(key, kWidthLimits).value_or(value);
  };
  size("batch", layer.batch);
  size("seq", layer.seq);
  size("model_dim", layer.model_dim);
  size("hidden", layer.hidden);
  layer.shared_hidden = root.optional_integer("shared_hidden", kOptionalLimits).value_or(layer.shared_hidden);
  size("heads", layer.heads);
  size("kv_heads", layer.kv_heads);
  layer.head_dim = root.optional_integer("head_dim", kOptionalLimits).value_or(layer.head_dim);
  layer.rope_theta = root.optional_real("rope_theta", kRopeLimits).value_or(layer.rope_theta);
  size("experts", layer.experts);
  size("top_k", layer.top_k);
  size("node_limit", layer.node_limit);
}

std::optional<double> capacity_from(const TableReader& root) {
  const ConfigValue& found = root.value("capacity_factor");
  if (found.kind == ConfigKind::null || (found.kind == ConfigKind::text && found.text == "none")) return std::nullopt;
  if (found.kind == ConfigKind::text) root.fail(found, "capacity_factor", "a number > 0 or 'none'");
  return root.real_of(found, "capacity_factor", kFactorLimits);
}

void read_choices(const TableReader& root, LayerShape& layer) {
  if (root.has("capacity_factor")) layer.capacity_factor = capacity_from(root);
  if (root.has("ffn")) layer.ffn = ffn_from(root.text("ffn"), root.where("ffn"));
  if (root.has("dtype")) layer.dtype = dtype_from(root.text("dtype"), root.where("dtype"));
  layer.gate = root.optional_name("gate").value_or(layer.gate);
  layer.order = root.optional_name("order").value_or(layer.order);
  layer.dispatcher = root.optional_name("dispatcher").value_or(layer.dispatcher);
  layer.hook = root.optional_name("hook").value_or(layer.hook);
  if (root.has("norm")) layer.norm = norm_from(root.text("norm"), root.where("norm"));
  for (const auto& [key, value] :
       {std::pair{"residual", &layer.residual}, {"causal", &layer.causal}, {"bias", &layer.bias}})
    if (root.has(key)) *value = root.boolean(key);
  layer.aux_loss = root.optional_real("aux_loss", kLossLimits).value_or(layer.aux_loss);
  layer.z_loss = root.optional_real("z_loss", kLossLimits).value_or(layer.z_loss);
}

}  // namespace

void read_layer_keys(const TableReader& table, LayerShape& layer) {
  read_sizes(table, layer);
  read_choices(table, layer);
}

ParallelShape read_parallel_keys(const TableReader& table) {
  ParallelShape out;
  const auto size = [&](std::string_view key, int& value) {
    value = static_cast<int>(table.optional_integer(key, kSizeLimits).value_or(value));
  };
  size("dp", out.dp);
  size("mp", out.mp);
  size("ep", out.ep);
  size("esp", out.esp);
  size("pp", out.pp);
  if (table.has("placement")) out.ep_inside = ep_inside_from(table.text("placement"), table.where("placement"));
  return out;
}

LayerFile read_layer(const std::string& path) {
  const ConfigFile file = read_toml(path);
  const TableReader root(file, with(kLayerKeys, {"schema", "name", "source", "capacity_rounding", "parallel"}));
  root.integer("schema", {.least = 1, .most = 1});
  LayerFile out;
  out.file = path;
  out.name = root.name("name");
  if (root.has("source")) out.source = root.text("source", false);
  read_layer_keys(root, out.layer);
  out.parallel = read_parallel_keys(root.table("parallel", kParallelKeys));
  if (root.has("capacity_rounding"))
    out.rounding = rounding_from(root.text("capacity_rounding"), root.where("capacity_rounding"));
  return out;
}

LayerFile find_layer(const std::string& name_or_path) { return read_layer(find_config("layers", name_or_path)); }

}  // namespace moe
