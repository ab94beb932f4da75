// A profile's tables as rows: a column a key, and back. Between them stands the tree that TOML files are read into.
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <ostream>

#include "exchange/csv.h"
#include "exchange/formats.h"
#include "moe/base/check.h"
#include "moe/base/json_input.h"
#include "moe/base/log.h"
#include "moe/base/out_file.h"
#include "moe/base/whole_file.h"
#include "moe/cost/profile_rows.h"

namespace moe::exchange {
namespace {

constexpr std::string_view kTableColumn = "table", kRootTable = "profile";
// Name the key of a beta per byte, and the one per element that takes its place.
constexpr std::string_view kBetaOfBytes = "beta_s_per_byte", kBetaOfElements = "beta_s_per_element";
constexpr double kBytesOfElement = 4;  // papers print float32

// Come first: the columns that most tables have. Others follow as they come.
constexpr std::array<std::string_view, 12> kUsualColumns{"table", "name",  "op",    "network", "ranks",   "algorithm",
                                                         "ffn",   "dtype", "phase", "seq",     "alpha_s", kBetaOfBytes};

nlohmann::json json_of_value(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigKind::boolean:
      return value.boolean;
    case ConfigKind::integer:
      return value.integer;
    case ConfigKind::real:
      return value.real;
    case ConfigKind::list: {
      nlohmann::json list = nlohmann::json::array();
      for (const ConfigValue& item : value.items) list.push_back(json_of_value(item));
      return list;
    }
    default:
      return value.text;
  }
}

// Writes a value as JSON; a text that can be taken for nothing else stands without quotes.
std::string text_of_cell(const ConfigValue& value) {
  if (value.kind == ConfigKind::text && !json_if_valid(value.text) && !value.text.empty()) return value.text;
  if (value.kind == ConfigKind::real) return fmt::format("{}", value.real);
  return json_of_value(value).dump();
}

ConfigValue value_of_json(const nlohmann::json& json, int line) {
  ConfigValue value;
  value.line = line;
  if (json.is_boolean()) {
    value.kind = ConfigKind::boolean;
    value.boolean = json.get<bool>();
  } else if (json.is_number()) {
    value.kind = json.is_number_integer() ? ConfigKind::integer : ConfigKind::real;
    value.real = json.get<double>();
    value.integer = json.is_number_integer() ? json.get<int64_t>() : 0;
  } else if (json.is_array()) {
    value.kind = ConfigKind::list;
    for (const nlohmann::json& item : json) value.items.push_back(value_of_json(item, line));
  } else {
    value.kind = ConfigKind::text;
    value.text = json.is_string() ? json.get<std::string>() : json.dump();
  }
  return value;
}

ConfigValue value_of_cell(const std::string& text, int line) {
  const auto json = json_if_valid<nlohmann::json>(text);
  if (json && !json->is_null() && !json->is_object()) return value_of_json(*json, line);
  return value_of_json(nlohmann::json(text), line);
}

// Keys are sorted, as find() expects.
void add_entry(ConfigValue& table, const std::string& key, ConfigValue value) {
  const auto place = std::ranges::lower_bound(table.entries, key, {}, &ConfigEntry::key);
  table.entries.insert(place, {key, std::move(value)});
}

ConfigValue& entry_of(ConfigValue& table, const std::string& key, ConfigKind kind, int line) {
  if (table.find(key) == nullptr) {
    ConfigValue value;
    value.kind = kind;
    value.line = line;
    add_entry(table, key, std::move(value));
  }
  return std::ranges::find(table.entries, key, &ConfigEntry::key)->value;
}

struct NamedTable {
  std::string name;
  const ConfigValue* table;
};

// Returns the file's tables: its own keys, tables in it, and rows of lists of tables.
std::vector<NamedTable> tables_of(const ConfigValue& root) {
  std::vector<NamedTable> tables{{std::string(kRootTable), &root}};
  for (const auto& [key, value] : root.entries) {
    if (value.kind == ConfigKind::table) tables.push_back({key, &value});
    if (value.kind == ConfigKind::list)
      for (const ConfigValue& row : value.items) tables.push_back({key, &row});
  }
  return tables;
}

bool is_cell(const ConfigValue& value, bool of_root) {
  return value.kind != ConfigKind::table && !(of_root && value.kind == ConfigKind::list);
}

bool is_one_table(const std::string& name) { return name == "topology" || name == "overhead" || name == "contention"; }

// Returns the root of the tree that read_profile would have read, with the lines of the CSV file.
ConfigValue tree_of(const CsvTable& csv) {
  ConfigValue root;
  const size_t table_column = csv.column(kTableColumn);
  for (const CsvTable::Row& row : csv.rows) {
    const std::string& name = row.cells[table_column];
    require<BadInput>(!name.empty(), "{}: found none, expected profile, topology, comm, ...",
                      csv.where(row, table_column));
    ConfigValue* table = &root;
    if (is_one_table(name)) {
      table = &entry_of(root, name, ConfigKind::table, row.line);
    } else if (name != kRootTable) {
      auto& rows = entry_of(root, name, ConfigKind::list, row.line).items;
      rows.emplace_back().line = row.line;
      table = &rows.back();
    }
    for (size_t c = 0; c < csv.columns.size(); ++c) {
      if (c == table_column || row.cells[c].empty()) continue;
      ConfigValue value = value_of_cell(row.cells[c], row.line);
      const bool of_elements = csv.columns[c] == kBetaOfElements;
      if (of_elements) value.real = csv.number(row, c, 0) / kBytesOfElement, value.kind = ConfigKind::real;
      const std::string key(of_elements ? kBetaOfBytes : std::string_view(csv.columns[c]));
      require<BadInput>(table->find(key) == nullptr, "{}: found a second one of table {}, expected one",
                        csv.where(row, c), name);
      add_entry(*table, key, std::move(value));
    }
  }
  return root;
}

}  // namespace

void write_profile_csv(const ExportOptions& options, std::ostream& out) {
  const Profile profile = find_profile(options.file);
  require_other_file(options.out, {profile.file});
  const bool per_element = options.per_element;
  const ConfigFile file = read_toml(profile.file);
  const std::vector<NamedTable> tables = tables_of(file.root);
  std::vector<std::string> columns(kUsualColumns.begin(), kUsualColumns.end());
  for (const NamedTable& table : tables)
    for (const auto& [key, value] : table.table->entries)
      if (is_cell(value, table.table == &file.root) && std::ranges::find(columns, key) == columns.end())
        columns.push_back(key);
  std::vector<std::string> heads = columns;
  if (per_element) std::ranges::replace(heads, std::string(kBetaOfBytes), std::string(kBetaOfElements));
  out << csv_line(heads);
  for (const NamedTable& table : tables) {
    std::vector<std::string> cells{table.name};
    for (size_t c = 1; c < columns.size(); ++c) {
      const ConfigValue* value = table.table->find(columns[c]);
      if (value == nullptr || !is_cell(*value, table.table == &file.root))
        cells.emplace_back();
      else if (per_element && columns[c] == kBetaOfBytes)
        cells.push_back(fmt::format("{}", value->real * kBytesOfElement));
      else
        cells.push_back(text_of_cell(*value));
    }
    out << csv_line(cells);
  }
}

void import_csv_profile(const ImportOptions& options) {
  require<BadInput>(options.files.size() == 1, "import: found {} files, expected one of a profile",
                    options.files.size());
  const CsvTable csv = read_csv(options.files.front());
  const Profile profile = profile_of(ConfigFile{csv.path, tree_of(csv)});
  make_folders_above(options.out);
  write_whole_file(options.out, "a file for the profile", [&](std::ostream& out) { write_profile(profile, out); });
  log_info(fmt::format("{}: {} rows of collectives, {} of computations, {} of modules, {} of tasks", options.out,
                       profile.comm.size(), profile.compute.size(), profile.modules.size(), profile.tasks.size()));
}

}  // namespace moe::exchange
