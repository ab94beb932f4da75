#include "commands/report/columns.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>

namespace moe::report {
namespace {

constexpr std::string_view kDigitsOf64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Writes every index with as many digits as the largest one needs.
Json words_json(const std::vector<Json>& cells) {
  Json words = Json::array();
  std::map<std::string, size_t> known;
  std::vector<size_t> indices;
  for (const Json& cell : cells) {
    const auto [word, fresh] = known.emplace(cell.dump(), known.size());
    if (fresh) words.push_back(cell);
    indices.push_back(word->second);
  }
  int bits = 6;
  while (known.size() > size_t{1} << bits) bits += 6;
  std::string at;
  for (const size_t index : indices)
    for (int shift = bits - 6; shift >= 0; shift -= 6) at += kDigitsOf64[index >> shift & 63];
  return {{"words", std::move(words)}, {"at", std::move(at)}};
}

Json column_json(const std::vector<Json>& cells) {
  if (std::ranges::all_of(cells, [&](const Json& cell) { return cell == cells.front(); }))
    return {{"all", cells.front()}};
  Json words = words_json(cells), values{{"values", cells}};
  return words.dump().size() < values.dump().size() ? words : values;
}

}  // namespace

Json rounded(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::trunc(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

Json rounded(const std::vector<double>& values, int digits) {
  Json list = Json::array();
  for (const double value : values) list.push_back(rounded(value, digits));
  return list;
}

Json cell_of(const Scalar& value) {
  if (const auto* number = std::get_if<double>(&value)) return rounded(*number);
  return std::visit([](const auto& any) { return Json(any); }, value);
}

Json object_of(const Fields& fields) {
  Json object = Json::object();
  for (const auto& [name, value] : fields) object[name] = cell_of(value);
  return object;
}

void Columns::set(size_t row, std::string_view column, Json value) {
  auto found = columns_.find(column);
  if (found == columns_.end()) {
    names_.emplace_back(column);
    found = columns_.emplace(column, std::vector<Json>()).first;
  }
  if (found->second.size() <= row) found->second.resize(row + 1);
  found->second[row] = std::move(value);
}

void Columns::clear(size_t row) {
  for (auto& [name, cells] : columns_)
    if (row < cells.size()) cells[row] = nullptr;
}

Json Columns::json() const {
  Json columns = Json::object();
  for (const std::string& name : names_) {
    std::vector<Json> cells = columns_.at(name);
    cells.resize(rows_);
    columns[name] = column_json(cells);
  }
  return {{"rows", rows_}, {"columns", std::move(columns)}};
}

}  // namespace moe::report
