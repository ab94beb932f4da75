#pragma once
// What a probe found, for tests to look up.
#include <fmt/format.h>

#include "commands/doctor/probes.h"
#include "tests/base/made_up_machine.h"

namespace moe::doctor {

/// Returns the first finding whose text begins so; where there is none, an empty one and a test failure.
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
