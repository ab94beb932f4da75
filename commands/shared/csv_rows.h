#pragma once
// Reads rows of CSV files that are shipped with the program into structs, one member per column.
#include <array>
#include <fmt/ranges.h>
#include <string>
#include <tuple>
#include <vector>

#define CSV_IO_NO_THREAD
#include <libfccp/csv.h>

#include "moe/base/check.h"
#include "moe/base/config_files.h"

namespace moe::commands {

template <unsigned N>
using CsvReader = io::CSVReader<N, io::trim_chars<' '>, io::no_quote_escape<','>, io::throw_on_overflow,
                                io::single_line_comment<'#'>>;

/// Reads the rows of a CSV file; columns that are not requested are skipped. The last `optional` columns may be
/// missing; their members then keep their values. Throws BadInput naming file and line.
template <class Row, class... Cells>
std::vector<Row> csv_file_rows(const std::string& path, const std::array<const char*, sizeof...(Cells)>& columns,
                               size_t optional, Cells Row::*... cells) {
  std::vector<Row> rows;
  try {
    CsvReader<sizeof...(Cells)> reader(path);
    std::apply(
        [&](auto... column) { reader.read_header(io::ignore_extra_column | io::ignore_missing_column, column...); },
        columns);
    for (size_t i = 0; i + optional < columns.size(); ++i)
      require<BadInput>(reader.has_column(columns[i]), "{}: found no column {}, expected: {}", path, columns[i],
                        fmt::join(columns, ", "));
    for (Row row; reader.read_row(row.*cells...);) rows.push_back(row);
  } catch (const io::error::base& error) {
    bad_input("{}: {}", path, error.what());
  }
  return rows;
}

/// Reads configs/NAME.csv in the same way.
template <class Row, class... Cells>
std::vector<Row> csv_rows(const std::string& name, const std::array<const char*, sizeof...(Cells)>& columns,
                          Cells Row::*... cells) {
  return csv_file_rows<Row>(config_dir() + "/" + name + ".csv", columns, 0, cells...);
}

}  // namespace moe::commands
