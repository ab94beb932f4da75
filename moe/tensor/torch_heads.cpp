// Attention by LibTorch's scaled_dot_product_attention; autograd computes the backward. LibTorch chooses the kernel:
// FlashAttention's or cuDNN's for 16-bit types, and mostly a memory-efficient one, without an (L, L) matrix, for
// float32. If it has no kernel for a type and shape, it uses products and a softmax.
//
// LibTorch's CUDA library is not linked. open_torch_cuda() loads it from the folder of LibTorch's CPU library, whose
// operators then find the kernels for GPUs.
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/StreamGuard.h>
#include <cmath>
#include <dlfcn.h>
#include <filesystem>
#include <mutex>
#include <torch/csrc/autograd/autograd.h>
#include <utility>

#include "moe/base/check.h"
#include "moe/device/memory.h"
#include "moe/tensor/attention_heads.h"
#include "moe/tensor/cpu/aten.h"

namespace moe {
namespace {

class TorchHeads final : public AttentionHeads {
 public:
  TorchHeads(const HeadsShape& shape, std::optional<TorchGpu> gpu)
      : shape_(shape), gpu_(std::move(gpu)), scale_(1 / std::sqrt(static_cast<double>(shape.dim))) {
    if (gpu_) device_ = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu_->index));
  }

  ~TorchHeads() override { release(); }

  void forward(const HeadInputs& in, TensorView out) override {
    in_one_line([&] {
      const auto issued_to = own_stream();
      const at::AutoGradMode recorded(true);
      inputs_ = {aten_view(in.q), aten_view(in.k), aten_view(in.v)};
      for (at::Tensor& input : inputs_) input.requires_grad_(true);
      mixed_ = at::scaled_dot_product_attention(inputs_[0], inputs_[1], inputs_[2], std::nullopt, 0, shape_.causal,
                                                scale_, shape_.heads != shape_.kv_heads);
      aten_view(out).copy_(mixed_.detach());
    });
  }

  // Also releases the data that the forward kept.
  void backward(const HeadInputs&, TensorView, TensorView d_out, const HeadInputs& d) override {
    in_one_line([&] {
      const auto issued_to = own_stream();
      const auto found =
          torch::autograd::grad({std::exchange(mixed_, {})}, std::exchange(inputs_, {}), {aten_view(d_out)});
      aten_view(d.q).copy_(found[0]);
      aten_view(d.k).copy_(found[1]);
      aten_view(d.v).copy_(found[2]);
    });
  }

 private:
  // Returns a guard: while it exists, LibTorch enqueues on the rank's stream. The StreamId of a stream that LibTorch
  // did not make is its handle (c10/cuda/CUDAStream.cpp, "external").
  std::unique_ptr<c10::StreamGuard> own_stream() const {
    if (!gpu_) return nullptr;
    const auto number = reinterpret_cast<c10::StreamId>(gpu_->stream());
    return std::make_unique<c10::StreamGuard>(c10::Stream(c10::Stream::UNSAFE, device_, number));
  }

  // Releases the kept data and returns the memory that LibTorch's allocator has cached to the GPU.
  void release() noexcept {
    mixed_.reset();
    inputs_.clear();
    if (!gpu_) return;
    try {
      at::accelerator::emptyCache();
    } catch (const c10::Error&) {  // the GPU has failed, which later waits report
    }
  }

  // Runs `body` and rethrows LibTorch's errors with only the first line of their message, as a stack trace follows it.
  template <class Body>
  static void in_one_line(Body body) {
    const auto line = [](const c10::Error& e) {
      const std::string_view text = e.what_without_backtrace();
      return std::string(text.substr(0, text.find('\n')));
    };
    try {
      body();
    } catch (const c10::OutOfMemoryError& e) {
      throw OutOfMemory("LibTorch: " + line(e));
    } catch (const c10::Error& e) {
      throw RankFailure("LibTorch: " + line(e));
    }
  }

  // Returns a view of the shape (B, heads, L, d).
  at::Tensor aten_view(TensorView t) const {
    const int64_t width = t.size(1), heads = width / shape_.dim, sequences = shape_.tokens / shape_.seq;
    return at::for_blob(t.data(), {sequences, heads, shape_.seq, shape_.dim})
        .strides({shape_.seq * width, shape_.dim, width, 1})
        .options(at::TensorOptions(cpu::scalar_type(t.dtype())).device(device_))
        .target_device(device_)
        .make_tensor();
  }

  HeadsShape shape_;
  std::optional<TorchGpu> gpu_;
  c10::Device device_ = c10::kCPU;
  double scale_;
  std::vector<at::Tensor> inputs_;  // q, k, v of the last forward
  at::Tensor mixed_;                // output of the last forward, with the data of its backward
};

void open_cuda_half() {
  Dl_info cpu_half{};
  dladdr(reinterpret_cast<void*>(&at::_ops::scaled_dot_product_attention::call), &cpu_half);
  const auto path = std::filesystem::path(cpu_half.dli_fname).replace_filename("libtorch_cuda.so");
  const void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  require<NoHardware>(opened != nullptr, "attention by LibTorch: its CUDA half can't be opened: {}", dlerror());
}

}  // namespace

void open_torch_cuda() {
  static std::once_flag opened;
  std::call_once(opened, open_cuda_half);
}

std::unique_ptr<AttentionHeads> make_torch_heads(const HeadsShape& shape, std::optional<TorchGpu> gpu) {
  return std::make_unique<TorchHeads>(shape, std::move(gpu));
}

}  // namespace moe
