#pragma once
// Configuration files and JSON documents as a neutral tree, and a strict reader over it.
//
// Every error is BadInput of one line: "FILE:LINE: KEY: found ..., expected ...". JSON has no line numbers: there, it
// is "FILE: KEY: ...", and the key of a list's item includes the item's number, "tasks[7].kind".
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

enum class ConfigKind : uint8_t { boolean, integer, real, text, list, table, date, null };

struct ConfigEntry;

/// One value of a file. `line` is where it begins; 0 in JSON, which has no lines.
struct ConfigValue {
  ConfigKind kind = ConfigKind::table;
  int line = 1;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;  // the value of a real number, and of an integer too
  std::string text;
  std::vector<ConfigValue> items;    // items of a list
  std::vector<ConfigEntry> entries;  // entries of a table
  const ConfigValue* find(std::string_view key) const;
};
struct ConfigEntry {
  std::string key;
  ConfigValue value;
};

/// Returns the value as a person reads it, on one line and of bounded length: "'fast'", "-3", "a list of 2".
std::string describe(const ConfigValue& value);
/// Returns `text` in quotes, on one line, cut to 60 characters; control characters and broken UTF-8 show as '?'.
std::string quoted_text(std::string_view text);

/// Returns whether the text has only letters, digits and . _ : + - @, so that it can be part of keys and file names.
bool is_name(std::string_view text);
/// Returns whether the text is one line of UTF-8 without control characters; it may be empty.
bool is_line(std::string_view text);

struct ConfigFile {
  std::string path;
  ConfigValue root;
};

/// Parses TOML 1.0. Throws BadInput for a file that can't be read ("FILE: ...") and for bad syntax ("FILE:LINE: ...").
ConfigFile read_toml(const std::string& path);
/// Parses a text as read_toml() does a file; `path` is for messages.
ConfigFile parse_toml(std::string_view text, const std::string& path);
/// Parses a JSON text whose root is an object; `path` is for messages.
ConfigFile parse_json(std::string_view text, const std::string& path);

/// Closed or open limits of a number; `above` excludes its value.
struct Limits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
};
inline constexpr Limits kPositive{.above = 0};
inline constexpr Limits kNonNegative{.min = 0};

/// Reads the typed keys of one table, with limits. A key outside `known` is an error at once, so that a misspelt key is
/// reported itself, not as a missing key. Numbers must be finite. A reader holds views: the file must outlive it.
class TableReader {
 public:
  TableReader(const ConfigFile& file, std::initializer_list<std::string_view> known);
  TableReader(const ConfigFile& file, std::span<const std::string_view> known);

  double real(std::string_view key, Limits limits = {}) const;
  int64_t integer(std::string_view key, Limits limits = {}) const;
  bool boolean(std::string_view key) const;
  /// Reads a text that is not empty; if `one_line`, it must not contain line breaks.
  std::string text(std::string_view key, bool one_line = true) const;
  /// Reads a text that satisfies is_name().
  std::string name(std::string_view key) const;
  /// Reads one of `choices`.
  std::string choice(std::string_view key, std::initializer_list<std::string_view> choices) const;
  std::string choice(std::string_view key, std::span<const std::string_view> choices) const;

  std::optional<double> optional_real(std::string_view key, Limits limits = {}) const;
  std::optional<int64_t> optional_integer(std::string_view key, Limits limits = {}) const;
  std::optional<std::string> optional_name(std::string_view key) const;

  /// Reads one of the first `count` values of an enum by its name (name_of()).
  template <class Kind>
  Kind named(std::string_view key, int count) const {
    std::vector<std::string_view> names;
    for (int i = 0; i < count; ++i) names.push_back(name_of(static_cast<Kind>(i)));
    const std::string found = choice(key, names);
    return static_cast<Kind>(std::ranges::find(names, found) - names.begin());
  }

  /// Returns the table; a table without entries if the key is absent.
  TableReader table(std::string_view key, std::initializer_list<std::string_view> known) const;
  TableReader table(std::string_view key, std::span<const std::string_view> known) const;
  /// Returns an array of tables; none if the key is absent.
  std::vector<TableReader> tables(std::string_view key, std::initializer_list<std::string_view> known) const;
  std::vector<TableReader> tables(std::string_view key, std::span<const std::string_view> known) const;
  /// Returns the items of a list with at least one item.
  const std::vector<ConfigValue>& list(std::string_view key) const;

  bool has(std::string_view key) const { return table_->find(key) != nullptr; }
  const ConfigValue& value(std::string_view key) const;
  /// Reads a number that is an item of the list `key`.
  double real_of(const ConfigValue& item, std::string_view key, Limits limits = {}) const;
  int64_t integer_of(const ConfigValue& item, std::string_view key, Limits limits = {}) const;

  /// Returns "FILE:LINE: KEY" or "FILE: KEY", for errors of other readers; LINE is the table's own line if the key is
  /// absent.
  std::string where(std::string_view key) const;
  /// Returns "FILE:LINE" of the table.
  std::string where() const;
  /// Throws BadInput "FILE:LINE: KEY: found FOUND, expected EXPECTED".
  [[noreturn]] void fail(std::string_view key, std::string_view found, std::string_view expected) const;
  [[noreturn]] void fail(const ConfigValue& at, std::string_view key, std::string_view expected) const;

 private:
  TableReader(const std::string& path, std::string prefix, const ConfigValue& table,
              std::span<const std::string_view> known);
  std::string full(std::string_view key) const;

  const std::string* path_;
  std::string prefix_;  // prefix of keys in messages: "comm."
  const ConfigValue* table_;
};

// The maximum nesting depth of JSON and TOML values, because trees of values are read by recursion.

inline constexpr int kMaxLevels = 100;

/// Throws BadInput "PATH:LINE: ..." if tables and lists of a TOML text are nested too deep, or a key has too many
/// parts: the parser itself has no limit for keys.
void check_toml_levels(std::string_view text, const std::string& path);

}  // namespace moe
