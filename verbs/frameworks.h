#pragma once
// Which of the schedules other frameworks run, and by which name `export` knows them.
#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace moe {

/// `close` are schedules that it runs but for something that no record can price; `but` says what.
struct Framework {
  std::string_view name, format;
  std::span<const std::string_view> exact, close = {};
  std::string_view but = {};
};

/// Tutel, Megatron-Core, DeepSpeed, FSMoE's published layer: as their own documentation has it.
std::span<const Framework> frameworks();
/// Returns the one of that format, which is one of them.
const Framework& framework_of(std::string_view format);

/// Schedules that every comparison shows, whatever they take: Tutel's, and the one of DeepSpeed-MoE.
inline constexpr std::array<std::string_view, 2> kBaselines{"tutel", "ds-moe"};
inline bool is_baseline(std::string_view schedule) {
  return std::ranges::find(kBaselines, schedule) != kBaselines.end();
}

}  // namespace moe
