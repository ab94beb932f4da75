#include "moe/plan/grid.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/plan/layer_file.h"

namespace moe {
namespace {

constexpr size_t kMostCandidates = 1000;  // of one list

struct Candidates {
  std::vector<int64_t> batch, heads, seq, model_dim, hidden;
  std::vector<double> hidden_scale;                    // used where hidden is empty
  std::vector<std::optional<double>> capacity_factor;  // empty: "*"
  std::vector<Ffn> ffn;
  std::vector<int64_t> top_k;
  LayerShape fixed;  // experts, dtype, gate, order, dispatcher

  int64_t count() const {
    // In floating point, and bounded before it is a whole number: it can't overflow.
    double product = 1;
    for (const size_t size :
         {batch.size(), heads.size(), seq.size(), model_dim.size(), std::max(hidden.size(), hidden_scale.size()),
          capacity_factor.size(), ffn.size(), top_k.size()})
      product *= static_cast<double>(size);
    return static_cast<int64_t>(std::min(product, 2.0 * kMostGridLayers));
  }
};

/// The values of a list, or the one value; each read by `read`, no two alike.
template <class Value, class Read>
std::vector<Value> values_of(const TableReader& table, std::string_view key, Read read) {
  const ConfigValue& found = table.value(key);
  if (found.kind != ConfigKind::list) return {read(found)};
  if (found.items.size() > kMostCandidates) table.fail(found, key, fmt::format("at most {}", kMostCandidates));
  std::vector<Value> values;
  for (const ConfigValue& item : table.list(key)) {
    const Value value = read(item);
    for (const Value& earlier : values)
      if (earlier == value) table.fail(item, key, "each candidate once");
    values.push_back(value);
  }
  return values;
}

std::vector<int64_t> sizes_of(const TableReader& table, std::string_view key) {
  return values_of<int64_t>(table, key,
                            [&](const ConfigValue& item) { return table.integer_of(item, key, kSizeLimits); });
}

std::optional<double> capacity_of(const TableReader& table, const ConfigValue& item) {
  constexpr std::string_view kKey = "capacity_factor";
  if (item.kind == ConfigKind::text && item.text == "*") return std::nullopt;
  if (item.kind == ConfigKind::text) table.fail(item, kKey, "a number > 0 or '*'");
  return table.real_of(item, kKey, kFactorLimits);
}

Ffn ffn_of(const TableReader& table, const ConfigValue& item) {
  if (item.kind != ConfigKind::text) table.fail(item, "ffn", "one of: gpt, simple, mixtral");
  return item.text == "simple" ? Ffn::gpt : ffn_from(item.text, table.where("ffn"));
}

int64_t experts_of(const TableReader& table) {
  const ConfigValue& found = table.value("experts");
  if (found.kind == ConfigKind::text && found.text == "nodes") return 0;
  if (found.kind == ConfigKind::text) table.fail(found, "experts", "'nodes' or a whole number >= 1");
  return table.integer_of(found, "experts", kSizeLimits);
}

LayerShape fixed_of(const TableReader& table) {
  LayerShape fixed;
  fixed.experts = experts_of(table);
  if (table.has("dtype")) fixed.dtype = dtype_from(table.text("dtype"), table.where("dtype"));
  fixed.gate = table.optional_name("gate").value_or(fixed.gate);
  fixed.order = table.optional_name("order").value_or(fixed.order);
  fixed.dispatcher = table.optional_name("dispatcher").value_or(fixed.dispatcher);
  return fixed;
}

/// H / M gives a whole H for every M.
void check_scales(const TableReader& table, const Candidates& candidates) {
  for (const double scale : candidates.hidden_scale)
    for (const int64_t model_dim : candidates.model_dim) {
      const double hidden = scale * static_cast<double>(model_dim);
      if (hidden < 1 || hidden != std::floor(hidden) || hidden > kSizeLimits.most)
        table.fail("hidden_scale", fmt::format("{} of model_dim {}", scale, model_dim),
                   fmt::format("a whole hidden size from 1 to {}", kSizeLimits.most));
    }
}

Candidates candidates_of(const TableReader& table) {
  Candidates out;
  out.batch = sizes_of(table, "batch");
  out.heads = sizes_of(table, "heads");
  out.seq = sizes_of(table, "seq");
  out.model_dim = sizes_of(table, "model_dim");
  if (table.has("hidden") == table.has("hidden_scale"))
    table.fail("hidden_scale", table.has("hidden") ? "both hidden and hidden_scale" : "neither hidden nor hidden_scale",
               "one of them");
  if (table.has("hidden"))
    out.hidden = sizes_of(table, "hidden");
  else
    out.hidden_scale = values_of<double>(table, "hidden_scale", [&](const ConfigValue& item) {
      return table.real_of(item, "hidden_scale", kFactorLimits);
    });
  check_scales(table, out);
  out.capacity_factor = values_of<std::optional<double>>(
      table, "capacity_factor", [&](const ConfigValue& item) { return capacity_of(table, item); });
  out.ffn = values_of<Ffn>(table, "ffn", [&](const ConfigValue& item) { return ffn_of(table, item); });
  out.top_k = sizes_of(table, "top_k");
  out.fixed = fixed_of(table);
  return out;
}

GridLayer named(LayerShape shape, bool several_k) {
  const std::string factor = shape.capacity_factor ? fmt::format("{}", *shape.capacity_factor) : "none";
  std::string name = fmt::format("B{}-h{}-L{}-M{}-H{}-f{}-{}", shape.batch, shape.heads, shape.seq, shape.model_dim,
                                 shape.hidden, factor, name_of(shape.ffn));
  if (several_k) name += fmt::format("-k{}", shape.top_k);
  const bool drops_nothing = !shape.capacity_factor;
  return {std::move(name), std::move(shape), drops_nothing};
}

/// The layer number `index`, as an odometer whose last wheel turns fastest.
LayerShape layer_at(const Candidates& c, int64_t index) {
  const auto turn = [&](const auto& wheel) {
    const auto size = static_cast<int64_t>(wheel.size());
    const auto value = wheel[static_cast<size_t>(index % size)];
    index /= size;
    return value;
  };
  LayerShape shape = c.fixed;
  shape.top_k = turn(c.top_k);
  shape.ffn = turn(c.ffn);
  shape.capacity_factor = turn(c.capacity_factor);
  const double scale = c.hidden.empty() ? turn(c.hidden_scale) : 0;
  if (!c.hidden.empty()) shape.hidden = turn(c.hidden);
  shape.model_dim = turn(c.model_dim);
  if (c.hidden.empty()) shape.hidden = std::llround(scale * static_cast<double>(shape.model_dim));
  shape.seq = turn(c.seq);
  shape.heads = turn(c.heads);
  shape.batch = turn(c.batch);
  return shape;
}

}  // namespace

Grid read_grid(const std::string& path) {
  const ConfigFile file = read_toml(path);
  const TableReader root(file, {"schema", "name", "source", "cluster", "capacity_rounding", "layers"});
  root.integer("schema", {.least = 1, .most = 1});
  Grid grid;
  grid.file = path;
  grid.name = root.name("name");
  grid.source = root.text("source", false);
  grid.cluster = root.name("cluster");
  grid.rounding = rounding_from(root.text("capacity_rounding"), root.where("capacity_rounding"));
  const TableReader table =
      root.table("layers", {"batch", "heads", "seq", "model_dim", "hidden", "hidden_scale", "capacity_factor", "ffn",
                            "top_k", "experts", "dtype", "gate", "order", "dispatcher"});
  const Candidates candidates = candidates_of(table);
  const int64_t count = candidates.count();
  if (count > kMostGridLayers)
    root.fail("layers", fmt::format("more than {} layers", kMostGridLayers), "fewer candidates");
  for (int64_t i = 0; i < count; ++i)
    grid.layers.push_back(named(layer_at(candidates, i), candidates.top_k.size() > 1));
  return grid;
}

Grid find_grid(const std::string& name_or_path) { return read_grid(find_config("grids", name_or_path)); }

}  // namespace moe
