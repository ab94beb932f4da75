#pragma once
// What the verb `doctor` finds.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moe::doctor {

/// ok    nothing that a measurement would notice
/// note  to know when figures are read, or compared with another machine's
/// warn  figures are noisy, or of something else than is meant
enum class Level : uint8_t { ok, note, warn };
std::string_view name_of(Level level);

struct Finding {
  Level level = Level::ok;
  std::string area;          // "cpu", "load", "memory", "gpu", "network", "variable", "clock"
  std::string found;         // "governor powersave on 8 of 8 cores"
  std::string meaning;       // for measurements
  std::string command = {};  // that a person could run to change it; empty: none. Nothing here runs it
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
