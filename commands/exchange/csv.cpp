#include "commands/exchange/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>

#include "commands/exchange/formats.h"
#include "commands/exchange/import.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/prices/profile.h"

namespace moe::exchange {
namespace {

constexpr size_t kMaxCells = 4'000'000;  // in memory at once

// Returns the number of quotes before the mark with which spreadsheets begin a formula; none for other cells.
std::optional<size_t> quotes_before_formula(std::string_view cell) {
  const size_t quotes = std::min(cell.find_first_not_of('\''), cell.size());
  const bool formula =
      quotes < cell.size() && std::string_view("=+-@\t\r").find(cell[quotes]) != std::string_view::npos;
  return formula ? std::optional(quotes) : std::nullopt;
}

bool is_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);  // from_chars accepts no plus sign
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error != std::errc::invalid_argument && end == text.data() + text.size();
}

std::string csv_cell(const std::string& plain) {
  const bool formula = quotes_before_formula(plain) && !is_number(plain);
  const std::string text = formula ? "'" + plain : plain;
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

// Reads the cells of one record; `line` is the current line.
class Lexer {
 public:
  Lexer(const std::string& path, const std::string& text) : path_(path), text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  int line() const { return line_; }

  // Skips comments and empty lines.
  void skip() {
    while (!at_end() && (text_[at_] == '#' || text_[at_] == '\n' || text_[at_] == '\r')) {
      at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      end_line();
    }
  }

  std::vector<std::string> record() {
    std::vector<std::string> cells;
    do {
      cells.push_back(!at_end() && text_[at_] == '"' ? quoted() : plain());
      if (quotes_before_formula(cells.back()).value_or(0) > 0) cells.back().erase(0, 1);
      require<BadInput>(++cells_ <= kMaxCells, "{}:{}: found more than {} cells, expected fewer", path_, line_,
                        kMaxCells);
    } while (!at_end() && text_[at_] == ',' && ++at_);
    require<BadInput>(at_end() || text_[at_] == '\n' || text_[at_] == '\r',
                      "{}:{}: found text behind a quote, expected a comma", path_, line_);
    end_line();
    return cells;
  }

 private:
  // Skips the end of a line: LF, CR LF, or CR alone.
  void end_line() {
    if (!at_end() && text_[at_] == '\r') ++at_;
    if (!at_end() && text_[at_] == '\n') ++at_;
    ++line_;
  }
  std::string plain() {
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string cell = text_.substr(at_, end - at_);
    at_ = end;
    return cell;
  }
  std::string quoted() {
    std::string cell;
    const int from = line_;
    for (++at_; !at_end(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '"') {
        ++at_;
        if (at_end() || text_[at_] != '"') return cell;
      }
      cell += text_[at_];
    }
    bad_input("{}:{}: found a quote without an end", path_, from);
  }

  const std::string& path_;
  const std::string& text_;
  size_t at_ = 0, cells_ = 0;
  int line_ = 1;
};

}  // namespace

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != cells.data()) line += ',';
    line += csv_cell(cell);
  }
  return line + "\n";
}

size_t CsvTable::find(std::string_view name) const {
  return static_cast<size_t>(std::ranges::find(columns, name) - columns.begin());
}

size_t CsvTable::column(std::string_view name) const {
  require<BadInput>(find(name) < columns.size(), "{}: found the columns {}, expected one of the name {}", path,
                    fmt::join(columns, ", "), name);
  return find(name);
}

std::string CsvTable::where(const Row& row, size_t column) const {
  return fmt::format("{}:{}: {}", path, row.line, columns[column]);
}

double CsvTable::number(const Row& row, size_t column, double least) const {
  const std::string& text = row.cells[column];
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<BadInput>(error == std::errc{} && end == text.data() + text.size() && std::isfinite(value) && value >= least,
                    "{}: found {}, expected a number of at least {}", where(row, column), quoted_text(text), least);
  return value;
}

int64_t CsvTable::whole(const Row& row, size_t column, int64_t least, int64_t most) const {
  const std::string& text = row.cells[column];
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<BadInput>(error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
                    "{}: found {}, expected a whole number from {} to {}", where(row, column), quoted_text(text), least,
                    most);
  return value;
}

CsvTable read_csv(const std::string& path) {
  std::string text = text_of_file(path, "CSV");
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  Lexer lexer(path, text);
  CsvTable table;
  table.path = path;
  lexer.skip();
  require<BadInput>(!lexer.at_end(), "{}: found no line, expected one with the columns' names", path);
  const int head = lexer.line();
  table.columns = lexer.record();
  for (const std::string& name : table.columns)
    require<BadInput>(name.empty() || std::ranges::count(table.columns, name) == 1,
                      "{}:{}: found several columns of the name {}, expected one", path, head, quoted_text(name));
  for (lexer.skip(); !lexer.at_end(); lexer.skip()) {
    const int line = lexer.line();
    table.rows.push_back({line, lexer.record()});
    require<BadInput>(table.rows.back().cells.size() == table.columns.size(), "{}:{}: found {} cells, expected {}",
                      path, line, table.rows.back().cells.size(), table.columns.size());
  }
  return table;
}

// Records as flat columns: names of nested values are joined by dots.

namespace {

using Cells = std::map<std::string, std::string>;

// Returns one case's cells by column, and appends new columns in the order of their first use.
Cells cells_of(const CaseRecord& record, std::vector<std::string>& columns) {
  Cells cells;
  const auto set = [&](const std::string& column, std::string text) {
    if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
    cells[column] = std::move(text);
  };
  set("key", record.key);
  set("status", std::string(name_of(record.status)));
  set("reason", record.reason);
  set("schedule", record.schedule);
  set("degree_forward", fmt::format("{}", record.degree_forward));
  set("degree_backward", fmt::format("{}", record.degree_backward));
  set("backend", record.backend);
  set("emulated", record.emulated ? "true" : "false");
  set("dilation", fmt::format("{}", record.dilation));
  for (const auto& [name, value] : record.parameters) set(name, scalar_text(value));
  for (const auto& [name, value] : record.summary) set("summary." + name, scalar_text(value));
  for (const auto& [name, value] : record.prediction) set("prediction." + name, scalar_text(value));
  if (record.bound_s) set("bound_s", fmt::format("{}", *record.bound_s));
  return cells;
}

}  // namespace

void write_record_csv(const Run& run, std::ostream& out) {
  std::vector<std::string> columns;
  std::vector<Cells> rows;
  bool samples = false, timelines = false;
  for (const CaseRecord& record : run.cases) {
    if (!record.answer.empty()) continue;  // an answer is text without figures
    rows.push_back(cells_of(record, columns));
    samples |= !record.samples.empty();
    timelines |= !record.timeline.empty() || !record.measured_timeline.tasks.empty();
  }
  if (samples) log_info("csv: samples are left out, their medians are in summary.*");
  if (timelines) log_info("csv: timelines are left out");
  out << csv_line(columns);
  for (Cells& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) cells.push_back(row[column]);
    out << csv_line(cells);
  }
}

// A profile's tables as rows, one column for each key, and back. Both directions use the tree of a TOML file.

namespace {

constexpr std::string_view kTableColumn = "table", kRootTable = "profile";
// The key of a beta per byte, and the key of a beta per element that replaces it.
constexpr std::string_view kBetaOfBytes = "beta_s_per_byte", kBetaOfElements = "beta_s_per_element";
constexpr double kBytesPerElement = 4;  // papers print betas of float32

// The columns of most tables come first. Others follow in the order of their first use.
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

// Returns a value as JSON; a text that cannot be mistaken for another value has no quotes.
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

// Keeps the keys sorted, as find() requires.
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

// Returns the file's tables: its top-level keys, its tables, and the rows of its lists of tables.
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

bool is_one_table(const std::string& name) {
  return name == "topology" || name == "overhead" || name == "contention" || name == "gpu";
}

// Returns the tree of the profile's file; for a composed profile, the tree of a file that would contain it.
ConfigFile tree_of(const Profile& profile) {
  ConfigFile file = read_toml(profile.file);
  if (const ConfigValue* name = file.root.find("name"); name != nullptr && name->text == profile.name) return file;
  std::ostringstream text;
  write_profile(profile, text);
  return parse_toml(text.str(), profile.name);
}

// Returns the tree that read_profile would have read, with the line numbers of the CSV file.
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
      if (of_elements) value.real = csv.number(row, c, 0) / kBytesPerElement, value.kind = ConfigKind::real;
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
  const ConfigFile file = tree_of(profile);
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
        cells.push_back(fmt::format("{}", value->real * kBytesPerElement));
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

// Samples as CSV: op, network, ranks, bytes, seconds; for GEMMs dtype and flops.

namespace {

constexpr int kMaxRanks = 1 << 20;

// The indices of the columns; columns.size() for a column that the file lacks.
struct SampleColumns {
  explicit SampleColumns(const CsvTable& csv)
      : op(csv.column("op")),
        seconds(csv.column("seconds")),
        network(csv.find("network")),
        ranks(csv.find("ranks")),
        bytes(csv.find("bytes")),
        dtype(csv.find("dtype")),
        flops(csv.find("flops")) {}
  size_t op, seconds, network, ranks, bytes, dtype, flops;
};

ImportedSample sample_of_row(const CsvTable& csv, const CsvTable::Row& row, const SampleColumns& at) {
  ImportedSample s;
  const std::string& op = row.cells[at.op];
  const auto found = find_op(op);
  require<BadInput>(found && (*found == Op::gemm || facts_of(*found).table == OpTable::comm),
                    "{}: found {}, expected a collective or gemm", csv.where(row, at.op), quoted_text(op));
  s.op = *found;
  s.seconds = csv.number(row, at.seconds, 1e-12);
  if (s.op == Op::gemm) {
    csv.column("flops");
    s.flops = csv.number(row, at.flops, 1);
    s.dtype = at.dtype < csv.columns.size() && !row.cells[at.dtype].empty() ? row.cells[at.dtype] : "float32";
    dtype_from(s.dtype, csv.where(row, std::min(at.dtype, at.op)));
    return s;
  }
  for (const char* needed : {"network", "ranks", "bytes"}) csv.column(needed);
  s.network = row.cells[at.network];
  require<BadInput>(s.network == "inter" || s.network == "intra", "{}: found {}, expected inter or intra",
                    csv.where(row, at.network), quoted_text(s.network));
  s.ranks = static_cast<int>(csv.whole(row, at.ranks, 2, kMaxRanks));
  s.bytes = csv.number(row, at.bytes, 1);
  return s;
}

}  // namespace

void import_csv(const ImportOptions& options) {
  ImportedSamples samples("none");  // nothing was run by a backend of ours
  size_t rows = 0;
  for (const std::string& path : options.files) {
    const CsvTable csv = read_csv(path);
    const SampleColumns at(csv);
    for (const CsvTable::Row& row : csv.rows) samples.add(sample_of_row(csv, row, at));
    rows += csv.rows.size();
  }
  require<BadInput>(rows > 0, "{}: found no sample, expected rows below the columns' names", options.files.front());
  log_info(fmt::format("csv: {} samples", rows));
  samples.write(options);
}

}  // namespace moe::exchange
