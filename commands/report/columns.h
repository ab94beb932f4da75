#pragma once
// Rows as columns of JSON: a value that all rows share, or that many rows have, is written once.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/json.h"
#include "moe/record/record.h"

namespace moe::report {

/// Digits of numbers in the page. It shows fewer, so that values that it recomputes agree in the digits shown.
inline constexpr int kDigits = 9;
/// Returns the number with `digits` digits; null if it is not finite.
Json rounded(double value, int digits = kDigits);
Json rounded(const std::vector<double>& values, int digits = kDigits);
/// Returns the value; a number with kDigits digits.
Json cell_of(const Scalar& value);
Json object_of(const Fields& fields);

/// A table to which rows are appended. A cell that a row lacks is null.
class Columns {
 public:
  /// Appends a row and returns its index.
  size_t add_row() { return rows_++; }
  /// Sets a cell of the last row.
  void set(std::string_view column, Json value) { set(rows_ - 1, column, std::move(value)); }
  void set(size_t row, std::string_view column, Json value);
  /// Clears the cells of a row.
  void clear(size_t row);
  size_t rows() const { return rows_; }

  /// Returns {"rows": N, "columns": {NAME: COLUMN}}. A column is {"all": VALUE}, or the shorter of {"values": [..]} and
  /// {"words": distinct values, "at": TEXT}. TEXT has the index into words of each row in base 64 (RFC 4648), all with
  /// equally many digits, the highest first. The page reads it in commands/report/page/table.js.
  Json json() const;

 private:
  size_t rows_ = 0;
  std::vector<std::string> names_;  // in the order of their first use
  std::map<std::string, std::vector<Json>, std::less<>> columns_;
};

}  // namespace moe::report
