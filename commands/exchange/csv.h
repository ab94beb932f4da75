#pragma once
// Comma-separated values (RFC 4180): cells with commas, quotes or line breaks stand in quotes.
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace moe::exchange {

/// Returns a line of cells. A text that spreadsheets would take for a formula (=, +, -, @ or a blank mark first) gets a
/// quote before it, which read_csv takes away again; numbers stay as they are.
std::string csv_line(const std::vector<std::string>& cells);

struct CsvTable {
  struct Row {
    int line = 0;                    // of the file
    std::vector<std::string> cells;  // as many as there are columns
  };
  std::string path;
  std::vector<std::string> columns;
  std::vector<Row> rows;

  /// Returns the place of a column, or columns.size().
  size_t find(std::string_view column) const;
  /// Returns the place of a column. Throws BadInput naming the file and its columns.
  size_t column(std::string_view name) const;
  /// Returns "FILE:LINE: COLUMN".
  std::string where(const Row& row, size_t column) const;
  /// Returns a cell's number, at least `least`. Throws BadInput naming file, line and column.
  double number(const Row& row, size_t column, double least) const;
  /// Returns a cell's whole number from `least` to `most`; throws what number does.
  int64_t whole(const Row& row, size_t column, int64_t least, int64_t most) const;
};

/// Reads a file whose first line names the columns; lines that begin with # and empty ones are passed over, and so is a
/// byte order mark. Throws BadInput "FILE:LINE: ..." for a row of another number of cells.
CsvTable read_csv(const std::string& path);

}  // namespace moe::exchange
