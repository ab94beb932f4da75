#include "moe/prices/profile.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <ostream>
#include <tuple>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "moe/base/enum_array.h"
#include "moe/prices/composed_profile.h"
#include "moe/prices/modules.h"

namespace moe {
namespace {

using enum Resource;
constexpr std::array<ContentionPair, kContendedResources*(kContendedResources - 1)> kPairs{
    {{intra, inter, &Contention::intra_by_inter},
     {inter, intra, &Contention::inter_by_intra},
     {compute, inter, &Contention::compute_by_inter},
     {compute, intra, &Contention::compute_by_intra},
     {inter, compute, &Contention::inter_by_compute},
     {intra, compute, &Contention::intra_by_compute},
     {copy, inter, &Contention::copy_by_inter},
     {copy, intra, &Contention::copy_by_intra},
     {copy, compute, &Contention::copy_by_compute},
     {inter, copy, &Contention::inter_by_copy},
     {intra, copy, &Contention::intra_by_copy},
     {compute, copy, &Contention::compute_by_copy}}};

}  // namespace

std::string_view name_of(Resource resource) {
  static constexpr EnumArray<Resource, std::string_view, kResources> kNames{"compute", "inter", "intra", "copy",
                                                                            "none"};
  return kNames[resource];
}

std::string ContentionPair::key() const { return std::string(name_of(slowed)) + "_by_" + std::string(name_of(by)); }

std::span<const ContentionPair> contention_pairs() { return kPairs; }

namespace {

Op op_from(const TableReader& row, OpTable table) { return *find_op(row.choice("op", names_of(table))); }

// Reads the beta per byte or per FLOP, whichever the row needs; the other key is an error.
double beta_from(const TableReader& row, bool by_byte, const Limits& range, const std::string& what) {
  const std::string_view unit = by_byte ? "beta_s_per_byte" : "beta_s_per_flop";
  const std::string_view other = by_byte ? "beta_s_per_flop" : "beta_s_per_byte";
  if (row.has(other)) row.fail(row.value(other), other, fmt::format("{} for {}", unit, what));
  return row.real(unit, range);
}

}  // namespace

CommRow comm_row_from(const TableReader& table, const std::function<double(Network)>& max_ranks) {
  CommRow out;
  out.op = op_from(table, OpTable::comm);
  out.network = table.choice("network", {"inter", "intra"}) == "inter" ? Network::inter : Network::intra;
  out.ranks =
      static_cast<int>(table.integer("ranks", {.min = 2, .max = out.op == Op::sendrecv ? 2 : max_ranks(out.network)}));
  out.alpha_s = table.real("alpha_s", kSeconds);
  out.beta_s_per_byte = table.real("beta_s_per_byte", kSecondsPerUnit);
  return out;
}

ComputeRow compute_row_from(const TableReader& table) {
  ComputeRow out;
  out.op = op_from(table, OpTable::compute);
  const std::string what = fmt::format("op = '{}'", name_of(out.op));
  if (out.op == Op::expert) out.ffn = ffn_from(table.text("ffn"), table.where("ffn"));
  if (out.op != Op::expert && table.has("ffn")) table.fail(table.value("ffn"), "ffn", "none beside " + what);
  if (table.has("dtype")) out.dtype = dtype_from(table.text("dtype"), table.where("dtype"));
  out.alpha_s = table.real("alpha_s", kSeconds);
  const bool copy = copies(out.op);
  (copy ? out.beta_s_per_byte : out.beta_s_per_flop) = beta_from(table, copy, kSecondsPerUnit, what);
  return out;
}

ModuleRow module_row_from(const TableReader& table) {
  ModuleRow out;
  out.name = table.name("name");
  out.phase = table.choice("phase", {"forward", "backward"}) == "forward" ? Phase::forward : Phase::backward;
  out.seq = table.optional_integer("seq", {.min = 1});
  out.alpha_s = table.real("alpha_s", kSeconds);
  const bool by_byte = is_priced_by_byte(out.name);
  (by_byte ? out.beta_s_per_byte : out.beta_s_per_flop) =
      beta_from(table, by_byte, {.min = 0, .max = kSecondsPerUnit.max},
                fmt::format("name = '{}'", out.name));  // beta may be 0 if only one size was measured
  return out;
}

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
    points.push_back({row.real_of(item.items[0], kKey, {.max = 1e18, .above = after}),  // sizes must ascend
                      row.real_of(item.items[1], kKey, {.max = kSeconds.max, .above = 0})});
  }
  if (points.size() < 2) row.fail(row.value(kKey), kKey, "at least two points");
  return points;
}

// Reads the keys of any row that say how well it was fitted.
template <class Row>
void read_fit(const TableReader& table, Row& out) {
  out.r_squared = table.optional_real("r_squared", {.max = 1});
  out.held_out_error = table.optional_real("held_out_error", kNonNegative);
  out.verdict.held_out_worst = table.optional_real("held_out_worst", kNonNegative);
  if (table.has("weak")) out.verdict.weak = table.text("weak");
  if (table.has("origin")) out.verdict.origin = table.text("origin");
  constexpr std::string_view kKey = "set_aside";
  if (!table.has(kKey)) return;
  for (const ConfigValue& item : table.list(kKey)) {
    if (item.kind != ConfigKind::list || item.items.size() != 2) table.fail(item, kKey, "[size, seconds] each");
    out.verdict.set_aside.push_back(
        {table.real_of(item.items[0], kKey, kPositive), table.real_of(item.items[1], kKey, kPositive)});
  }
}

}  // namespace

std::vector<std::string_view> algorithms() {
  std::vector<std::string_view> names = row_names(dispatcher_parts());
  names.front() = "direct";
  return names;
}

namespace {

CommRow comm_from(const TableReader& row, const Profile& profile) {
  CommRow out = comm_row_from(row, [&](Network network) { return max_ranks(profile, network); });
  if (row.has("algorithm")) out.algorithm = row.choice("algorithm", std::span<const std::string_view>(algorithms()));
  out.ranks_per_node = static_cast<int>(
      row.optional_integer("ranks_per_node", {.min = 1, .max = 1.0 * profile.ranks_per_node}).value_or(0));
  if (out.ranks_per_node > 0 && (out.network != Network::inter || out.op == Op::sendrecv))
    row.fail(row.value("ranks_per_node"), "ranks_per_node", "none but of a collective with network = 'inter'");
  if (out.ranks_per_node > 0 && 2 * out.ranks_per_node > out.ranks)
    row.fail(row.value("ranks_per_node"), "ranks_per_node",
             fmt::format("at most {}, half of ranks = {}", out.ranks / 2, out.ranks));
  out.node_limit = static_cast<int>(row.optional_integer("node_limit", {.min = 1, .max = 1 << 16}).value_or(0));
  out.sent_share = row.optional_real("sent_share", {.max = 1, .above = 0}).value_or(0);
  if (out.sent_share > 0 && out.op != Op::alltoall)
    row.fail(row.value("sent_share"), "sent_share", "none but of op = 'alltoall'");
  read_fit(row, out);
  out.range_bytes = range_from(row, "range_bytes");
  out.points = points_from(row);
  return out;
}

ComputeRow compute_from(const TableReader& row) {
  ComputeRow out = compute_row_from(row);
  if (copies(out.op) && row.has("range_flops"))
    row.fail(row.value("range_flops"), "range_flops", fmt::format("none beside op = '{}'", name_of(out.op)));
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
  std::vector<std::string> keys{"name",           "phase",     "dtype", "r_squared", "held_out_error",
                                "held_out_worst", "set_aside", "weak",  "origin"};
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
    const std::string seconds_per_term = fmt::format("s_per_{}", term), range = fmt::format("range_{}", term);
    out.seconds_per_term[t] = table.optional_real(seconds_per_term, kSeconds).value_or(0);
    if (!table.has(range)) {
      if (table.has(seconds_per_term)) table.fail(table.value(seconds_per_term), range, "[least, most] beside it");
      continue;
    }
    const auto& items = table.list(range);
    if (items.size() != 2) table.fail(table.value(range), range, "[least, most]");
    out.min[t] = table.real_of(items[0], range, kNonNegative);
    out.max[t] = table.real_of(items[1], range, {.min = out.min[t]});
  }
  read_fit(table, out);
  return out;
}

constexpr Limits kRate{.max = 1e18, .above = 0}, kShareOfPeak{.max = 1, .above = 0};

AttentionRate attention_from(const TableReader& row) {
  AttentionRate out;
  out.head_dim = row.integer("head_dim", {.min = 1, .max = 1 << 16});
  out.phase = row.choice("phase", {"forward", "backward"}) == "forward" ? Phase::forward : Phase::backward;
  constexpr std::string_view kKey = "flops_per_s";
  for (const ConfigValue& item : row.list(kKey)) {
    if (item.kind != ConfigKind::list || item.items.size() != 2) row.fail(item, kKey, "[tokens, FLOP/s] each");
    const double after = out.flops_per_s.empty() ? 0 : out.flops_per_s.back()[0];
    out.flops_per_s.push_back(
        {row.real_of(item.items[0], kKey, {.max = 1e18, .above = after}), row.real_of(item.items[1], kKey, kRate)});
  }
  return out;
}

GpuModel gpu_from(const TableReader& table) {
  GpuModel out;
  out.name = table.text("name");
  out.multiprocessors = static_cast<int>(table.integer("multiprocessors", {.min = 1, .max = 1 << 16}));
  out.tensor_flops_per_s = table.real("tensor_flops_per_s", kRate);
  out.memory_bytes_per_s = table.real("memory_bytes_per_s", kRate);
  out.memory_share = table.real("memory_share", kShareOfPeak);
  out.gemm_share = table.real("gemm_share", kShareOfPeak);
  out.gemm_tile_s = table.real("gemm_tile_s", kSeconds);
  out.grouped_share = table.optional_real("grouped_share", kShareOfPeak).value_or(out.gemm_share);
  out.grouped_tile_s = table.optional_real("grouped_tile_s", kSeconds).value_or(out.gemm_tile_s);
  if (table.has("origin")) out.origin = table.text("origin");
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
    out.*pair.factor = table.optional_real(pair.key(), {.min = 1, .max = 1e6}).value_or(1);
    pair.stall_s(out) = table.optional_real(pair.stall_key(), kSeconds).value_or(0);
  }
  return out;
}

/// Reads all rows of `key`. Two rows with the same `identity` are an error, reported at the second one.
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
      root.tables("comm", {"op", "network", "ranks", "ranks_per_node", "alpha_s", "beta_s_per_byte", "algorithm",
                           "node_limit", "sent_share", "r_squared", "held_out_error", "held_out_worst", "set_aside",
                           "weak", "origin", "range_bytes", "points"}),
      "op", [&](const TableReader& table) { return comm_from(table, out); },
      [](const CommRow& r) { return std::tie(r.op, r.network, r.ranks, r.ranks_per_node, r.algorithm); });
  out.compute = rows_of<ComputeRow>(
      root.tables("compute", {"op", "ffn", "dtype", "alpha_s", "beta_s_per_flop", "beta_s_per_byte", "r_squared",
                              "held_out_error", "held_out_worst", "set_aside", "weak", "origin", "range_flops"}),
      "op", compute_from, [](const ComputeRow& r) { return std::tie(r.op, r.ffn, r.dtype); });
  out.modules =
      rows_of<ModuleRow>(root.tables("module", {"name", "phase", "seq", "alpha_s", "beta_s_per_flop", "beta_s_per_byte",
                                                "r_squared", "held_out_error", "held_out_worst", "set_aside", "weak",
                                                "origin", "range_flops", "range_bytes"}),
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

void read_gpu(const TableReader& root, Profile& out) {
  const auto attention = root.tables("attention", {"head_dim", "phase", "flops_per_s"});
  if (!root.has("gpu")) {
    if (!attention.empty()) attention.front().fail("head_dim", "a row of attention", "a table [gpu] beside it");
    return;
  }
  out.gpu =
      gpu_from(root.table("gpu", {"name", "multiprocessors", "tensor_flops_per_s", "memory_bytes_per_s", "memory_share",
                                  "gemm_share", "gemm_tile_s", "grouped_share", "grouped_tile_s", "origin"}));
  out.gpu->attention = rows_of<AttentionRate>(attention, "head_dim", attention_from,
                                              [](const AttentionRate& r) { return std::tie(r.head_dim, r.phase); });
}

}  // namespace

Profile profile_of(const ConfigFile& file) {
  const TableReader root(file, {"schema", "name", "summary", "source", "topology", "comm", "compute", "module", "task",
                                "unusable", "gpu", "attention", "overhead", "contention"});
  root.integer("schema", {.min = 1, .max = 1});
  Profile out;
  out.file = file.path;
  out.name = root.text("name");
  if (!is_profile_name(out.name)) root.fail(root.value("name"), "name", kProfileName);
  if (root.has("summary")) root.text("summary");  // description of the cluster, for `list`
  out.source = root.text("source", false);
  const TableReader topology = root.table("topology", {"nodes", "ranks_per_node", "memory_bytes"});
  out.nodes = static_cast<int>(topology.integer("nodes", {.min = 1, .max = kMaxNodes}));
  out.ranks_per_node = static_cast<int>(topology.integer("ranks_per_node", {.min = 1, .max = kMaxRanksPerNode}));
  out.memory_bytes = topology.optional_real("memory_bytes", kPositive);
  read_rows(root, out);
  read_gpu(root, out);
  out.task_overhead_s = root.table("overhead", {"task_s"}).optional_real("task_s", kSeconds).value_or(0);
  out.contention = contention_from(root);
  return out;
}

Profile read_profile(const std::string& path) { return profile_of(read_toml(path)); }

bool is_profile_name(std::string_view text) {
  return !text.empty() && is_line(text) && text.find('/') == std::string_view::npos;
}

Profile find_profile(const std::string& name_or_path, std::optional<int> nodes, std::vector<std::string> besides) {
  const auto known = known_config("clusters", name_or_path);
  if (!known)
    if (auto composed = composed_profile(name_or_path, nodes)) return *std::move(composed);
  besides.emplace_back(kComposedExample);
  Profile profile = read_profile(known ? *known : find_config("clusters", name_or_path, besides));
  profile.nodes = nodes.value_or(profile.nodes);
  return profile;
}

namespace {

// Returns the text as a TOML basic string; bytes that are not UTF-8 become '?'.
std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", static_cast<char>(c));
    else if (c < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", c);
    else
      out += static_cast<char>(c);
  }
  if (!is_line(out))
    for (char& c : out)
      if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return out + '"';
}

// Writes a key with the shortest number that reads back as the same double.
void write_number(std::ostream& out, std::string_view key, double value) { fmt::print(out, "{} = {}\n", key, value); }

void write_optional(std::ostream& out, std::string_view key, const std::optional<double>& value) {
  if (value) write_number(out, key, *value);
}

void write_range(std::ostream& out, std::string_view key, const std::optional<Range>& range) {
  if (range) fmt::print(out, "{} = [{}, {}]\n", key, (*range)[0], (*range)[1]);
}

void write_pairs(std::ostream& out, std::string_view key, const Points& pairs) {
  if (pairs.empty()) return;
  fmt::print(out, "{} = [\n", key);
  for (const auto& [size, seconds] : pairs) fmt::print(out, "  [{}, {}],\n", size, seconds);
  fmt::print(out, "]\n");
}

void write_origin(std::ostream& out, const std::string& origin) {
  if (!origin.empty()) fmt::print(out, "origin = {}\n", toml_text(origin));
}

template <class Row>
void write_fit(std::ostream& out, const Row& row) {
  write_origin(out, row.verdict.origin);
  write_optional(out, "r_squared", row.r_squared);
  write_optional(out, "held_out_error", row.held_out_error);
  write_optional(out, "held_out_worst", row.verdict.held_out_worst);
  if (row.verdict.weak) fmt::print(out, "weak = {}\n", toml_text(*row.verdict.weak));
  write_pairs(out, "set_aside", row.verdict.set_aside);
}

void write(std::ostream& out, const CommRow& row) {
  fmt::print(out, "\n[[comm]]\nop = \"{}\"\nnetwork = \"{}\"\nranks = {}\n", name_of(row.op), name_of(row.network),
             row.ranks);
  if (row.ranks_per_node > 0) fmt::print(out, "ranks_per_node = {}\n", row.ranks_per_node);
  write_number(out, "alpha_s", row.alpha_s);
  write_number(out, "beta_s_per_byte", row.beta_s_per_byte);
  if (row.algorithm != CommRow{}.algorithm) fmt::print(out, "algorithm = \"{}\"\n", row.algorithm);
  if (row.node_limit > 0) fmt::print(out, "node_limit = {}\n", row.node_limit);
  if (row.sent_share > 0) write_number(out, "sent_share", row.sent_share);
  write_fit(out, row);
  write_range(out, "range_bytes", row.range_bytes);
  write_pairs(out, "points", row.points);
}

void write(std::ostream& out, const ComputeRow& row) {
  fmt::print(out, "\n[[compute]]\nop = \"{}\"\n", name_of(row.op));
  if (row.ffn) fmt::print(out, "ffn = \"{}\"\n", name_of(*row.ffn));
  if (!copies(row.op)) fmt::print(out, "dtype = \"{}\"\n", name_of(row.dtype));
  write_number(out, "alpha_s", row.alpha_s);
  if (copies(row.op))
    write_number(out, "beta_s_per_byte", row.beta_s_per_byte);
  else
    write_number(out, "beta_s_per_flop", row.beta_s_per_flop);
  write_fit(out, row);
  write_range(out, "range_flops", row.range_flops);
}

void write(std::ostream& out, const ModuleRow& row) {
  fmt::print(out, "\n[[module]]\nname = {}\nphase = \"{}\"\n", toml_text(row.name), name_of(row.phase));
  if (row.seq) fmt::print(out, "seq = {}\n", *row.seq);
  write_number(out, "alpha_s", row.alpha_s);
  const bool by_byte = is_priced_by_byte(row.name);
  write_number(out, by_byte ? "beta_s_per_byte" : "beta_s_per_flop", row.beta());
  write_fit(out, row);
  write_range(out, by_byte ? "range_bytes" : "range_flops", row.range);
}

void write(std::ostream& out, const TaskRow& row) {
  fmt::print(out, "\n[[task]]\nname = {}\nphase = \"{}\"\ndtype = \"{}\"\n", toml_text(row.name), name_of(row.phase),
             name_of(row.dtype));
  for (size_t t = 0; t < kTerms; ++t) {
    if (row.max[t] == 0) continue;
    const std::string_view term = term_names()[t];
    write_number(out, fmt::format("s_per_{}", term), row.seconds_per_term[t]);
    fmt::print(out, "range_{} = [{}, {}]\n", term, row.min[t], row.max[t]);
  }
  write_fit(out, row);
}

void write(std::ostream& out, const UnusableRow& row) {
  fmt::print(out, "\n[[unusable]]\nrow = {}\nreason = {}\n", toml_text(row.row), toml_text(row.reason));
}

void write(std::ostream& out, const GpuModel& gpu) {
  fmt::print(out, "\n[gpu]\nname = {}\nmultiprocessors = {}\n", toml_text(gpu.name), gpu.multiprocessors);
  write_number(out, "tensor_flops_per_s", gpu.tensor_flops_per_s);
  write_number(out, "memory_bytes_per_s", gpu.memory_bytes_per_s);
  write_number(out, "memory_share", gpu.memory_share);
  write_number(out, "gemm_share", gpu.gemm_share);
  write_number(out, "gemm_tile_s", gpu.gemm_tile_s);
  write_number(out, "grouped_share", gpu.grouped_share);
  write_number(out, "grouped_tile_s", gpu.grouped_tile_s);
  write_origin(out, gpu.origin);
  for (const AttentionRate& row : gpu.attention) {
    fmt::print(out, "\n[[attention]]\nhead_dim = {}\nphase = \"{}\"\n", row.head_dim, name_of(row.phase));
    write_pairs(out, "flops_per_s", row.flops_per_s);
  }
}

void write(std::ostream& out, const Contention& contention) {
  fmt::print(out, "\n[contention]\n");
  for (const ContentionPair& pair : contention_pairs()) {
    if (contention.*pair.factor != 1) write_number(out, pair.key(), contention.*pair.factor);
    if (pair.stall_s(contention) != 0) write_number(out, pair.stall_key(), pair.stall_s(contention));
  }
}

}  // namespace

std::string row_name(const CommRow& row) {
  const std::string algorithm = row.algorithm == CommRow{}.algorithm ? "" : " " + row.algorithm;
  const std::string spread = row.ranks_per_node > 0 ? fmt::format(" {}-a-node", row.ranks_per_node) : "";
  return fmt::format("{} {} {}{}{}", name_of(row.op), name_of(row.network), row.ranks, spread, algorithm);
}

std::string row_name(const ComputeRow& row) {
  if (copies(row.op)) return std::string(name_of(row.op));  // for any type
  return fmt::format("{}{} {}", name_of(row.op), row.ffn ? fmt::format(" {}", name_of(*row.ffn)) : "",
                     name_of(row.dtype));
}

std::string row_name(const ModuleRow& row) {
  return fmt::format("{} {}{}", row.name, name_of(row.phase), row.seq ? fmt::format(" {}", *row.seq) : "");
}

std::string row_name(const TaskRow& row) {
  return fmt::format("task {} {} {}", row.name, name_of(row.phase), name_of(row.dtype));
}

void write_profile(const Profile& profile, std::ostream& out) {
  fmt::print(out, "schema = 1\nname = {}\nsource = {}\n", toml_text(profile.name), toml_text(profile.source));
  fmt::print(out, "\n[topology]\nnodes = {}\nranks_per_node = {}\n", profile.nodes, profile.ranks_per_node);
  write_optional(out, "memory_bytes", profile.memory_bytes);
  for (const auto& row : profile.comm) write(out, row);
  for (const auto& row : profile.compute) write(out, row);
  for (const auto& row : profile.modules) write(out, row);
  for (const auto& row : profile.tasks) write(out, row);
  for (const auto& row : profile.unusable) write(out, row);
  if (profile.gpu) write(out, *profile.gpu);
  if (profile.task_overhead_s != 0) {
    fmt::print(out, "\n[overhead]\n");
    write_number(out, "task_s", profile.task_overhead_s);
  }
  if (!profile.contention.none()) write(out, profile.contention);
}

namespace {

constexpr std::string_view kGpuTable = "[gpu]";
constexpr size_t kNamed = 4;  // limit for the rows that are named per origin

// Adds the rows of `others` that `own` does not have.
template <class Row>
void add_missing(std::vector<Row>& own, const std::vector<Row>& others, const std::string& origin,
                 std::vector<std::string>& added) {
  for (const Row& row : others) {
    const std::string name = row_name(row);
    if (std::ranges::any_of(own, [&](const Row& known) { return row_name(known) == name; })) continue;
    own.push_back(row);
    if (own.back().verdict.origin.empty()) own.back().verdict.origin = origin;
    added.push_back(name);
  }
}

}  // namespace

std::vector<std::string> take_compute_prices(Profile& profile, const Profile& other) {
  const std::string origin = "from " + other.name;
  const bool measured = std::ranges::any_of(
      profile.compute, [](const ComputeRow& row) { return !copies(row.op) && bytes_of(row.dtype) == 2; });
  std::vector<std::string> added;
  add_missing(profile.compute, other.compute, origin, added);
  add_missing(profile.modules, other.modules, origin, added);
  add_missing(profile.tasks, other.tasks, origin, added);
  if (!profile.gpu && other.gpu && !measured) {
    profile.gpu = other.gpu;
    if (profile.gpu->origin.empty()) profile.gpu->origin = origin;
    added.emplace_back(kGpuTable);
  }
  if (!profile.memory_bytes) profile.memory_bytes = other.memory_bytes;
  return added;
}

std::string text_of_origins(const Profile& profile) {
  // For each origin, in the order of the file, the names of rows.
  std::vector<std::pair<std::string, std::vector<std::string>>> names;
  const auto add = [&](const std::string& origin, std::string name) {
    if (origin.empty()) return;
    auto known = std::ranges::find(names, origin, [](const auto& pair) { return pair.first; });
    if (known == names.end()) known = names.insert(known, {origin, {}});
    known->second.push_back(std::move(name));
  };
  for (const CommRow& row : profile.comm) add(row.verdict.origin, row_name(row));
  for (const ComputeRow& row : profile.compute) add(row.verdict.origin, row_name(row));
  for (const ModuleRow& row : profile.modules) add(row.verdict.origin, row_name(row));
  for (const TaskRow& row : profile.tasks) add(row.verdict.origin, row_name(row));
  if (profile.gpu) add(profile.gpu->origin, std::string(kGpuTable));
  std::string text;
  for (const auto& [origin, rows] : names) {
    const bool few = rows.size() <= kNamed;
    text += fmt::format("{}{}{} {}", text.empty() ? "" : "; ", few ? fmt::format("{}", fmt::join(rows, ", ")) : rows[0],
                        few ? "" : fmt::format(" and {} more", rows.size() - 1), origin);
  }
  return text;
}

namespace {

constexpr double kDispatchS = 1e-3, kAlphaS = kDispatchS / 8;

void add_comm(Profile& profile, Op op, const Group& group, double beta, std::string_view algorithm) {
  const CommRow row{.op = op,
                    .network = group.network,
                    .ranks = group.size,
                    .alpha_s = kAlphaS,
                    .beta_s_per_byte = beta,
                    .algorithm = std::string(algorithm)};
  const auto same = [&](const CommRow& other) { return row_name(other) == row_name(row); };
  if (std::ranges::none_of(profile.comm, same)) profile.comm.push_back(row);
}

}  // namespace

Profile nominal_profile(const LayerCase& shape) {
  Profile profile;
  profile.name = "nominal";
  profile.nodes = shape.parallel.nodes;
  profile.ranks_per_node = shape.parallel.ranks_per_node;
  const double bytes = whole_work(TaskKind::dispatch, Phase::forward, shape, Flow::sharded).bytes;
  const double flops = whole_work(TaskKind::expert, Phase::forward, shape, Flow::sharded).flops;
  const double beta = kDispatchS / std::max(bytes, 1.0);
  for (const Group& group : groups_of(shape.parallel)) {
    if (group.network == Network::none) continue;
    for (const Op op : collectives()) add_comm(profile, op, group, beta, CommRow{}.algorithm);
    add_comm(profile, Op::sendrecv, {group.kind, 2, group.network}, beta, CommRow{}.algorithm);
    if (shape.layer.dispatcher != "alltoall") add_comm(profile, Op::alltoall, group, beta, shape.layer.dispatcher);
  }
  profile.compute.push_back({.op = Op::gemm,
                             .dtype = shape.layer.dtype,
                             .alpha_s = kAlphaS / 2,
                             .beta_s_per_flop = kDispatchS / std::max(flops, 1.0)});
  for (const Op op : {Op::copy, Op::host_copy}) profile.compute.push_back({.op = op, .beta_s_per_byte = beta / 10});
  return profile;
}

}  // namespace moe
