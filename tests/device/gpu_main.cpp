// The main of tests that need a GPU exits with 77 where there is none, but with 1 where CUDA can't use the one that
// there is (a driver older than the toolkit, say), or all of them would be skipped without a word.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/device/device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  moe::set_cuda_connections();
  if (moe::gpu_count() > 0) return RUN_ALL_TESTS();
  std::string reason;
  try {
    moe::make_device(moe::DeviceKind::cuda);
  } catch (const moe::BadInput& error) {
    reason = error.what();
  }
  std::puts(reason.c_str());
  const bool built = reason.starts_with("no GPU"), hidden = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  return built && !hidden && std::filesystem::exists("/dev/nvidiactl") ? 1 : 77;
}
