#include "moe/tensor/memory_space.h"

#include <cstring>
#include <new>

namespace moe {
namespace {

constexpr std::align_val_t kAlignment{64};

class CpuMemory final : public MemorySpace {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  void* allocate(int64_t bytes) override {
    void* data = ::operator new(static_cast<size_t>(bytes) + 1, kAlignment);  // + 1: never a null pointer
    std::memset(data, 0, static_cast<size_t>(bytes));
    return data;
  }
  void release(void* data, int64_t) noexcept override { ::operator delete(data, kAlignment); }
  void from_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void to_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void copy(const void* from, void* to, int64_t bytes, void*) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void clear(void* data, int64_t bytes, void*) override { std::memset(data, 0, static_cast<size_t>(bytes)); }
};

}  // namespace

MemorySpace& cpu_memory() {
  static CpuMemory memory;
  return memory;
}

}  // namespace moe
