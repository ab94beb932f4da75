#include "moe/base/json.h"

#include <algorithm>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/text.h"

namespace moe {
namespace {

constexpr size_t kShownBefore = 24;  // bytes of the text shown before an error

/// Accepts all values and stores the position of the first error.
class FaultFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::optional<size_t> byte;  // counted from 1

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    byte = position;
    return false;
  }
};

/// Returns "WHERE:LINE: byte N"; `byte` is counted from 1.
std::string place(std::string_view text, const std::string& where, size_t byte) {
  const bool one_line =
      std::string_view(text).substr(0, text.find_last_not_of(" \t\r\n") + 1).find('\n') == std::string_view::npos;
  if (one_line) return fmt::format("{}: byte {}", where, byte);
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte - 1, text.size()));
  return fmt::format("{}:{}: byte {}", where, 1 + std::count(text.begin(), end, '\n'), byte);
}

}  // namespace

JsonOutline json_outline(std::string_view text) {
  JsonOutline outline;
  outline.values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      i += c == '\\';
    } else if (c == '[' || c == '{') {
      ++outline.values;
      if (++outline.open_levels > kMaxLevels && !outline.deep_byte) outline.deep_byte = i + 1;
    } else if (c == ']' || c == '}') {
      outline.open_levels -= outline.open_levels > 0;
    } else if (c == ',') {
      ++outline.values;
    }
  }
  if (in_string) ++outline.open_levels;
  return outline;
}

void check_json_outline(std::string_view text, const std::string& where, bool whole) {
  const JsonOutline outline = json_outline(text);
  if (outline.deep_byte)
    bad_input("{}: found values nested deeper than {} levels, expected fewer", place(text, where, *outline.deep_byte),
              kMaxLevels);
  require<BadInput>(!whole || outline.values <= kMaxValues, "{}: found about {} values, expected {} at most", where,
                    outline.values, kMaxValues);
}

void refuse_bad_json(std::string_view text, const std::string& where, std::string_view expected) {
  FaultFinder finder;
  nlohmann::json::sax_parse(text, &finder);
  if (!finder.byte) return;
  const size_t byte = std::max<size_t>(1, *finder.byte);
  const size_t end = text.find_last_not_of(" \t\r\n") + 1;
  if (byte > end) bad_input("{}: found the end of the text, expected {}", place(text, where, end + 1), expected);
  const size_t first = byte - std::min(byte, kShownBefore);
  bad_input("{}: found bad syntax at {}, expected {}", place(text, where, byte),
            quoted_text(text.substr(first, byte - first)), expected);
}

void repair_json_strings(std::string& text) {
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_size(std::string_view(text).substr(i));
    const char c = text[i];
    if (size == 0 || (in_string && static_cast<unsigned char>(c) < 0x20)) {
      text[i++] = '?';
      continue;
    }
    if (c == '"') in_string = !in_string;
    const bool escape = in_string && c == '\\' && i + 1 < text.size() &&
                        static_cast<unsigned char>(text[i + 1]) >= 0x20 &&
                        static_cast<unsigned char>(text[i + 1]) < 0x80;
    i += escape ? 2 : size;
  }
}

namespace {

ConfigValue value_of(const Json& json) {
  ConfigValue out;
  out.line = 0;
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) out.entries.push_back({key, value_of(value)});
  } else if (json.is_array()) {
    out.kind = ConfigKind::list;
    for (const Json& item : json) out.items.push_back(value_of(item));
  } else if (json.is_string()) {
    out.kind = ConfigKind::text;
    out.text = json.get<std::string>();
  } else if (json.is_number()) {
    // A whole number that does not fit into 64 bits with a sign becomes a real number.
    const bool whole = json.is_number_integer() && (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX);
    out.kind = whole ? ConfigKind::integer : ConfigKind::real;
    if (whole) out.integer = json.get<int64_t>();
    out.real = json.get<double>();
  } else if (json.is_boolean()) {
    out.kind = ConfigKind::boolean;
    out.boolean = json.get<bool>();
  } else {
    out.kind = ConfigKind::null;
  }
  return out;
}

}  // namespace

ConfigFile config_of(const Json& object, const std::string& path) {
  ConfigValue root = value_of(object);
  require<BadInput>(object.is_object(), "{}: found {}, expected an object", path, describe(root));
  return {path, std::move(root)};
}

ConfigFile parse_json(std::string_view text, const std::string& path) {
  return config_of(json_from(text, path, "JSON"), path);
}

}  // namespace moe
