#pragma once
// Findings of the verb `doctor`.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moe::doctor {

/// ok    no effect on measurements
/// note  worth knowing when figures are read or compared with another machine's
/// warn  figures are noisy, or measure something else than intended
enum class Level : uint8_t { ok, note, warn };
std::string_view name_of(Level level);

struct Finding {
  Level level = Level::ok;
  std::string area;          // "cpu", "load", "memory", "gpu", "network", "variable", "clock"
  std::string found;         // "governor powersave on 8 of 8 cores"
  std::string meaning;       // consequence for measurements
  std::string command = {};  // command that changes or shows the condition; never run by doctor; empty: none
};
using Findings = std::vector<Finding>;

/// Makes findings of one area.
struct Area {
  std::string_view name;
  Finding operator()(Level level, std::string found, std::string meaning, std::string command = {}) const {
    return {level, std::string(name), std::move(found), std::move(meaning), std::move(command)};
  }
};

}  // namespace moe::doctor
