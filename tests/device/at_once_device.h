#pragma once
// A device that behaves as a GPU does, made of the CPU's streams: launch() calls its work at once on the calling
// thread, while copies, sums, events and holds pass by later, in order. What is written for GPUs is tested on it
// without one.
#include <memory>

#include "moe/device/stream.h"

namespace moe {

std::unique_ptr<Device> make_at_once_device();

}  // namespace moe
