#include "moe/base/table.h"

#include <algorithm>

#include "moe/base/check.h"

namespace moe {
namespace {

bool is_number(const std::string& cell) {
  return !cell.empty() && (cell == "-" || cell.find_first_of("0123456789") == (cell[0] == '-' || cell[0] == '+'));
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  require_equal(row.size(), rows_.front().size(), "table: cells of a row");
  rows_.push_back(std::move(row));
}

std::vector<bool> Table::numbers() const {
  std::vector<bool> numbers(rows_.front().size(), rows_.size() > 1);
  for (size_t r = 1; r < rows_.size(); ++r)
    for (size_t c = 0; c < numbers.size(); ++c)
      if (!rows_[r][c].empty() && !is_number(rows_[r][c])) numbers[c] = false;
  return numbers;
}

std::string Table::text() const {
  const size_t columns = rows_.front().size();
  const std::vector<bool> numbers = this->numbers();
  std::vector<size_t> width(columns);
  for (const auto& row : rows_)
    for (size_t c = 0; c < columns; ++c) width[c] = std::max(width[c], row[c].size());
  std::string text;
  const auto line = [&](const std::vector<std::string>& row) {
    std::string cells = " ";
    for (size_t c = 0; c < columns; ++c)
      cells += numbers[c] ? fmt::format(" {:>{}} ", row[c], width[c]) : fmt::format(" {:<{}} ", row[c], width[c]);
    cells.erase(cells.find_last_not_of(' ') + 1);
    text += cells + '\n';
  };
  line(rows_.front());
  std::vector<std::string> rule;
  for (const size_t w : width) rule.emplace_back(w, '-');
  line(rule);
  for (size_t r = 1; r < rows_.size(); ++r) line(rows_[r]);
  return text;
}

std::string Table::markdown() const {
  std::string text;
  const auto line = [&](const std::vector<std::string>& row) {
    for (const std::string& cell : row) {
      text += "| ";
      for (const char c : cell) text += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
      text += " ";
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
