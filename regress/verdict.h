#pragma once
// What a gate or a comparison says of a case.
#include <cstdint>
#include <string_view>

namespace moe::regress {

enum class Verdict : uint8_t { same, slower, faster, ambiguous };
std::string_view name_of(Verdict verdict);  // SAME, SLOW, FAST, AMBG

/// Judges a case's peak of memory, head / base: it has no noise, so 1 % more is slower.
Verdict memory_verdict(double ratio);

}  // namespace moe::regress
