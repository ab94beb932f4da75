#pragma once
// Names where memory lies and work runs, and by whose kernels.
#include <cstdint>
#include <string_view>

namespace moe {

enum class DeviceKind : uint8_t { cpu, cuda };
constexpr std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::cuda ? "cuda" : "cpu"; }

/// Who computes attention on a GPU: our kernels, or LibTorch's. On the CPU it is always LibTorch.
enum class AttentionBy : uint8_t { own, torch };

}  // namespace moe
