#pragma once
// Members of other programs' JSON without a fixed schema: a missing member, or one of another type, counts as empty.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace moe::exchange {

inline double number_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

inline int64_t whole_at(const nlohmann::json& object, const char* key, int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

inline nlohmann::json object_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : nlohmann::json::object();
}

inline nlohmann::json list_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : nlohmann::json::array();
}

inline std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace moe::exchange
