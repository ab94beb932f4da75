#pragma once
// Names where memory lies and work runs, and whose kernels compute attention.
#include <cstdint>
#include <string_view>

namespace moe {

enum class DeviceKind : uint8_t { cpu, cuda };
constexpr std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::cuda ? "cuda" : "cpu"; }

/// Whose kernels compute attention on a GPU: ours or LibTorch's. On the CPU they are always LibTorch's.
enum class AttentionBy : uint8_t { own, torch };

}  // namespace moe
