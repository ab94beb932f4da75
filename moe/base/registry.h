#pragma once
// Explicit tables of named things. One string is registry key, flag value and record value.
#include <algorithm>
#include <deque>
#include <fmt/ranges.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/text.h"

namespace moe {

template <class Table>
std::vector<std::string_view> row_names(const Table& table) {
  std::vector<std::string_view> names;
  for (const auto& row : table) names.push_back(row.name);
  return names;
}

/// Returns the row of `table` whose `.name` is `name`. Throws BadInput that names `where` and lists the known names.
template <class Table>
const auto& find_named(const Table& table, std::string_view name, std::string_view where) {
  for (const auto& row : table)
    if (row.name == name) return row;
  const std::vector<std::string_view> known = row_names(table);
  bad_input("{}: unknown '{}', expected one of: {}{}", where, name, fmt::join(known, ", "), suggestion(name, known));
}

/// Returns whether two tables have the same names in the same order, as the tables of two libraries must.
template <class A, class B>
constexpr bool same_names(const A& a, const B& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.name == y.name; });
}

/// The rows of a table and those that a program adds before it uses their names. Rows keep their addresses.
template <class Row>
class Registry {
 public:
  explicit Registry(std::span<const Row> rows) : rows_(rows.begin(), rows.end()) {}
  Registry(const Registry&) = delete;  // the registry owns the names of added rows
  Registry& operator=(const Registry&) = delete;

  /// Adds a row, whose name is copied. Throws BadInput that names `where` if the name is empty or known. No other
  /// thread may use the registry meanwhile.
  const Row& add(Row row, std::string_view where) {
    require<BadInput>(!row.name.empty(), "{}: found no name, expected one", where);
    for (const Row& known : rows_)
      require<BadInput>(known.name != row.name, "{}: found a second '{}', expected a name of its own", where, row.name);
    row.name = names_.emplace_back(row.name);
    return rows_.emplace_back(std::move(row));
  }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  size_t size() const { return rows_.size(); }
  const Row& operator[](size_t i) const { return rows_[i]; }

 private:
  std::deque<std::string> names_;
  std::deque<Row> rows_;
};

/// The row of a table that stores only the name of a value.
template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

/// Returns whether row i of `table` belongs to enumerator i, which is its `key`.
template <class Table, class Row, class Enum>
constexpr bool is_in_enum_order(const Table& table, Enum Row::*key) {
  size_t i = 0;
  return std::ranges::all_of(table, [&](const auto& row) { return static_cast<size_t>(row.*key) == i++; });
}

}  // namespace moe
