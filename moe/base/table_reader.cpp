#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/text.h"

namespace moe {
namespace {

constexpr size_t kShownText = 60;                                // characters of a found text in a message
constexpr std::string_view kTable[] = {"an object", "a table"};  // in JSON; in files that have lines

bool within(double number, const Limits& limits) {
  return std::isfinite(number) && number >= limits.min && number <= limits.max && number > limits.above;
}

// `kind`: "a number", "a whole number".
std::string expectation(std::string_view kind, const Limits& limits) {
  if (limits.min == limits.max) return fmt::format("the {} {}", kind.substr(2), limits.min);
  std::string out(kind);
  if (std::isfinite(limits.above)) out += fmt::format(" > {}", limits.above);
  if (std::isfinite(limits.min)) out += fmt::format(" >= {}", limits.min);
  if (std::isfinite(limits.max))
    out += fmt::format("{} <= {}", std::isfinite(limits.above) || std::isfinite(limits.min) ? " and" : "", limits.max);
  return out;
}

// Returns "FILE:LINE"; "FILE" if the file has no lines.
std::string place(const std::string& path, int line) { return line == 0 ? path : fmt::format("{}:{}", path, line); }

}  // namespace

bool is_name(std::string_view text) {
  constexpr std::string_view kMarks = "._:+-@";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return (c < 0x80 && std::isalnum(c)) || kMarks.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

const ConfigValue* ConfigValue::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}

std::string quoted_text(std::string_view text) {
  std::string out = "'";
  for (const unsigned char c : text.substr(0, kShownText)) out += c < 0x20 || c >= 0x7f ? '?' : static_cast<char>(c);
  return out + (text.size() > kShownText ? "...'" : "'");
}

std::string describe(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigKind::boolean:
      return value.boolean ? "true" : "false";
    case ConfigKind::integer:
      return fmt::format("{}", value.integer);
    case ConfigKind::real: {
      const std::string text = fmt::format("{}", value.real);  // written as 1.0, because it is not a whole number
      return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
    }
    case ConfigKind::text:
      return quoted_text(value.text);
    case ConfigKind::list:
      return fmt::format("a list of {}", value.items.size());
    case ConfigKind::table:
      return std::string(kTable[value.line > 0]);
    case ConfigKind::date:
      return "a date or time";
    case ConfigKind::null:
      return "null";
  }
  return "nothing";
}

TableReader::TableReader(const ConfigFile& file, std::initializer_list<std::string_view> known)
    : TableReader(file.path, "", file.root, known) {}
TableReader::TableReader(const ConfigFile& file, std::span<const std::string_view> known)
    : TableReader(file.path, "", file.root, known) {}

TableReader::TableReader(const std::string& path, std::string prefix, const ConfigValue& table,
                         std::span<const std::string_view> known)
    : path_(&path), prefix_(std::move(prefix)), table_(&table) {
  for (const auto& [key, value] : table.entries)
    if (std::find(known.begin(), known.end(), key) == known.end())
      bad_input("{}: {}: found unknown key {}, expected one of: {}{}", place(path, value.line),
                is_name(key) ? full(key) : prefix_ + "?", quoted_text(key), fmt::join(known, ", "),
                suggestion(key, known));
}

std::string TableReader::full(std::string_view key) const { return prefix_ + std::string(key); }

std::string TableReader::where() const { return place(*path_, table_->line); }

std::string TableReader::where(std::string_view key) const {
  const ConfigValue* found = table_->find(key);
  return fmt::format("{}: {}", place(*path_, found ? found->line : table_->line), full(key));
}

void TableReader::fail(std::string_view key, std::string_view found, std::string_view expected) const {
  bad_input("{}: found {}, expected {}", where(key), found, expected);
}

void TableReader::fail(const ConfigValue& at, std::string_view key, std::string_view expected) const {
  bad_input("{}: {}: found {}, expected {}", place(*path_, at.line), full(key), describe(at), expected);
}

const ConfigValue& TableReader::value(std::string_view key) const {
  const ConfigValue* found = table_->find(key);
  if (!found) fail(key, "no such key", table_->line > 0 ? "it in this table" : "it in this object");
  return *found;
}

double TableReader::real_of(const ConfigValue& item, std::string_view key, Limits limits) const {
  const bool number = item.kind == ConfigKind::integer || item.kind == ConfigKind::real;
  if (!number || !within(item.real, limits)) fail(item, key, expectation("a number", limits));
  return item.real;
}

int64_t TableReader::integer_of(const ConfigValue& item, std::string_view key, Limits limits) const {
  if (item.kind != ConfigKind::integer || !within(item.real, limits))
    fail(item, key, expectation("a whole number", limits));
  return item.integer;
}

double TableReader::real(std::string_view key, Limits limits) const {
  if (!has(key)) fail(key, "no such key", expectation("a number", limits));
  return real_of(value(key), key, limits);
}

int64_t TableReader::integer(std::string_view key, Limits limits) const {
  if (!has(key)) fail(key, "no such key", expectation("a whole number", limits));
  return integer_of(value(key), key, limits);
}

bool TableReader::boolean(std::string_view key) const {
  if (!has(key)) fail(key, "no such key", "true or false");
  if (value(key).kind != ConfigKind::boolean) fail(value(key), key, "true or false");
  return value(key).boolean;
}

std::string TableReader::text(std::string_view key, bool one_line) const {
  const std::string_view expected = one_line ? "a text on one line" : "a text";
  if (!has(key)) fail(key, "no such key", expected);
  const ConfigValue& found = value(key);
  const bool broken = one_line && found.text.find_first_of("\n\r") != std::string::npos;
  if (found.kind != ConfigKind::text || found.text.empty() || broken) fail(found, key, expected);
  return found.text;
}

std::string TableReader::name(std::string_view key) const {
  constexpr std::string_view kExpected = "a name of letters, digits and . _ : + - @";
  if (!has(key)) fail(key, "no such key", kExpected);
  const ConfigValue& found = value(key);
  if (found.kind != ConfigKind::text || !is_name(found.text)) fail(found, key, kExpected);
  return found.text;
}

std::string TableReader::choice(std::string_view key, std::initializer_list<std::string_view> choices) const {
  return choice(key, std::span(choices.begin(), choices.size()));
}

std::string TableReader::choice(std::string_view key, std::span<const std::string_view> choices) const {
  const std::string expected = fmt::format("one of: {}", fmt::join(choices, ", "));
  if (!has(key)) fail(key, "no such key", expected);
  const ConfigValue& found = value(key);
  if (found.kind != ConfigKind::text || std::find(choices.begin(), choices.end(), found.text) == choices.end())
    fail(found, key, expected);
  return found.text;
}

std::optional<double> TableReader::optional_real(std::string_view key, Limits limits) const {
  return has(key) ? std::optional(real(key, limits)) : std::nullopt;
}
std::optional<int64_t> TableReader::optional_integer(std::string_view key, Limits limits) const {
  return has(key) ? std::optional(integer(key, limits)) : std::nullopt;
}
std::optional<std::string> TableReader::optional_name(std::string_view key) const {
  return has(key) ? std::optional(name(key)) : std::nullopt;
}

TableReader TableReader::table(std::string_view key, std::initializer_list<std::string_view> known) const {
  return table(key, std::span<const std::string_view>(known));
}

TableReader TableReader::table(std::string_view key, std::span<const std::string_view> known) const {
  static const ConfigValue kEmpty[] = {{ConfigKind::table, 0, false, 0, 0, {}, {}, {}}, {}};
  const bool has_lines = table_->line > 0;
  if (!has(key)) return {*path_, full(key) + ".", kEmpty[has_lines], known};
  const ConfigValue& found = value(key);
  if (found.kind != ConfigKind::table) fail(found, key, kTable[has_lines]);
  return {*path_, full(key) + ".", found, known};
}

std::vector<TableReader> TableReader::tables(std::string_view key,
                                             std::initializer_list<std::string_view> known) const {
  return tables(key, std::span<const std::string_view>(known.begin(), known.size()));
}

std::vector<TableReader> TableReader::tables(std::string_view key, std::span<const std::string_view> known) const {
  std::vector<TableReader> out;
  if (!has(key)) return out;
  const ConfigValue& found = value(key);
  const bool has_lines = found.line > 0;
  const std::string tables = fmt::format("[[{}]] tables", full(key));
  if (found.kind != ConfigKind::list) fail(found, key, has_lines ? tables : "a list of objects");
  for (const auto& item : found.items) {
    const std::string name = has_lines ? std::string(key) : fmt::format("{}[{}]", key, out.size());
    if (item.kind != ConfigKind::table) fail(item, name, has_lines ? tables : "an object");
    out.push_back({*path_, full(name) + ".", item, known});
  }
  return out;
}

const std::vector<ConfigValue>& TableReader::list(std::string_view key) const {
  if (!has(key)) fail(key, "no such key", "a list with at least one value");
  const ConfigValue& found = value(key);
  if (found.kind != ConfigKind::list || found.items.empty()) fail(found, key, "a list with at least one value");
  return found.items;
}

}  // namespace moe
