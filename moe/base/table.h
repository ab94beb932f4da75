#pragma once
// A text table for the terminal: columns are as wide as their widest cell, numbers right-aligned, words left-aligned.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/base/terminal.h"

namespace moe {

/// Returns Markdown that displays exactly this text: no HTML, link, emphasis or mention of a person.
std::string markdown_text(std::string_view text);

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  /// Adds a row, which has as many cells as the header; cells are made printable().
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.size() == 1; }
  /// Returns the cells by row, the header first.
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  /// Names the columns that a narrow output leaves out, the least important first. A line names the columns left out
  /// and `shows_all`, the flag or action that shows them.
  void hide_first(std::vector<std::string> columns, std::string_view shows_all) {
    optional_ = std::move(columns);
    shows_all_ = shows_all;
  }
  /// Shows one row for several that differ only in their first cells. A line names the others and `shows_all`, the flag
  /// or action that shows all rows (widen_output()).
  void join_equal_rows(std::string_view shows_all) {
    joins_ = true;
    shows_all_ = shows_all;
  }
  /// Returns the lines joined by newlines, each indented by two blanks, with a rule under the header. If the table is
  /// wider than `most`, columns are left out as hide_first() says, and a line names them; those that still do not
  /// fit follow in tables below, each with the first column. For files, pass none: their width is unlimited.
  std::string text(std::optional<int> most = output_columns()) const;
  /// Returns the rows as a table of Markdown.
  std::string markdown() const;

 private:
  /// Returns for each column whether it contains only numbers, which are right-aligned.
  std::vector<bool> numbers() const;
  /// Returns the columns to show, and the names of those that are left out.
  std::pair<std::vector<size_t>, std::vector<std::string>> visible_columns(const std::vector<size_t>& width,
                                                                           std::optional<int> most) const;

  std::vector<std::vector<std::string>> rows_;
  std::vector<std::string> optional_;
  std::string shows_all_;
  bool joins_ = false;
};

}  // namespace moe
