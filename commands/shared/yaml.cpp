// The only file that uses libyaml, the parser that PyYAML uses too.
#include "commands/shared/yaml.h"

#include <charconv>
#include <cmath>
#include <map>
#include <utility>
#include <yaml.h>

#include "moe/base/check.h"

namespace moe::commands {
namespace {

constexpr size_t kMaxNodes = 200'000;  // aliases of aliases grow exponentially

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

// If the whole text is a number, sets it. YAML allows a leading + and underscores between digits.
void set_number(std::string_view text, ConfigValue& value) {
  std::string plain;
  for (const char c : text.substr(text.starts_with('+') ? 1 : 0))
    if (c != '_') plain += c;
  const char* end = plain.data() + plain.size();
  if (plain.empty() || plain.find_first_not_of("+-.0123456789eE") != std::string::npos) return;
  if (const auto [stop, error] = std::from_chars(plain.data(), end, value.integer);
      error == std::errc{} && stop == end) {
    value.kind = ConfigKind::integer;
    value.real = static_cast<double>(value.integer);
  } else if (const auto [last, fault] = std::from_chars(plain.data(), end, value.real);
             fault == std::errc{} && last == end && std::isfinite(value.real)) {
    value.kind = ConfigKind::real;
  }
}

ConfigValue scalar(std::string text, bool is_plain) {
  ConfigValue value;
  value.kind = ConfigKind::text;
  if (is_plain) {
    if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) {
      value.kind = ConfigKind::null;
    } else if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) {
      value.kind = ConfigKind::boolean;
      value.boolean = true;
    } else if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) {
      value.kind = ConfigKind::boolean;
    } else {
      set_number(text, value);
    }
  }
  value.text = std::move(text);
  return value;
}

size_t nodes_of(const ConfigValue& value) {
  size_t nodes = 1;
  for (const ConfigValue& item : value.items) nodes += nodes_of(item);
  for (const ConfigEntry& entry : value.entries) nodes += nodes_of(entry.value);
  return nodes;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& path) : path_(path) {
    require<BadInput>(yaml_parser_initialize(&parser_) != 0, "{}: not enough memory to read it", path);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Parser() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  ConfigValue document() {
    next();  // start of the stream
    next();
    ConfigValue root;
    if (event_.type == YAML_DOCUMENT_START_EVENT) {
      next();
      root = value(0);
      next();  // end of the document
      next();
      if (event_.type != YAML_STREAM_END_EVENT) fail("another document", "one");
    }
    if (root.kind == ConfigKind::null) root = ConfigValue();
    require<BadInput>(root.kind == ConfigKind::table, "{}:{}: found {}, expected a mapping", path_, root.line,
                      describe(root));
    return root;
  }

 private:
  [[noreturn]] void fail(std::string_view found, std::string_view expected) const {
    bad_input("{}:{}: found {}, expected {}", path_, line(), found, expected);
  }
  int line() const { return static_cast<int>(event_.start_mark.line) + 1; }

  void next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) != 0) return;
    const size_t at = parser_.problem_mark.line + 1;
    bad_input("{}:{}: found bad syntax ({}), expected YAML", path_, at,
              parser_.problem == nullptr ? "unknown" : parser_.problem);
  }

  void count(size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) fail(fmt::format("more than {} values", kMaxNodes), "fewer");
  }

  // Returns the value that begins with the current event, and advances to the last event of it.
  ConfigValue value(int level) {
    if (level > kMaxLevels) fail(fmt::format("values nested deeper than {} levels", kMaxLevels), "fewer");
    const int begin = line();
    ConfigValue out;
    std::string anchor;
    const auto named = [](const yaml_char_t* name) {
      return name == nullptr ? std::string() : reinterpret_cast<const char*>(name);
    };
    switch (event_.type) {
      case YAML_ALIAS_EVENT: {
        const auto known = anchors_.find(named(event_.data.alias.anchor));
        if (known == anchors_.end())
          fail(quoted_text(named(event_.data.alias.anchor)), "the name of an anchor above it");
        count(nodes_of(known->second));
        return known->second;
      }
      case YAML_SCALAR_EVENT: {
        const auto& found = event_.data.scalar;
        anchor = named(found.anchor);
        const bool is_plain = found.style == YAML_PLAIN_SCALAR_STYLE && named(found.tag) != YAML_STR_TAG;
        out = scalar({reinterpret_cast<const char*>(found.value), found.length}, is_plain);
        break;
      }
      case YAML_SEQUENCE_START_EVENT:
        anchor = named(event_.data.sequence_start.anchor);
        out.kind = ConfigKind::list;
        for (next(); event_.type != YAML_SEQUENCE_END_EVENT; next()) out.items.push_back(value(level + 1));
        break;
      case YAML_MAPPING_START_EVENT:
        anchor = named(event_.data.mapping_start.anchor);
        out.entries = entries(level);
        break;
      default:
        fail("no value", "one");
    }
    count(1);
    out.line = begin;
    if (!anchor.empty()) anchors_[anchor] = out;
    return out;
  }

  std::vector<ConfigEntry> entries(int level) {
    ConfigValue table;
    std::vector<ConfigValue> merged;
    for (next(); event_.type != YAML_MAPPING_END_EVENT; next()) {
      if (event_.type != YAML_SCALAR_EVENT) fail("a key that is no scalar", "a name");
      const std::string key = value(level + 1).text;
      if (table.find(key) != nullptr) fail(quoted_text(key) + " twice", "it once");
      next();
      if (key == "<<")
        merged.push_back(value(level + 1));
      else
        table.entries.push_back({key, value(level + 1)});
    }
    for (const ConfigValue& other : merged) merge(other, table);
    return std::move(table.entries);
  }

  void merge(const ConfigValue& other, ConfigValue& table) {
    for (const ConfigValue& item : other.items) merge(item, table);
    for (const ConfigEntry& entry : other.entries)
      if (table.find(entry.key) == nullptr) table.entries.push_back(entry);
  }

  const std::string& path_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
  std::map<std::string, ConfigValue> anchors_;
  size_t nodes_ = 0;
};

}  // namespace

ConfigFile parse_yaml(std::string_view text, const std::string& path) { return {path, Parser(text, path).document()}; }

}  // namespace moe::commands
