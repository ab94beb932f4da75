#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "moe/cost/modules.h"
#include "moe/cost/profile_rows.h"

namespace moe {
namespace {

std::optional<Range> range_from(const TableReader& row, std::string_view key) {
  if (!row.has(key)) return std::nullopt;
  const auto& items = row.list(key);
  if (items.size() != 2) row.fail(row.value(key), key, "[least, most]");
  const double least = row.real_of(items[0], key, kNonNegative);
  return Range{least, row.real_of(items[1], key, {.above = least})};
}

Points points_from(const TableReader& row) {
  Points points;
  if (!row.has("points")) return points;
  constexpr std::string_view kKey = "points";
  for (const ConfigValue& item : row.list(kKey)) {
    if (item.kind != ConfigKind::list || item.items.size() != 2) row.fail(item, kKey, "[size, seconds] each");
    const double after = points.empty() ? 0 : points.back()[0];
    points.push_back({row.real_of(item.items[0], kKey, {.most = 1e18, .above = after}),  // ascending
                      row.real_of(item.items[1], kKey, {.most = kSeconds.most, .above = 0})});
  }
  if (points.size() < 2) row.fail(row.value(kKey), kKey, "at least two points");
  return points;
}

// Reads how well a row of any kind was fitted.
template <class Row>
void read_fit(const TableReader& table, Row& out) {
  out.r_squared = table.optional_real("r_squared", {.most = 1});
  out.held_out_error = table.optional_real("held_out_error", kNonNegative);
  out.verdict.held_out_worst = table.optional_real("held_out_worst", kNonNegative);
  if (table.has("weak")) out.verdict.weak = table.text("weak");
  constexpr std::string_view kKey = "set_aside";
  if (!table.has(kKey)) return;
  for (const ConfigValue& item : table.list(kKey)) {
    if (item.kind != ConfigKind::list || item.items.size() != 2) table.fail(item, kKey, "[size, seconds] each");
    out.verdict.set_aside.push_back(
        {table.real_of(item.items[0], kKey, kPositive), table.real_of(item.items[1], kKey, kPositive)});
  }
}

CommRow comm_from(const TableReader& row, const Profile& profile) {
  CommRow out = comm_row_from(row, [&](Network network) { return most_ranks(profile, network); });
  if (row.has("algorithm")) out.algorithm = row.choice("algorithm", kAlgorithms);
  out.node_limit = static_cast<int>(row.optional_integer("node_limit", {.least = 1, .most = 1 << 16}).value_or(0));
  read_fit(row, out);
  out.range_bytes = range_from(row, "range_bytes");
  out.points = points_from(row);
  return out;
}

ComputeRow compute_from(const TableReader& row) {
  ComputeRow out = compute_row_from(row);
  if (out.op == Op::copy && row.has("range_flops"))
    row.fail(row.value("range_flops"), "range_flops", "none beside op = 'copy'");
  read_fit(row, out);
  out.range_flops = range_from(row, "range_flops");
  return out;
}

ModuleRow module_from(const TableReader& row) {
  ModuleRow out = module_row_from(row);
  const bool by_byte = is_priced_by_byte(out.name);
  const std::string_view range = by_byte ? "range_bytes" : "range_flops";
  const std::string_view other = by_byte ? "range_flops" : "range_bytes";
  if (row.has(other)) row.fail(row.value(other), other, fmt::format("{} for name = '{}'", range, out.name));
  read_fit(row, out);
  out.range = range_from(row, range);
  return out;
}

std::vector<std::string> task_keys() {
  std::vector<std::string> keys{"name",           "phase",          "dtype",     "r_squared",
                                "held_out_error", "held_out_worst", "set_aside", "weak"};
  for (size_t t = 0; t < kTerms; ++t)
    for (const char* what : {"s_per", "range"}) keys.push_back(fmt::format("{}_{}", what, term_names()[t]));
  return keys;
}

TaskRow task_from(const TableReader& table) {
  TaskRow out;
  out.name = table.name("name");
  const std::string phase = table.choice("phase", {"forward", "backward", "step"});
  out.phase = phase == "forward" ? Phase::forward : phase == "backward" ? Phase::backward : Phase::step;
  out.dtype = dtype_from(table.text("dtype"), table.where("dtype"));
  for (size_t t = 0; t < kTerms; ++t) {
    const std::string_view term = term_names()[t];
    const std::string s_per = fmt::format("s_per_{}", term), range = fmt::format("range_{}", term);
    out.s_per[t] = table.optional_real(s_per, kSeconds).value_or(0);
    if (!table.has(range)) {
      if (table.has(s_per)) table.fail(table.value(s_per), range, "[least, most] beside it");
      continue;
    }
    const auto& items = table.list(range);
    if (items.size() != 2) table.fail(table.value(range), range, "[least, most]");
    out.least[t] = table.real_of(items[0], range, kNonNegative);
    out.most[t] = table.real_of(items[1], range, {.least = out.least[t]});
  }
  read_fit(table, out);
  return out;
}

Contention contention_from(const TableReader& root) {
  std::vector<std::string> keys;
  for (const ContentionPair& pair : contention_pairs()) {
    keys.push_back(pair.key());
    keys.push_back(pair.stall_key());
  }
  const std::vector<std::string_view> known(keys.begin(), keys.end());
  const TableReader table = root.table("contention", known);
  Contention out;
  for (const ContentionPair& pair : contention_pairs()) {
    out.*pair.factor = table.optional_real(pair.key(), {.least = 1, .most = 1e6}).value_or(1);
    pair.stall_s(out) = table.optional_real(pair.stall_key(), kSeconds).value_or(0);
  }
  return out;
}

/// Reads all rows of `key`; two rows with the same `identity` are an error at the second one.
template <class Row, class Read, class Identity>
std::vector<Row> rows_of(const std::vector<TableReader>& tables, std::string_view key, Read read, Identity identity) {
  std::vector<Row> rows;
  for (const TableReader& table : tables) {
    Row row = read(table);
    for (const Row& earlier : rows)
      if (identity(earlier) == identity(row)) table.fail(key, "a second row of the same kind", "each row once");
    rows.push_back(std::move(row));
  }
  return rows;
}

void read_rows(const TableReader& root, Profile& out) {
  out.comm = rows_of<CommRow>(
      root.tables("comm",
                  {"op", "network", "ranks", "alpha_s", "beta_s_per_byte", "algorithm", "node_limit", "r_squared",
                   "held_out_error", "held_out_worst", "set_aside", "weak", "range_bytes", "points"}),
      "op", [&](const TableReader& table) { return comm_from(table, out); },
      [](const CommRow& r) { return std::tie(r.op, r.network, r.ranks, r.algorithm); });
  out.compute = rows_of<ComputeRow>(
      root.tables("compute", {"op", "ffn", "dtype", "alpha_s", "beta_s_per_flop", "beta_s_per_byte", "r_squared",
                              "held_out_error", "held_out_worst", "set_aside", "weak", "range_flops"}),
      "op", compute_from, [](const ComputeRow& r) { return std::tie(r.op, r.ffn, r.dtype); });
  out.modules = rows_of<ModuleRow>(
      root.tables("module", {"name", "phase", "seq", "alpha_s", "beta_s_per_flop", "beta_s_per_byte", "r_squared",
                             "held_out_error", "held_out_worst", "set_aside", "weak", "range_flops", "range_bytes"}),
      "name", module_from, [](const ModuleRow& r) { return std::tie(r.name, r.phase, r.seq); });
  const std::vector<std::string> of_tasks = task_keys();
  const std::vector<std::string_view> known(of_tasks.begin(), of_tasks.end());
  out.tasks = rows_of<TaskRow>(root.tables("task", std::span(known)), "name", task_from,
                               [](const TaskRow& r) { return std::tie(r.name, r.phase, r.dtype); });
  out.unusable = rows_of<UnusableRow>(
      root.tables("unusable", {"row", "reason"}), "row",
      [](const TableReader& table) {
        return UnusableRow{table.text("row"), table.text("reason")};
      },
      [](const UnusableRow& r) { return r.row; });
}

}  // namespace

Profile profile_of(const ConfigFile& file) {
  const TableReader root(file, {"schema", "name", "summary", "source", "topology", "comm", "compute", "module", "task",
                                "unusable", "overhead", "contention"});
  root.integer("schema", {.least = 1, .most = 1});
  Profile out;
  out.file = file.path;
  out.name = root.text("name");
  if (!is_profile_name(out.name)) root.fail(root.value("name"), "name", kProfileName);
  if (root.has("summary")) root.text("summary");  // what the cluster is, for `list`
  out.source = root.text("source", false);
  const TableReader topology = root.table("topology", {"nodes", "ranks_per_node", "memory_bytes"});
  out.nodes = static_cast<int>(topology.integer("nodes", {.least = 1, .most = kMostNodes}));
  out.ranks_per_node = static_cast<int>(topology.integer("ranks_per_node", {.least = 1, .most = kMostRanksPerNode}));
  out.memory_bytes = topology.optional_real("memory_bytes", kPositive);
  read_rows(root, out);
  out.task_overhead_s = root.table("overhead", {"task_s"}).optional_real("task_s", kSeconds).value_or(0);
  out.contention = contention_from(root);
  return out;
}

Profile read_profile(const std::string& path) { return profile_of(read_toml(path)); }

bool is_profile_name(std::string_view text) {
  return !text.empty() && is_line(text) && text.find('/') == std::string_view::npos;
}

Profile find_profile(const std::string& name_or_path) { return read_profile(find_config("clusters", name_or_path)); }

}  // namespace moe
