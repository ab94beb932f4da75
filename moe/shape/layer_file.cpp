#include "moe/shape/layer_file.h"

#include "moe/base/config_files.h"

namespace moe {
namespace {

template <class Value>
Value read_field(const TableReader& table, const LayerField<Value>& field) {
  if constexpr (std::same_as<Value, int64_t>) {
    return table.integer(field.key, field.limits);
  } else if constexpr (std::same_as<Value, double>) {
    return table.real(field.key, field.limits);
  } else if constexpr (std::same_as<Value, bool>) {
    return table.boolean(field.key);
  } else if constexpr (LayerField<Value>::is_name) {
    return field.from(table.name(field.key), table.where(field.key));
  } else {
    const ConfigValue& found = table.value(field.key);
    const bool is_text = found.kind == ConfigKind::text;
    if (found.kind == ConfigKind::null || (is_text && found.text == "none")) return std::nullopt;
    if (is_text) table.fail(found, field.key, "a number > 0 or 'none'");
    return table.real_of(found, field.key, field.limits);
  }
}

}  // namespace

void read_layer_keys(const TableReader& table, LayerShape& layer) {
  for_each_layer_field([&](const auto& field) {
    if (table.has(field.key)) layer.*field.member = read_field(table, field);
  });
}

ParallelShape read_parallel_keys(const TableReader& table) {
  ParallelShape out;
  const auto size = [&](std::string_view key, int& value) {
    value = static_cast<int>(table.optional_integer(key, kSizeLimits).value_or(value));
  };
  size("dp", out.dp);
  size("cp", out.cp);
  size("mp", out.mp);
  size("ep", out.ep);
  size("esp", out.esp);
  size("pp", out.pp);
  if (table.has("cp_exchange"))
    out.cp_exchange = cp_exchange_from(table.text("cp_exchange"), table.where("cp_exchange"));
  if (table.has("placement")) out.ep_inside = ep_inside_from(table.text("placement"), table.where("placement"));
  return out;
}

LayerFile read_layer(const std::string& path) {
  const ConfigFile file = read_toml(path);
  const TableReader root(file, with(kLayerKeys, {"schema", "name", "source", "capacity_rounding", "parallel"}));
  root.integer("schema", {.min = 1, .max = 1});
  LayerFile out;
  out.file = path;
  out.name = root.name("name");
  if (root.has("source")) out.source = root.text("source", false);
  read_layer_keys(root, out.layer);
  out.names_dtype = root.has("dtype");
  out.parallel = read_parallel_keys(root.table("parallel", kParallelKeys));
  if (root.has("capacity_rounding"))
    out.rounding = rounding_from(root.text("capacity_rounding"), root.where("capacity_rounding"));
  return out;
}

LayerFile find_layer(const std::string& name_or_path) { return read_layer(find_config("layers", name_or_path)); }

}  // namespace moe
