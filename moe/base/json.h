#pragma once
// JSON for our documents: keys stay in the order in which they were set.
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/base/check.h"
#include "moe/base/config.h"

namespace moe {

using Json = nlohmann::ordered_json;

/// Returns a document's text as files and --json show it. Bytes that are not UTF-8, such as in a path, are replaced.
inline std::string document_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

// Reads JSON from users and other programs: depth and number of values are limited, and errors name their position.

inline constexpr size_t kMaxValues = 4'000'000;  // values of one document that may be in memory at the same time

/// The size and depth of a JSON text, counted without regard to its grammar.
struct JsonOutline {
  size_t values = 0;                // upper bound on the number of values
  std::optional<size_t> deep_byte;  // the first byte that is deeper than kMaxLevels levels, counted from 1
  size_t open_levels = 0;           // levels that are still open at the end of the text
};
JsonOutline json_outline(std::string_view text);

/// Throws BadInput if the text is nested too deep, or if `whole` and it has too many values to keep in memory.
void check_json_outline(std::string_view text, const std::string& where, bool whole);
/// Throws BadInput "WHERE:LINE: byte N: found ..., expected EXPECTED" for the text's first error, without LINE if the
/// text is a single line. Returns if the text has no error.
void refuse_bad_json(std::string_view text, const std::string& where, std::string_view expected);
/// Replaces control characters in strings, and bytes that are not UTF-8, by '?': profilers write such names. All other
/// bytes stay where they are.
void repair_json_strings(std::string& text);

/// Returns the parsed text. `keep` is a callback of nlohmann's parser: an object is dropped if `keep` returns false at
/// the object's end. Throws BadInput as check_json_outline and refuse_bad_json do.
template <class AnyJson = Json, class Keep = std::nullptr_t>
AnyJson json_from(std::string_view text, const std::string& where, std::string_view expected, Keep keep = nullptr) {
  constexpr bool kWhole = std::is_null_pointer_v<Keep>;
  check_json_outline(text, where, kWhole);
  AnyJson json;
  if constexpr (kWhole) {
    json = AnyJson::parse(text, nullptr, false);
  } else {
    size_t values = 0;
    std::vector<size_t> values_before;  // by open object, the number of values before it
    const auto counted = [&](int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
      require<BadInput>(++values <= kMaxValues, "{}: found more than {} values to keep, expected fewer", where,
                        kMaxValues);
      if (event == AnyJson::parse_event_t::object_start) values_before.push_back(values);
      const bool kept = keep(depth, event, parsed);
      if (event == AnyJson::parse_event_t::object_end) {
        if (!kept) values = values_before.back();
        values_before.pop_back();
      }
      return kept;
    };
    json = AnyJson::parse(text, counted, false);
  }
  if (!json.is_discarded()) return json;
  refuse_bad_json(text, where, expected);
  return {};
}

/// Returns the parsed text; none if it is not JSON or exceeds a limit.
template <class AnyJson = Json>
std::optional<AnyJson> json_if_valid(std::string_view text) {
  const JsonOutline outline = json_outline(text);
  if (outline.deep_byte || outline.values > kMaxValues) return std::nullopt;
  AnyJson json = AnyJson::parse(text, nullptr, false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

// JSON as a configuration's tree.

/// Returns the tree of an object; `path` is for messages. Throws BadInput if `object` is not an object.
ConfigFile config_of(const Json& object, const std::string& path);

}  // namespace moe
