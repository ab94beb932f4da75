#include "exchange/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <optional>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/file_text.h"

namespace moe::exchange {
namespace {

constexpr size_t kMostCells = 4'000'000;  // in memory at once

// Returns the letters before the mark with which spreadsheets begin a formula, each a quote; none for other cells.
std::optional<size_t> quotes_before_formula(std::string_view cell) {
  const size_t quotes = std::min(cell.find_first_not_of('\''), cell.size());
  const bool formula =
      quotes < cell.size() && std::string_view("=+-@\t\r").find(cell[quotes]) != std::string_view::npos;
  return formula ? std::optional(quotes) : std::nullopt;
}

bool is_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);  // from_chars takes none
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

// Reads one record's cells; `line` counts on.
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
      require<BadInput>(++cells_ <= kMostCells, "{}:{}: found more than {} cells, expected fewer", path_, line_,
                        kMostCells);
    } while (!at_end() && text_[at_] == ',' && ++at_);
    require<BadInput>(at_end() || text_[at_] == '\n' || text_[at_] == '\r',
                      "{}:{}: found text behind a quote, expected a comma", path_, line_);
    end_line();
    return cells;
  }

 private:
  // Passes the end of a line: LF, CR LF, or CR alone.
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
                    "{}: found {}, expected a number of at least {}", where(row, column), shown(text), least);
  return value;
}

int64_t CsvTable::whole(const Row& row, size_t column, int64_t least, int64_t most) const {
  const std::string& text = row.cells[column];
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<BadInput>(error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
                    "{}: found {}, expected a whole number from {} to {}", where(row, column), shown(text), least,
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
                      "{}:{}: found several columns of the name {}, expected one", path, head, shown(name));
  for (lexer.skip(); !lexer.at_end(); lexer.skip()) {
    const int line = lexer.line();
    table.rows.push_back({line, lexer.record()});
    require<BadInput>(table.rows.back().cells.size() == table.columns.size(), "{}:{}: found {} cells, expected {}",
                      path, line, table.rows.back().cells.size(), table.columns.size());
  }
  return table;
}

}  // namespace moe::exchange
