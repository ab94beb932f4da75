#pragma once
// A text table for the terminal: columns as wide as their widest cell, numbers right, words left.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/terminal.h"

namespace moe {

/// Returns the text as Markdown that shows it as it is: no HTML, link, emphasis or mention of a person.
std::string markdown_text(std::string_view text);

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  /// Adds a row, which has as many cells as the header; they become printable().
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.size() == 1; }
  /// Returns the lines joined by newlines, each indented by two blanks, with a rule under the header. Columns that do
  /// not fit a width of `most` follow in tables below, each with the first column. What is for a file has no width.
  std::string text(std::optional<int> most = output_columns()) const;
  /// Returns the rows as a table of Markdown.
  std::string markdown() const;

 private:
  /// Returns for each column whether it holds numbers alone, which stand on the right.
  std::vector<bool> numbers() const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace moe
