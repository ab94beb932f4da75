#include "tests/layer/cuda/emulated_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "moe/layer/cuda/element.cuh"

namespace moe {
namespace {

constexpr int64_t kPage = 4096;
constexpr auto kBehind = std::byte{0xA5};

int64_t whole(int64_t bytes, int64_t of) { return (bytes + of - 1) / of * of; }

// The pages before and behind can't be touched; data ends at the one behind, but for its alignment.
class GuardedMemory final : public MemorySpace {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  void* allocate(int64_t bytes) override {
    const int64_t padded = std::max<int64_t>(whole(bytes, 16), 16), pages = whole(padded, kPage);
    void* all = mmap(nullptr, static_cast<size_t>(pages + 2 * kPage), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require<WrongResult>(all != MAP_FAILED, "no memory for an emulated device");
    auto* first = static_cast<std::byte*>(all) + kPage;
    mprotect(first, static_cast<size_t>(pages), PROT_READ | PROT_WRITE);
    std::fill(first, first + pages, kBehind);
    std::byte* data = first + pages - padded;
    std::memset(data, 0, static_cast<size_t>(bytes));
    return data;
  }
  void release(void* data, int64_t bytes) noexcept override {
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
  void from_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void to_host(const void* from, void* to, int64_t bytes) override { copy(from, to, bytes, nullptr); }
  void copy(const void* from, void* to, int64_t bytes, void*) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void clear(void* data, int64_t bytes, void*) override { std::memset(data, 0, static_cast<size_t>(bytes)); }
};

// By columns and steps of a row-major matrix, transposed or not.
template <class T>
struct Elements {
  Elements(const Matrix& m, int64_t first)
      : data(static_cast<T*>(m.data) + first), down(m.transposed ? 1 : m.stride), right(m.transposed ? m.stride : 1) {}
  T& at(int64_t i, int64_t j) const { return data[i * down + j * right]; }
  T* data;
  int64_t down, right;
};

class PlainGemm final : public cuda::Gemm {
 public:
  void run(const Matrix& a, const Matrix& b, const Matrix& out, Into into, const Batch& batch, void*) override {
    const int64_t inner = a.transposed ? a.rows : a.cols;
    cuda::with_type(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t n = 0; n < batch.count; ++n) {
        const Elements<T> x(a, n * batch.a), y(b, n * batch.b), z(out, n * batch.out);
        for (int64_t i = 0; i < out.rows; ++i)
          for (int64_t j = 0; j < out.cols; ++j) {
            cuda::Acc<T> sum = into == Into::add ? cuda::value_of(z.at(i, j)) : 0;
            for (int64_t k = 0; k < inner; ++k) sum += cuda::value_of(x.at(i, k)) * cuda::value_of(y.at(k, j));
            z.at(i, j) = cuda::rounded<T>(sum);
          }
      }
    });
  }
};

}  // namespace

std::unique_ptr<MemorySpace> make_guarded_memory() { return std::make_unique<GuardedMemory>(); }
std::unique_ptr<cuda::Gemm> make_plain_gemm() { return std::make_unique<PlainGemm>(); }

std::unique_ptr<cuda::CudaMath> make_emulated_math() {
  return std::make_unique<cuda::CudaMath>(make_guarded_memory(), make_plain_gemm());
}
std::unique_ptr<LayerDevice> make_emulated_layer_device() {
  return cuda::make_layer_device(make_guarded_memory(), make_plain_gemm());
}

}  // namespace moe
