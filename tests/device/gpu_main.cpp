// Of tests that need a GPU: 77 where there is none.
#include <cstdio>
#include <gtest/gtest.h>

#include "moe/device/device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (moe::gpu_count() > 0) return RUN_ALL_TESTS();
  std::puts("no GPU");
  return 77;
}
