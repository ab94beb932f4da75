// The only source that includes toml++.
#include "moe/base/config.h"

#include <algorithm>
#include <vector>

#include "moe/base/check.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "moe/base/files.h"

namespace moe {
namespace {

constexpr size_t kMaxTomlBytes = 16 << 20;  // the tree of a text takes 50 times its bytes

ConfigValue value_of(const toml::node& node);

ConfigValue table_of(const toml::table& table) {
  ConfigValue out;
  for (const auto& [key, node] : table) {
    ConfigValue value = value_of(node);
    // Use the key's own line, because a list or a table that is continued may begin elsewhere.
    if (const auto line = key.source().begin.line; line > 0) value.line = static_cast<int>(line);
    out.entries.push_back({std::string(key.str()), std::move(value)});
  }
  return out;
}

ConfigValue value_of(const toml::node& node) {
  ConfigValue out;
  if (const auto* table = node.as_table()) {
    out = table_of(*table);
  } else if (const auto* list = node.as_array()) {
    out.kind = ConfigKind::list;
    for (const auto& item : *list) out.items.push_back(value_of(item));
  } else if (const auto* text = node.as_string()) {
    out.kind = ConfigKind::text;
    out.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    out.kind = ConfigKind::integer;
    out.integer = integer->get();
    out.real = static_cast<double>(integer->get());
  } else if (const auto* real = node.as_floating_point()) {
    out.kind = ConfigKind::real;
    out.real = real->get();
  } else if (const auto* boolean = node.as_boolean()) {
    out.kind = ConfigKind::boolean;
    out.boolean = boolean->get();
  } else {
    out.kind = ConfigKind::date;
  }
  out.line = std::max(1, static_cast<int>(node.source().begin.line));
  return out;
}

}  // namespace

bool is_line(std::string_view text) {
  return text.find_first_of("\r\n") == std::string_view::npos && bool(toml::parse(fmt::format("# {}", text)));
}

ConfigFile parse_toml(std::string_view text, const std::string& path) {
  check_toml_levels(text, path);
  const toml::parse_result result = toml::parse(text, std::string_view(path));
  if (!result) {
    const auto& error = result.error();
    std::string description(error.description());
    for (char& c : description)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    bad_input("{}:{}: found bad syntax ({}), expected TOML", path, std::max<int>(1, int(error.source().begin.line)),
              description);
  }
  return {path, table_of(result.table())};
}

ConfigFile read_toml(const std::string& path) {
  const std::string text = text_of_file(path, "a TOML file");
  require<BadInput>(text.size() <= kMaxTomlBytes, "{}: found {} bytes, expected a TOML file of {} at most", path,
                    text.size(), kMaxTomlBytes);
  return parse_toml(text, path);
}

namespace {

// Returns the position after a string that begins at `at`, or the end of the text.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.substr(at, 3) == three;
  for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"')
      ++i;
    else if (lines && text.substr(i, 3) == three)
      return i + 3;
    else if (!lines && (text[i] == quote || text[i] == '\n'))
      return i + 1;
  }
  return text.size();
}

}  // namespace

void check_toml_levels(std::string_view text, const std::string& path) {
  std::vector<int> open;  // by open bracket, the levels that it adds, including those of its key's dots
  int levels = 0, dots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '"' || c == '\'') {
      i = end_of_string(text, i);
    } else {
      if (c == '[' || c == '{') {
        open.push_back(dots + 1);
        levels += open.back();
        dots = 0;
      } else if ((c == ']' || c == '}') && !open.empty()) {
        levels -= open.back();
        open.pop_back();
      }
      // A value contains at most one dot, so dots can be counted until the next key.
      if (c == '.') ++dots;
      if (c == '\n' || c == ',') dots = 0;
      if (levels + dots > kMaxLevels)
        bad_input("{}:{}: found values nested deeper than {} levels, expected fewer", path,
                  1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'), kMaxLevels);
      ++i;
    }
  }
}

}  // namespace moe
