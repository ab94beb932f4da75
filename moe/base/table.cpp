#include "moe/base/table.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/base/text.h"

namespace moe {
namespace {

bool is_number(const std::string& cell) {
  return !cell.empty() && (cell == "-" || cell.find_first_of("0123456789") == (cell[0] == '-' || cell[0] == '+'));
}

// Returns the columns of each table that the text has.
std::vector<std::vector<size_t>> blocks_of(const std::vector<size_t>& width, std::optional<int> most) {
  std::vector<std::vector<size_t>> blocks{{0}};
  constexpr size_t kIndent = 1, kAround = 2;  // blanks before a line, and around a cell
  size_t used = kIndent + width[0] + kAround;
  for (size_t c = 1; c < width.size(); ++c) {
    used += width[c] + kAround;
    if (most && used > static_cast<size_t>(*most) + 1 && blocks.back().size() > 1) {  // the last blank is not printed
      blocks.push_back({0});
      used = kIndent + width[0] + width[c] + 2 * kAround;
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
  for (const std::vector<size_t>& columns : blocks_of(width, most)) {
    if (!text.empty()) text += '\n';
    line(rows_.front(), columns);
    line(rule, columns);
    for (size_t r = 1; r < rows_.size(); ++r) line(rows_[r], columns);
  }
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
