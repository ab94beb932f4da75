#pragma once
// The CPU as a device.
#include <memory>

#include "moe/device/stream.h"

namespace moe::cpu {

/// Makes the device; the work of each stream may compute with `threads` threads (set_thread_count).
std::unique_ptr<Device> make_device(int threads);

}  // namespace moe::cpu
