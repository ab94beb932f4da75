#pragma once
#include <functional>
#include <string>

namespace moe {

/// Returns the message of the Error that `body` throws, or "none".
template <class Error>
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace moe
