#pragma once
// The CPU as a device.
#include <memory>

#include "moe/device/stream.h"

namespace moe::cpu {

/// Makes the device; each stream's thread is told that it may use `threads` (set_own_threads).
std::unique_ptr<Device> make_device(int threads);

}  // namespace moe::cpu
