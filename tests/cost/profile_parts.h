#pragma once
// A profile's file as text, and its first row of an op.
#include <algorithm>
#include <sstream>
#include <string>

#include "moe/cost/profile.h"

namespace moe {

inline std::string text_of(const Profile& profile) {
  std::ostringstream out;
  write_profile(profile, out);
  return out.str();
}

inline CommRow& row_of(Profile& profile, Op op) {
  return *std::ranges::find_if(profile.comm, [&](const CommRow& row) { return row.op == op; });
}

}  // namespace moe
