#pragma once
// What a probe found, for tests to look up.
#include <fmt/format.h>

#include "doctor/probes.h"
#include "tests/base/made_up_machine.h"

namespace moe::doctor {

/// The first finding whose text begins so; a test failure, and an empty one, where there is none.
inline Finding found(const Findings& all, const std::string& start) {
  for (const Finding& one : all)
    if (one.found.starts_with(start)) return one;
  std::string known;
  for (const Finding& one : all) known += "\n  " + one.found;
  ADD_FAILURE() << "nothing begins with '" << start << "' among:" << known;
  return {};
}

inline bool has(const Findings& all, const std::string& start) {
  for (const Finding& one : all)
    if (one.found.starts_with(start)) return true;
  return false;
}

}  // namespace moe::doctor
