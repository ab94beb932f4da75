#pragma once
// JSON as our documents have it: keys stay in the order in which they were set.
#include <nlohmann/json.hpp>
#include <string>

namespace moe {

using Json = nlohmann::ordered_json;

/// Returns a document as files and --json have it. Bytes that are no UTF-8, as a path may have them, are replaced.
inline std::string document_text(const Json& document) {
  return document.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moe
