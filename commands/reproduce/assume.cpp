#include "commands/reproduce/assume.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "moe/prices/modules.h"
#include "moe/prices/profile.h"

namespace moe::reproduce {
namespace {

constexpr double kMaxRanks = 1e6;

CommRow comm_from(const TableReader& t) {
  return comm_row_from(t, [](Network) { return kMaxRanks; });
}

std::vector<std::string> names_of(const TableReader& root, std::string_view key) {
  std::vector<std::string> names;
  for (const ConfigValue& item : root.list(key)) {
    if (item.kind != ConfigKind::text) root.fail(item, key, "names");
    names.push_back(item.text);
  }
  return names;
}

template <class Read>
void read_rows(const std::vector<TableReader>& tables, Read read, Assumptions& out) {
  for (const TableReader& t : tables) out.rows.push_back({t.name("cluster"), t.text("label"), read(t)});
}

bool same_kind(const CommRow& a, const CommRow& b) {
  return a.op == b.op && a.network == b.network && a.ranks == b.ranks && a.ranks_per_node == b.ranks_per_node &&
         a.algorithm == b.algorithm;
}
bool same_kind(const ComputeRow& a, const ComputeRow& b) {
  return a.op == b.op && a.ffn == b.ffn && a.dtype == b.dtype;
}
bool same_kind(const ModuleRow& a, const ModuleRow& b) {
  return a.name == b.name && a.phase == b.phase && a.seq == b.seq;
}

template <class Row>
void put(std::vector<Row>& rows, const Row& assumed) {
  std::erase_if(rows, [&](const Row& row) { return same_kind(row, assumed); });
  rows.push_back(assumed);
}

struct Put {
  Profile& profile;
  void operator()(const CommRow& row) const { put(profile.comm, row); }
  void operator()(const ComputeRow& row) const { put(profile.compute, row); }
  void operator()(const ModuleRow& row) const { put(profile.modules, row); }
};

struct Describe {
  std::string operator()(const CommRow& row) const {
    return fmt::format("{} {} {}: {:.4g} us + {:.4g} ps/byte", name_of(row.op), name_of(row.network), row.ranks,
                       row.alpha_s * 1e6, row.beta_s_per_byte * 1e12);
  }
  std::string operator()(const ComputeRow& row) const {
    const std::string what = fmt::format("{}{}", name_of(row.op), row.ffn ? fmt::format(" {}", name_of(*row.ffn)) : "");
    if (row.op == Op::copy) return fmt::format("{}: {:.4g} ps/byte", what, row.beta_s_per_byte * 1e12);
    return fmt::format("{} {}: {:.4g} us + {:.4g} fs/FLOP", what, name_of(row.dtype), row.alpha_s * 1e6,
                       row.beta_s_per_flop * 1e15);
  }
  std::string operator()(const ModuleRow& row) const {
    const std::string what = fmt::format("{} {}: {:.4g} us", row.name, name_of(row.phase), row.alpha_s * 1e6);
    if (is_priced_by_byte(row.name)) return fmt::format("{} + {:.4g} ps/byte", what, row.beta_s_per_byte * 1e12);
    return fmt::format("{} + {:.4g} fs/FLOP", what, row.beta_s_per_flop * 1e15);
  }
};

}  // namespace

bool Assumptions::applies_to_table(std::string_view table) const {
  return std::ranges::find(tables, table) != tables.end();
}

bool Assumptions::derives(std::string_view op) const { return std::ranges::find(derive, op) != derive.end(); }

std::optional<double> Assumptions::value(std::string_view of) const {
  for (const AssumedValue& v : values)
    if (v.name == of) return v.value;
  return std::nullopt;
}

Assumptions read_assumptions(const std::string& path) {
  const ConfigFile file = read_toml(path);
  const TableReader root(file, {"schema", "name", "source", "tables", "derive", "comm", "compute", "module", "value"});
  root.integer("schema", {.min = 1, .max = 1});
  Assumptions out;
  out.file = path;
  out.name = root.name("name");
  out.source = root.text("source", false);
  out.tables = names_of(root, "tables");
  if (root.has("derive")) out.derive = names_of(root, "derive");
  read_rows(root.tables("comm", {"cluster", "label", "op", "network", "ranks", "alpha_s", "beta_s_per_byte"}),
            comm_from, out);
  read_rows(root.tables("compute",
                        {"cluster", "label", "op", "ffn", "dtype", "alpha_s", "beta_s_per_flop", "beta_s_per_byte"}),
            compute_row_from, out);
  read_rows(root.tables("module",
                        {"cluster", "label", "name", "phase", "seq", "alpha_s", "beta_s_per_flop", "beta_s_per_byte"}),
            module_row_from, out);
  for (const TableReader& t : root.tables("value", {"name", "value", "label"}))
    out.values.push_back({t.name("name"), t.text("label"), t.real("value")});
  return out;
}

Assumptions find_assumptions(const std::string& name_or_path) {
  return read_assumptions(find_config("papers/assume", name_or_path));
}

std::optional<double> assumed_contention(const Assumptions& assumed, std::string_view cluster) {
  const auto own = assumed.value(fmt::format("contention:{}", cluster));
  return own ? own : assumed.value("contention");
}

Profile with_assumed_rows(Profile profile, const Assumptions* assumed) {
  if (assumed == nullptr) return profile;
  for (const AssumedRow& row : assumed->rows)
    if (row.cluster == profile.name) std::visit(Put{profile}, row.row);
  if (const auto factor = assumed_contention(*assumed, profile.name))
    profile.contention.intra_by_inter = profile.contention.inter_by_intra = *factor;
  for (const ContentionPair& pair : contention_pairs()) {
    if (const auto factor = assumed->value(pair.key())) profile.contention.*pair.factor = *factor;
    if (const auto stall_s = assumed->value(pair.stall_key())) pair.stall_s(profile.contention) = *stall_s;
  }
  return profile;
}

std::vector<std::string> lines_of(const Assumptions& assumed) {
  std::vector<std::string> lines{fmt::format("{}: {}", assumed.name, assumed.source)};
  for (const AssumedRow& row : assumed.rows)
    lines.push_back(fmt::format("{}, {}: {}", row.cluster, std::visit(Describe{}, row.row), row.label));
  for (const AssumedValue& v : assumed.values)
    lines.push_back(fmt::format("{} = {:.6g}: {}", v.name, v.value, v.label));
  for (const std::string& op : assumed.derive) lines.push_back(fmt::format("derived where no row says it: {}", op));
  return lines;
}

}  // namespace moe::reproduce
