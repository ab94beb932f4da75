#include "moe/device/cpu/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "moe/base/units.h"

namespace moe {
namespace {

constexpr size_t kCacheLine = 64;

class CpuMemory final : public MemorySpace {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  Memory allocate(int64_t bytes) override {
    Memory memory = cpu::allocate(bytes);
    clear(memory.data(), bytes, nullptr);
    return memory;
  }
  void from_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void to_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void copy(const void* from, void* to, int64_t bytes, void*) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void clear(void* data, int64_t bytes, void*) override { std::memset(data, 0, static_cast<size_t>(bytes)); }
};

}  // namespace

Memory cpu::allocate(int64_t bytes) {
  const auto lines = (static_cast<size_t>(bytes) + kCacheLine - 1) / kCacheLine;
  void* data = std::aligned_alloc(kCacheLine, std::max(lines, size_t{1}) * kCacheLine);
  require<OutOfMemory>(data != nullptr, "no memory for {}", human_bytes(static_cast<double>(bytes)));
  return {data, bytes, [](void* owned) { std::free(owned); }};
}

void cpu::return_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

MemorySpace& cpu_memory() {
  static CpuMemory memory;
  return memory;
}

}  // namespace moe
