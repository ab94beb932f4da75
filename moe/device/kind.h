#pragma once
// Names where memory lies and work runs.
#include <cstdint>
#include <string_view>

namespace moe {

enum class DeviceKind : uint8_t { cpu, cuda };
std::string_view name_of(DeviceKind kind);

}  // namespace moe
