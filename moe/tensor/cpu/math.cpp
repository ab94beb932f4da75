#include "moe/tensor/cpu/math.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>
#include <algorithm>
#include <atomic>
#include <c10/core/InferenceMode.h>
#include <cstring>
#include <thread>
#include <vector>

#include "moe/tensor/element.h"

namespace moe {
namespace {

std::atomic<int> math_threads{1};
constexpr int64_t kBytesAThread = 1 << 20;

// LibTorch and its BLAS keep the number of threads per calling thread.
void apply_math_threads() {
  thread_local int applied = 0;
  const int wanted = math_threads.load(std::memory_order_relaxed);
  if (applied == wanted) return;
  at::set_num_threads(wanted);
  applied = wanted;
}

at::TensorOptions options_of(DType dtype) {
  return with_element(dtype,
                      [](auto zero) { return at::TensorOptions(c10::CppTypeToScalarType<decltype(zero)>::value); });
}

at::Tensor wrap(const Matrix& m) {
  const auto options = options_of(m.dtype);
  if (m.transposed) return at::from_blob(m.data, {m.cols, m.rows}, {1, m.stride}, options);
  return at::from_blob(m.data, {m.rows, m.cols}, {m.stride, 1}, options);
}

at::Tensor wrap(TensorView t) { return at::from_blob(t.data(), {t.elements()}, options_of(t.dtype())); }

void sigmoid(TensorView x, TensorView out) {
  if (x.elements() == 0) return;
  apply_math_threads();
  const c10::InferenceMode no_autograd;
  at::Tensor result = wrap(out);
  at::sigmoid_out(result, wrap(x));
}

}  // namespace

void gemm(Matrix a, Matrix b, Matrix out, Into into) {
  if (out.rows == 0 || out.cols == 0) return;
  const int64_t inner = a.transposed ? a.rows : a.cols;
  if (inner == 0 && into == Into::add) return;
  apply_math_threads();
  const c10::InferenceMode no_autograd;
  at::Tensor result = wrap(out);
  if (inner == 0) {
    result.zero_();
  } else {
    result.addmm_(wrap(a), wrap(b), into == Into::add ? 1 : 0);  // with 0 it does not read `result`
  }
}

void gelu(TensorView x, TensorView out) {
  if (x.elements() == 0) return;
  apply_math_threads();
  const c10::InferenceMode no_autograd;
  at::Tensor result = wrap(out);
  at::gelu_out(result, wrap(x));
}

void gelu_backward(TensorView x, TensorView d_out, TensorView d_x) {
  if (x.elements() == 0) return;
  apply_math_threads();
  const c10::InferenceMode no_autograd;
  at::Tensor result = wrap(d_x);
  at::gelu_backward_out(result, wrap(d_out), wrap(x));
}

void swiglu(TensorView a, TensorView b, TensorView out) {
  sigmoid(a, out);
  with_element(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *x = a.as<T>(), *y = b.as<T>();
    T* result = out.as<T>();
    parallel_for(a.elements(), 3 * int64_t{sizeof(T)}, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) result[i] *= x[i] * y[i];
    });
  });
}

void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b) {
  sigmoid(a, d_b);
  with_element(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *x = a.as<T>(), *y = b.as<T>(), *d = d_out.as<T>();
    T *dx = d_a.as<T>(), *dy = d_b.as<T>();
    parallel_for(a.elements(), 6 * int64_t{sizeof(T)}, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T s = dy[i], silu = x[i] * s, out = d[i];
        dx[i] = out * y[i] * (s + silu * (1 - s));
        dy[i] = out * silu;
      }
    });
  });
}

void assign(TensorView from, TensorView to) {
  require_equal(from.bytes(), to.bytes(), "bytes to assign");
  if (from.bytes() > 0) std::memcpy(to.data(), from.data(), static_cast<size_t>(from.bytes()));
}

void add(TensorView from, TensorView to) {
  require_equal(from.elements(), to.elements(), "elements to add");
  with_element(from.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = from.as<T>();
    T* out = to.as<T>();
    for (int64_t i = 0; i < from.elements(); ++i) out[i] += in[i];
  });
}

void scale(TensorView t, double by) {
  with_element(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < t.elements(); ++i) t.as<T>()[i] *= static_cast<T>(by);
  });
}

void set_math_threads(int threads) {
  require<BadInput>(threads >= 1, "math threads: found {}, expected >= 1", threads);
  math_threads.store(threads, std::memory_order_relaxed);
}

void parallel_for(int64_t count, int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& body) {
  const int64_t most = math_threads.load(std::memory_order_relaxed);
  const int64_t threads = std::clamp<int64_t>(std::min(count, count * bytes / kBytesAThread), 1, most);
  const auto part = [&](int64_t thread) { body(count * thread / threads, count * (thread + 1) / threads); };
  std::vector<std::jthread> others;
  for (int64_t thread = 1; thread < threads; ++thread) others.emplace_back(part, thread);
  part(0);
}

}  // namespace moe
