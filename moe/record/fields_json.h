#pragma once
// Named values as JSON, for documents that hold what records do.
#include "moe/base/json.h"
#include "moe/record/record.h"

namespace moe {

/// Returns the object {NAME: VALUE, ...} in the order of the fields.
inline Json to_json(const Fields& fields) {
  Json object = Json::object();
  for (const auto& [name, value] : fields) std::visit([&, &key = name](const auto& v) { object[key] = v; }, value);
  return object;
}

}  // namespace moe
