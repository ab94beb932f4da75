#pragma once
// Explicit tables of named things. One string is registry key, flag value and record value.
#include <string>
#include <string_view>

#include "moe/base/check.h"

namespace moe {

/// The row of `table` whose `.name` is `name`; otherwise BadInput that names `where` and lists the known names.
template <class Table>
const auto& find_named(const Table& table, std::string_view name, std::string_view where) {
  for (const auto& row : table)
    if (row.name == name) return row;
  std::string known;
  for (const auto& row : table) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  bad_input("{}: unknown '{}', expected one of: {}", where, name, known);
}

}  // namespace moe
