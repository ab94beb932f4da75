#pragma once
// JSON as our documents have it: keys stay in the order in which they were set.
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

/// Returns a document as files and --json have it. Bytes that are no UTF-8, as a path may have them, are replaced.
inline std::string document_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

// Reads JSON that users and other programs wrote: levels and values are limited, and a fault is named by its place.

inline constexpr size_t kMostValues = 4'000'000;  // of one document that are in memory at once

/// What a text of JSON is made of, without regard to its grammar.
struct JsonOutline {
  size_t values = 0;                // at most as many
  std::optional<size_t> deep_byte;  // the first byte below kMostLevels levels, counted from 1
  size_t open_levels = 0;           // at the end of the text
};
JsonOutline json_outline(std::string_view text);

/// Throws BadInput where the text is nested too deep, or has too many values if `whole` of it will be in memory.
void check_json_outline(std::string_view text, const std::string& where, bool whole);
/// Throws BadInput "WHERE:LINE: byte N: found ..., expected EXPECTED" for the text's first fault; LINE is left out of a
/// text that is one line. Returns where the text has no fault.
void refuse_bad_json(std::string_view text, const std::string& where, std::string_view expected);
/// Replaces control characters in strings, and bytes that are no UTF-8, by '?': profilers write such names. All other
/// bytes stay where they are.
void repair_json_strings(std::string& text);

/// Returns what the text says. With `keep`, which is called as a callback of nlohmann's parser, an object for whose end
/// it returns false is dropped. Throws BadInput as check_json_outline and refuse_bad_json do.
template <class AnyJson = Json, class Keep = std::nullptr_t>
AnyJson json_from(std::string_view text, const std::string& where, std::string_view expected, Keep keep = nullptr) {
  constexpr bool kWhole = std::is_null_pointer_v<Keep>;
  check_json_outline(text, where, kWhole);
  AnyJson json;
  if constexpr (kWhole) {
    json = AnyJson::parse(text, nullptr, false);
  } else {
    size_t values = 0;
    std::vector<size_t> values_before;  // of each object that is open
    const auto counted = [&](int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
      require<BadInput>(++values <= kMostValues, "{}: found more than {} values to keep, expected fewer", where,
                        kMostValues);
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

/// Returns what the text says, unless it is no JSON or exceeds a limit.
template <class AnyJson = Json>
std::optional<AnyJson> json_if_valid(std::string_view text) {
  const JsonOutline outline = json_outline(text);
  if (outline.deep_byte || outline.values > kMostValues) return std::nullopt;
  AnyJson json = AnyJson::parse(text, nullptr, false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

// JSON as a configuration's tree.

/// Returns the tree of an object; `path` is for messages. Throws BadInput for what is none.
ConfigFile config_of(const Json& object, const std::string& path);

}  // namespace moe
