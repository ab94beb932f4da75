#include "moe/base/table.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <map>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/terminal.h"
#include "moe/base/text.h"

namespace moe {
namespace {

bool is_number(const std::string& cell) {
  return !cell.empty() && (cell == "-" || cell.find_first_of("0123456789") == (cell[0] == '-' || cell[0] == '+'));
}

constexpr size_t kIndent = 1, kCellPadding = 2;  // blanks before a line, and around a cell
constexpr size_t kFolded = 4;                    // indent of the continuation of a line under the table

// Returns whether columns of `used` characters, blanks around them included, fit. The last blank is not printed.
bool fits(size_t used, std::optional<int> most) { return !most || used <= static_cast<size_t>(*most) + 1; }

// Returns the columns of each table into which a wide table is split.
std::vector<std::vector<size_t>> blocks_of(const std::vector<size_t>& columns, const std::vector<size_t>& width,
                                           std::optional<int> most) {
  std::vector<std::vector<size_t>> blocks{{0}};
  size_t used = kIndent + width[0] + kCellPadding;
  for (const size_t c : columns) {
    if (c == 0) continue;
    used += width[c] + kCellPadding;
    if (!fits(used, most) && blocks.back().size() > 1) {
      blocks.push_back({0});
      used = kIndent + width[0] + width[c] + 2 * kCellPadding;
    }
    blocks.back().push_back(c);
  }
  return blocks;
}

}  // namespace

std::string markdown_text(std::string_view text) {
  constexpr std::string_view kMarks = "\\`*[]|", kEntities = "<>&@";
  std::string out;
  for (const char c : printable(text)) {
    if (kEntities.find(c) != std::string_view::npos) {
      out += fmt::format("&#{};", int(c));
      continue;
    }
    if (kMarks.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

void Table::add(std::vector<std::string> row) {
  require_equal(row.size(), rows_.front().size(), "table: cells of a row");
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::vector<bool> Table::numbers() const {
  std::vector<bool> numbers(rows_.front().size(), rows_.size() > 1);
  for (size_t r = 1; r < rows_.size(); ++r)
    for (size_t c = 0; c < numbers.size(); ++c)
      if (!rows_[r][c].empty() && !is_number(rows_[r][c])) numbers[c] = false;
  return numbers;
}

std::pair<std::vector<size_t>, std::vector<std::string>> Table::visible_columns(const std::vector<size_t>& width,
                                                                                std::optional<int> most) const {
  std::vector<size_t> columns(width.size());
  std::iota(columns.begin(), columns.end(), size_t{0});
  size_t used = kIndent;
  for (const size_t w : width) used += w + kCellPadding;
  std::vector<std::string> left_out;
  for (const std::string& name : optional_) {
    if (fits(used, most)) break;
    const auto place = std::ranges::find_if(columns, [&](size_t c) { return c > 0 && rows_.front()[c] == name; });
    if (place == columns.end()) continue;
    used -= width[*place] + kCellPadding;
    columns.erase(place);
    left_out.push_back(name);
  }
  return {columns, left_out};
}

std::string Table::text(std::optional<int> most) const {
  const std::vector<bool> numbers = this->numbers();
  std::vector<size_t> width(rows_.front().size());
  for (const auto& row : rows_)
    for (size_t c = 0; c < width.size(); ++c) width[c] = std::max(width[c], row[c].size());
  std::vector<std::string> rule;
  for (const size_t w : width) rule.emplace_back(w, '-');
  std::string text;
  const auto line = [&](const std::vector<std::string>& row, const std::vector<size_t>& columns) {
    std::string cells = " ";
    for (const size_t c : columns)
      cells += numbers[c] ? fmt::format(" {:>{}} ", row[c], width[c]) : fmt::format(" {:<{}} ", row[c], width[c]);
    cells.erase(cells.find_last_not_of(' ') + 1);
    text += cells + '\n';
  };
  const auto [shown, left_out] = visible_columns(width, most);
  std::vector<size_t> rows;                           // rows that are shown
  std::map<size_t, std::vector<std::string>> equals;  // by shown row, the names of the rows that equal it
  for (size_t r = 1; r < rows_.size(); ++r) {
    const auto is_equal = [&](size_t other) {
      return std::equal(rows_[r].begin() + 1, rows_[r].end(), rows_[other].begin() + 1);
    };
    const auto first = joins_ && most != kWidened ? std::ranges::find_if(rows, is_equal) : rows.end();
    first == rows.end() ? rows.push_back(r) : equals[*first].push_back(rows_[r][0]);
  }
  for (const std::vector<size_t>& columns : blocks_of(shown, width, most)) {
    if (!text.empty()) text += '\n';
    line(rows_.front(), columns);
    line(rule, columns);
    for (const size_t r : rows) line(rows_[r], columns);
  }
  std::vector<std::string> named;
  for (const auto& [first, others] : equals)
    named.push_back(fmt::format("{} as {}", fmt::join(others, ", "), rows_[first][0]));
  if (!named.empty())
    text += line_within_columns(fmt::format("  equal: {} ({})", fmt::join(named, "; "), shows_all_), kFolded,
                                most.value_or(kMaxColumns)) +
            '\n';
  if (!left_out.empty()) text += fmt::format("  not shown: {} ({})\n", fmt::join(left_out, ", "), shows_all_);
  return text;
}

std::string Table::markdown() const {
  std::string text;
  const auto line = [&](const std::vector<std::string>& row) {
    for (const std::string& cell : row) {
      text += fmt::format("| {} ", markdown_text(cell));
    }
    text += "|\n";
  };
  line(rows_.front());
  for (const bool number : numbers()) text += number ? "|--:" : "|---";
  text += "|\n";
  for (size_t r = 1; r < rows_.size(); ++r) line(rows_[r]);
  return text;
}

}  // namespace moe
