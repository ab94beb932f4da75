#include "moe/device/cpu/memory.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>
#include <vector>

namespace moe {
namespace {

// Returns the bytes of this process that are in memory.
int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Blocks between others that live on: the C library returns by itself what is at its heap's end alone.
TEST(CpuMemory, WhatWasFreedIsGivenBack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
  GTEST_SKIP() << "another allocator";
#endif
  constexpr int64_t kBytes = 64 << 10;  // of a block, too small for a mapping of its own
  std::vector<Memory> living, freed;
  for (int i = 0; i < 1000; ++i)
    std::memset((i % 10 == 0 ? living : freed).emplace_back(cpu::allocate(kBytes)).data(), 1, kBytes);
  const int64_t whole = resident_bytes();
  freed.clear();
  cpu::return_free_memory();
  EXPECT_LT(resident_bytes(), whole - 800 * kBytes);
}

}  // namespace
}  // namespace moe
