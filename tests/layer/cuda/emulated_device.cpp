#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "moe/tensor/cuda/launch.cuh"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

constexpr int64_t kPage = 4096;
constexpr auto kBehind = std::byte{0xA5};

int64_t whole(int64_t bytes, int64_t of) { return (bytes + of - 1) / of * of; }

// The pages before and behind can't be touched; data ends at the one behind, but for its alignment.
class GuardedMemory final : public MemorySpace {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  Memory allocate(int64_t bytes) override {
    const int64_t padded = std::max<int64_t>(whole(bytes, 16), 16), pages = whole(padded, kPage);
    void* all = mmap(nullptr, static_cast<size_t>(pages + 2 * kPage), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require<WrongResult>(all != MAP_FAILED, "no memory for an emulated device");
    auto* first = static_cast<std::byte*>(all) + kPage;
    mprotect(first, static_cast<size_t>(pages), PROT_READ | PROT_WRITE);
    std::fill(first, first + pages, kBehind);
    std::byte* data = first + pages - padded;
    std::memset(data, 0, static_cast<size_t>(bytes));
    return {data, bytes, [bytes](void* owned) { release(owned, bytes); }};
  }
  void from_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void to_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void copy(const void* from, void* to, int64_t bytes, void*) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void clear(void* data, int64_t bytes, void*) override { std::memset(data, 0, static_cast<size_t>(bytes)); }

 private:
  static void release(void* data, int64_t bytes) {
    const int64_t padded = std::max<int64_t>(whole(bytes, 16), 16), pages = whole(padded, kPage);
    auto* at = static_cast<std::byte*>(data);
    std::byte* first = at + padded - pages;
    const auto touched = [](std::byte b) { return b != kBehind; };
    if (std::any_of(first, at, touched) || std::any_of(at + bytes, at + padded, touched)) {
      fmt::print(stderr, "a kernel wrote outside an allocation of {} bytes\n", bytes);
      std::abort();
    }
    munmap(first - kPage, static_cast<size_t>(pages + 2 * kPage));
  }
};

void turn_threads() {
  static std::atomic<int> made = 0;
  emulation::set_backwards(made++ % 2 == 1);
}

}  // namespace

std::unique_ptr<MemorySpace> make_test_memory() { return std::make_unique<GuardedMemory>(); }

std::unique_ptr<cuda::CudaMath> make_test_math() {
  turn_threads();
  return std::make_unique<cuda::CudaMath>(make_test_memory(), make_plain_gemm());
}
std::unique_ptr<LayerDevice> make_test_layer_device() {
  turn_threads();
  return cuda::make_layer_device(make_test_memory(), make_plain_gemm());
}

std::unique_ptr<cuda::Gemm> make_test_gemm(cuda::AlgorithmChoice) { return make_plain_gemm(); }
std::unique_ptr<Device> make_test_device() { return make_cpu_device(); }
std::optional<int> test_gpu() { return std::nullopt; }
void finish_test_device() {}
bool has_fp8_products() { return true; }  // plain_gemm.cpp does as Hopper does
int64_t test_launches() { return emulation::launches(); }

}  // namespace moe
