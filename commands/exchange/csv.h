#pragma once
// Comma-separated values (RFC 4180): cells with commas, quotes or line breaks are quoted.
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace moe::exchange {

/// Returns a line of cells. A text that spreadsheets would take for a formula (it begins with =, +, -, @ or a blank
/// character) gets a leading quote, which read_csv removes again; numbers are not changed.
std::string csv_line(const std::vector<std::string>& cells);

struct CsvTable {
  struct Row {
    int line = 0;                    // line number in the file
    std::vector<std::string> cells;  // one for each column
  };
  std::string path;
  std::vector<std::string> columns;
  std::vector<Row> rows;

  /// Returns the index of a column, or columns.size().
  size_t find(std::string_view column) const;
  /// Returns the place of a column. Throws BadInput naming the file and its columns.
  size_t column(std::string_view name) const;
  /// Returns "FILE:LINE: COLUMN".
  std::string where(const Row& row, size_t column) const;
  /// Returns the number in a cell, at least `least`. Throws BadInput naming file, line and column.
  double number(const Row& row, size_t column, double least) const;
  /// Returns the whole number in a cell, from `least` to `most`; throws like number().
  int64_t whole(const Row& row, size_t column, int64_t least, int64_t most) const;
};

/// Reads a file whose first line names the columns; lines that begin with #, empty lines and a byte order mark are
/// skipped. Throws BadInput "FILE:LINE: ..." if a row has a different number of cells.
CsvTable read_csv(const std::string& path);

}  // namespace moe::exchange
