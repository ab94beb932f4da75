#include "moe/base/config_json.h"

#include <utility>

#include "moe/base/check.h"
#include "moe/base/json_input.h"

namespace moe {
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
    // A whole number beyond 64 bits with a sign is a real one.
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
