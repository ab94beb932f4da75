#include "regress/verdict.h"

#include <array>

namespace moe::regress {
namespace {

constexpr std::array<std::string_view, 4> kNames{"SAME", "SLOW", "FAST", "AMBG"};
constexpr double kMoreMemory = 1.01;

}  // namespace

std::string_view name_of(Verdict verdict) { return kNames[static_cast<size_t>(verdict)]; }

Verdict memory_verdict(double ratio) {
  return ratio > kMoreMemory ? Verdict::slower : ratio < 1 / kMoreMemory ? Verdict::faster : Verdict::same;
}

}  // namespace moe::regress
