#pragma once
// The part of make_device() that a build without CUDA refuses (absent.cpp).
#include <memory>

#include "moe/device/stream.h"

namespace moe::cuda {

std::unique_ptr<Device> make_device(int local_rank);

}  // namespace moe::cuda
