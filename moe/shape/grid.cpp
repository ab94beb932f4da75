#include "moe/shape/grid.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/registry.h"
#include "moe/shape/layer_file.h"

namespace moe {
namespace {

constexpr size_t kMaxCandidates = 1000;  // limit for the candidates of one list

struct Candidates {
  std::vector<int64_t> batch, heads, seq, model_dim, hidden;
  std::vector<double> hidden_scale;                    // used if `hidden` is empty
  std::vector<std::optional<double>> capacity_factor;  // no value: "*", no token is dropped
  std::vector<Ffn> ffn;
  std::vector<int64_t> top_k;
  LayerShape fixed;                     // experts, dtype, gate, order, dispatcher, hook
  std::vector<int64_t> ranks, mp, esp;  // candidates in [parallel]; `ranks` is empty if the grid has no [parallel]
  int64_t ranks_per_node = 1;
  bool model_dim_per_esp = false, hidden_per_esp = false, experts_by_esp_groups = false;

  int64_t count() const {
    // The product is computed in floating point and bounded before it is converted, so that it can't overflow.
    double product = 1;
    for (const size_t size :
         {batch.size(), heads.size(), seq.size(), model_dim.size(), std::max(hidden.size(), hidden_scale.size()),
          capacity_factor.size(), ffn.size(), top_k.size(), std::max<size_t>(1, ranks.size()),
          std::max<size_t>(1, mp.size()), std::max<size_t>(1, esp.size())})
      product *= static_cast<double>(size);
    return static_cast<int64_t>(std::min(product, 2.0 * kMaxGridLayers));
  }
};

/// Returns the values of a list, or a single value, each read by `read`. Throws if two are equal.
template <class Value, class Read>
std::vector<Value> values_of(const TableReader& table, std::string_view key, Read read) {
  const ConfigValue& found = table.value(key);
  if (found.kind != ConfigKind::list) return {read(found)};
  if (found.items.size() > kMaxCandidates) table.fail(found, key, fmt::format("at most {}", kMaxCandidates));
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
  if (item.kind != ConfigKind::text)
    table.fail(item, "ffn", fmt::format("one of: simple, {}", fmt::join(row_names(ffn_parts()), ", ")));
  return item.text == "simple" ? Ffn::gpt : ffn_from(item.text, table.where("ffn"));
}

bool experts_by_esp_groups(const TableReader& table, const Candidates& candidates) {
  const ConfigValue& found = table.value("experts");
  if (found.kind != ConfigKind::text || found.text != "esp-groups") return false;
  if (candidates.ranks.empty()) table.fail(found, "experts", "[parallel] beside 'esp-groups'");
  return true;
}

int64_t experts_of(const TableReader& table) {
  const ConfigValue& found = table.value("experts");
  if (found.kind == ConfigKind::text && (found.text == "nodes" || found.text == "esp-groups")) return 0;
  if (found.kind == ConfigKind::text)
    table.fail(found, "experts", "'nodes' or a whole number >= 1; beside [parallel] also 'esp-groups'");
  return table.integer_of(found, "experts", kSizeLimits);
}

LayerShape fixed_of(const TableReader& table) {
  LayerShape fixed;
  fixed.experts = experts_of(table);
  if (table.has("dtype")) fixed.dtype = dtype_from(table.text("dtype"), table.where("dtype"));
  fixed.gate = table.optional_name("gate").value_or(fixed.gate);
  fixed.order = table.optional_name("order").value_or(fixed.order);
  fixed.dispatcher = table.optional_name("dispatcher").value_or(fixed.dispatcher);
  fixed.hook = table.optional_name("hook").value_or(fixed.hook);
  return fixed;
}

int64_t largest_esp(const Candidates& candidates) {
  return *std::max_element(candidates.esp.begin(), candidates.esp.end());
}

/// Checks that every hidden_scale times every model_dim is a whole hidden size.
void check_scales(const TableReader& table, const Candidates& candidates) {
  const int64_t most = candidates.model_dim_per_esp ? largest_esp(candidates) : 1;
  for (const double scale : candidates.hidden_scale)
    for (const int64_t model_dim : candidates.model_dim) {
      const double hidden = scale * static_cast<double>(model_dim);
      if (hidden < 1 || hidden != std::floor(hidden) || hidden * static_cast<double>(most) > kSizeLimits.max)
        table.fail("hidden_scale", fmt::format("{} of model_dim {}", scale, model_dim),
                   fmt::format("a whole hidden size from 1 to {}", kSizeLimits.max));
    }
}

void read_parallel(const TableReader& table, Candidates& out) {
  out.ranks = sizes_of(table, "ranks");
  out.ranks_per_node = table.integer("ranks_per_node", kSizeLimits);
  for (const int64_t ranks : out.ranks)
    if (ranks % out.ranks_per_node != 0)
      table.fail("ranks", fmt::format("{}", ranks),
                 fmt::format("multiples of ranks_per_node = {}", out.ranks_per_node));
  if (table.has("mp")) out.mp = sizes_of(table, "mp");
  if (table.has("esp")) out.esp = sizes_of(table, "esp");
}

/// Returns the values of `key`, or those of `key`_per_esp, which requires esp in [parallel]; `per_esp` says which of
/// the two keys the file has.
std::vector<int64_t> per_esp_or_whole(const TableReader& table, std::string_view key, const Candidates& candidates,
                                      bool& per_esp) {
  const std::string shard = fmt::format("{}_per_esp", key);
  per_esp = table.has(shard);
  if (!per_esp) return sizes_of(table, key);
  if (table.has(key)) table.fail(shard, fmt::format("both {} and {}", key, shard), "one of them");
  if (candidates.esp.empty()) table.fail(shard, "no esp in [parallel]", fmt::format("one beside {}", shard));
  const auto values = sizes_of(table, shard);
  const int64_t most = largest_esp(candidates);
  for (const int64_t value : values)
    if (value * most > static_cast<int64_t>(kSizeLimits.max))
      table.fail(shard, fmt::format("{} (of {} x esp {})", value * most, value, most),
                 fmt::format("at most {}", kSizeLimits.max));
  return values;
}

Candidates candidates_of(const TableReader& table, Candidates out) {
  out.batch = sizes_of(table, "batch");
  out.heads = sizes_of(table, "heads");
  out.seq = sizes_of(table, "seq");
  out.model_dim = per_esp_or_whole(table, "model_dim", out, out.model_dim_per_esp);
  const bool hidden = table.has("hidden") || table.has("hidden_per_esp");
  if (hidden == table.has("hidden_scale"))
    table.fail("hidden_scale", hidden ? "both hidden and hidden_scale" : "neither hidden nor hidden_scale",
               "one of them");
  if (hidden)
    out.hidden = per_esp_or_whole(table, "hidden", out, out.hidden_per_esp);
  else
    out.hidden_scale = values_of<double>(table, "hidden_scale", [&](const ConfigValue& item) {
      return table.real_of(item, "hidden_scale", kFactorLimits);
    });
  check_scales(table, out);
  out.capacity_factor = values_of<std::optional<double>>(
      table, "capacity_factor", [&](const ConfigValue& item) { return capacity_of(table, item); });
  out.ffn = values_of<Ffn>(table, "ffn", [&](const ConfigValue& item) { return ffn_of(table, item); });
  out.top_k = sizes_of(table, "top_k");
  out.experts_by_esp_groups = experts_by_esp_groups(table, out);
  out.fixed = fixed_of(table);
  return out;
}

GridLayer named(GridLayer layer, bool several_k) {
  const LayerShape& shape = layer.shape;
  const std::string factor = shape.capacity_factor ? fmt::format("{}", *shape.capacity_factor) : "none";
  layer.name = fmt::format("B{}-h{}-L{}-M{}-H{}-f{}-{}", shape.batch, shape.heads, shape.seq, shape.model_dim,
                           shape.hidden, factor, name_of(shape.ffn));
  if (several_k) layer.name += fmt::format("-k{}", shape.top_k);
  if (layer.parallel)
    layer.name =
        fmt::format("P{}-mp{}-esp{}-{}", layer.parallel->ranks(), layer.parallel->mp, layer.parallel->esp, layer.name);
  return layer;
}

/// Returns the groups of `ranks` ranks; an mp or esp of 0 leaves that group at its default.
ParallelShape parallel_of(const Candidates& c, int64_t ranks, int64_t mp, int64_t esp) {
  ParallelShape p;
  p.nodes = static_cast<int>(ranks / c.ranks_per_node);
  p.ranks_per_node = static_cast<int>(c.ranks_per_node);
  p.mp = static_cast<int>(mp);
  p.esp = static_cast<int>(esp);
  if (c.experts_by_esp_groups) p.ep = static_cast<int>(ranks / std::max<int64_t>(1, esp));
  return p;
}

/// Returns layer number `index` of the cartesian product; the last list varies fastest.
GridLayer layer_at(const Candidates& c, int64_t index) {
  const auto turn = [&](const auto& wheel) {
    const auto size = static_cast<int64_t>(wheel.size());
    const auto value = wheel[index % size];
    index /= size;
    return value;
  };
  GridLayer layer;
  LayerShape& shape = layer.shape = c.fixed;
  shape.top_k = turn(c.top_k);
  shape.ffn = turn(c.ffn);
  shape.capacity_factor = turn(c.capacity_factor);
  const double scale = c.hidden.empty() ? turn(c.hidden_scale) : 0;
  if (!c.hidden.empty()) shape.hidden = turn(c.hidden);
  shape.model_dim = turn(c.model_dim);
  shape.seq = turn(c.seq);
  shape.heads = turn(c.heads);
  shape.batch = turn(c.batch);
  const int64_t esp = c.esp.empty() ? 0 : turn(c.esp), mp = c.mp.empty() ? 0 : turn(c.mp);
  if (c.model_dim_per_esp) shape.model_dim *= esp;
  if (c.hidden_per_esp) shape.hidden *= esp;
  if (c.hidden.empty()) shape.hidden = std::llround(scale * static_cast<double>(shape.model_dim));
  if (!c.ranks.empty()) layer.parallel = parallel_of(c, turn(c.ranks), mp, esp);
  if (c.experts_by_esp_groups) shape.experts = layer.parallel->ep;
  return layer;
}

Grid read_whole(const ConfigFile& file) {
  const TableReader root(file, {"schema", "name", "source", "cluster", "capacity_rounding", "layers", "parallel"});
  root.integer("schema", {.min = 1, .max = 1});
  Grid grid;
  grid.file = file.path;
  grid.name = root.name("name");
  grid.source = root.text("source", false);
  grid.cluster = root.name("cluster");
  grid.rounding = rounding_from(root.text("capacity_rounding"), root.where("capacity_rounding"));
  const TableReader table = root.table(
      "layers", {"batch", "heads", "seq", "model_dim", "model_dim_per_esp", "hidden", "hidden_per_esp", "hidden_scale",
                 "capacity_factor", "ffn", "top_k", "experts", "dtype", "gate", "order", "dispatcher", "hook"});
  Candidates shapes;
  if (root.has("parallel")) {
    const TableReader parallel = root.table("parallel", {"ranks", "ranks_per_node", "mp", "esp", "memory_bytes"});
    read_parallel(parallel, shapes);
    grid.memory_bytes = parallel.optional_real("memory_bytes", kPositive);
  }
  const Candidates candidates = candidates_of(table, std::move(shapes));
  const int64_t count = candidates.count();
  if (count > kMaxGridLayers)
    root.fail("layers", fmt::format("more than {} layers", kMaxGridLayers), "fewer candidates");
  for (int64_t i = 0; i < count; ++i)
    grid.layers.push_back(named(layer_at(candidates, i), candidates.top_k.size() > 1));
  return grid;
}

Grid read_sample(const ConfigFile& file) {
  const TableReader root(file, {"schema", "name", "of", "only"});
  root.integer("schema", {.min = 1, .max = 1});
  const ConfigFile whole = read_toml(find_config("grids", root.name("of")));
  if (whole.root.find("of") != nullptr)
    root.fail("of", fmt::format("{}, itself a sample", root.name("of")), "a grid with layers of its own");
  Grid grid = read_whole(whole);
  grid.sample_of = std::exchange(grid.name, root.name("name"));
  grid.sample_of_file = std::exchange(grid.file, file.path);
  std::set<std::string> names;
  for (const ConfigValue& item : root.list("only")) {
    const bool known = item.kind == ConfigKind::text &&
                       std::ranges::find(grid.layers, item.text, &GridLayer::name) != grid.layers.end();
    if (!known) root.fail(item, "only", fmt::format("the name of a layer of {}", grid.sample_of));
    if (!names.insert(item.text).second) root.fail(item, "only", "each layer once");
  }
  std::erase_if(grid.layers, [&](const GridLayer& layer) { return !names.contains(layer.name); });
  return grid;
}

}  // namespace

Grid read_grid(const std::string& path) {
  const ConfigFile file = read_toml(path);
  return file.root.find("of") != nullptr ? read_sample(file) : read_whole(file);
}

std::vector<std::string> files_of(const Grid& grid) { return {grid.file, grid.sample_of_file}; }

Grid find_grid(const std::string& name_or_path) { return read_grid(find_config("grids", name_or_path)); }

}  // namespace moe
