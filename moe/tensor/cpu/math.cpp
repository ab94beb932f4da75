#include "moe/tensor/cpu/math.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <algorithm>
#include <cstring>
#include <thread>

#include "moe/device/cpu/cores.h"
#include "moe/tensor/cpu/aten.h"

// oneDNN's matrix product, result = beta result + alpha a b. LibTorch exports this function without a header.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta,
                                         float alpha);
}

namespace moe {
namespace {

using cpu::AtenCalls;
using cpu::wrap;

constexpr int64_t kBytesPerThread = 1 << 17;
constexpr int64_t kInCache = 1 << 15;  // elements that stay in a core's own cache over several passes

// Returns a view of `count` matrices, each `step` elements after the one before.
at::Tensor wrap_matrices(const Matrix& m, int64_t count, int64_t step) {
  const TensorView elements(m.data, {}, m.dtype);
  if (m.transposed) return wrap(elements, {count, m.cols, m.rows}, {step, 1, m.stride});
  return wrap(elements, {count, m.rows, m.cols}, {step, m.stride, 1});
}

at::Tensor wrap_matrix(const Matrix& m) {
  const TensorView elements(m.data, {}, m.dtype);
  if (m.transposed) return wrap(elements, {m.cols, m.rows}, {1, m.stride});
  return wrap(elements, {m.rows, m.cols}, {m.stride, 1});
}

// Tries a small product, because LibTorch throws on processors without AVX-512, even for float32.
bool has_one_dnn() {
  if (at::native::mkldnn_matmul == nullptr) return false;
  float factor[4] = {1, 0, 0, 1}, product[4] = {};
  const Matrix a{factor, 2, 2, 2}, out{product, 2, 2, 2};
  try {
    at::native::mkldnn_matmul(wrap_matrix(a), wrap_matrix(a), wrap_matrix(out), 0, 1);
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

// Measured on processors that are not Intel's: MKL leaves a tenth of a core's peak unused, and most of it if one extent
// is small. oneDNN is slow for small products, and if a transposed factor has few rows.
bool prefers_one_dnn() {
  static const bool kBetter = !__builtin_cpu_is("intel") && has_one_dnn();
  return kBetter;
}
bool uses_one_dnn(const Matrix& a, const Matrix& out, int64_t inner) {
  constexpr double kSmall = 1 << 21;
  constexpr int64_t kFew = 64;
  return prefers_one_dnn() && out.dtype == DType::float32 && !(a.transposed && out.rows < kFew) &&
         static_cast<double>(out.rows) * static_cast<double>(out.cols) * static_cast<double>(inner) >= kSmall;
}

/// Elements [begin, end) of each tensor.
struct Block {
  int64_t begin = 0, end = 0;
  at::Tensor operator()(TensorView t) const { return wrap(t.part(begin, {end - begin})); }
};

// Calls body(block) on all threads for blocks that fit in cache. The blocks do not depend on the number of threads,
// because ATen computes the last few elements of a block differently from the others.
template <class Body>
void for_each_block(TensorView whole, Body body) {
  const int64_t count = whole.elements(), blocks = (count + kInCache - 1) / kInCache;
  parallel_for(blocks, kInCache * bytes_of(whole.dtype()), [&](int64_t first, int64_t last) {
    const AtenCalls calls;
    for (int64_t i = first; i < last; ++i) body(Block{i * kInCache, std::min(count, (i + 1) * kInCache)});
  });
}

}  // namespace

// LibTorch, its BLAS and OpenMP store the number of threads to use separately for each calling thread.
cpu::AtenCalls::AtenCalls() {
  thread_local int applied = 0;
  if (applied == thread_count() || at::in_parallel_region()) return;
  at::get_num_threads();  // a thread's first call sets a default
  at::internal::lazy_init_num_threads();
  applied = thread_count();
  at::set_num_threads(applied);
}

void gemm(Matrix a, Matrix b, Matrix out, Into into) {
  if (out.rows == 0 || out.cols == 0) return;
  const int64_t inner = a.transposed ? a.rows : a.cols;
  if (inner == 0 && into == Into::add) return;
  const AtenCalls calls;
  const at::Tensor result = wrap_matrix(out);
  const float kept = into == Into::add ? 1 : 0;  // if 0, `result` is not read
  if (inner == 0)
    result.zero_();
  else if (uses_one_dnn(a, out, inner))
    at::native::mkldnn_matmul(wrap_matrix(a), wrap_matrix(b), result, kept, 1);
  else
    result.addmm_(wrap_matrix(a), wrap_matrix(b), kept);
}

static Matrix offset_matrix(Matrix m, int64_t elements) {
  m.data = static_cast<std::byte*>(m.data) + elements * bytes_of(m.dtype);
  return m;
}

void gemm(Matrix a, Matrix b, Matrix out, Into into, const Batch& batch) {
  const int64_t inner = a.transposed ? a.rows : a.cols;
  if (batch.count == 1 || !batches_products() || out.rows == 0 || out.cols == 0 || inner == 0) {
    for (int64_t i = 0; i < batch.count; ++i)
      gemm(offset_matrix(a, i * batch.a), offset_matrix(b, i * batch.b), offset_matrix(out, i * batch.out), into);
    return;
  }
  const AtenCalls calls;
  at::Tensor results = wrap_matrices(out, batch.count, batch.out);
  const at::Tensor left = wrap_matrices(a, batch.count, batch.a), right = wrap_matrices(b, batch.count, batch.b);
  if (into == Into::add)
    at::baddbmm_out(results, results, left, right);
  else
    at::bmm_out(results, left, right);
}

bool batches_products() { return cpu::thread_count() > 1 && !prefers_one_dnn(); }

void gelu(TensorView x, TensorView out) {
  for_each_block(out, [&](Block block) {
    at::Tensor result = block(out);
    at::gelu_out(result, block(x));
  });
}

void gelu_backward(TensorView x, TensorView d_out, TensorView d_x) {
  for_each_block(d_x, [&](Block block) {
    at::Tensor result = block(d_x);
    at::gelu_backward_out(result, block(d_out), block(x));
  });
}

void gelu_tanh(TensorView x, TensorView out) {
  for_each_block(out, [&](Block block) {
    at::Tensor result = block(out);
    at::gelu_out(result, block(x), "tanh");
  });
}

void gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x) {
  for_each_block(d_x, [&](Block block) {
    at::Tensor result = block(d_x);
    at::gelu_backward_out(result, block(d_out), block(x), "tanh");
  });
}

void swiglu(TensorView a, TensorView b, TensorView out) {
  for_each_block(out, [&](Block block) {
    at::Tensor result = block(out);
    at::silu_out(result, block(a)).mul_(block(b));
  });
}

void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b) {
  for_each_block(d_b, [&](Block block) {
    at::Tensor sigmoids = block(d_b);
    at::sigmoid_out(sigmoids, block(a));
    with_element(a.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T *x = a.as<T>(), *y = b.as<T>(), *d = d_out.as<T>();
      T *dx = d_a.as<T>(), *dy = d_b.as<T>();
      for (int64_t i = block.begin; i < block.end; ++i) {
        const T s = dy[i], silu = x[i] * s, out = d[i];
        dx[i] = out * y[i] * (s + silu * (1 - s));
        dy[i] = out * silu;
      }
    });
  });
}

void softmax_rows(TensorView rows) {
  if (rows.elements() == 0) return;
  const AtenCalls calls;
  at::Tensor result = wrap(rows, {rows.size(0), rows.size(1)}, {rows.size(1), 1});
  at::_softmax_out(result, result, 1, false);
}

void assign(TensorView from, TensorView to) {
  require_equal(from.bytes(), to.bytes(), "bytes to assign");
  parallel_for(from.bytes(), 1, [&](int64_t begin, int64_t end) {
    std::memcpy(to.as<std::byte>() + begin, from.as<std::byte>() + begin, static_cast<size_t>(end - begin));
  });
}

void add(TensorView from, TensorView to) {
  require_equal(from.elements(), to.elements(), "elements to add");
  with_element(from.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* in = from.as<T>();
    T* out = to.as<T>();
    parallel_for(from.elements(), int64_t{sizeof(T)}, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] += in[i];
    });
  });
}

void scale(TensorView t, double by) {
  with_element(t.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(t.elements(), int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) t.as<T>()[i] *= static_cast<T>(by);
    });
  });
}

void parallel_for(int64_t count, int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& body) {
  const AtenCalls calls;
  const int64_t least = std::max<int64_t>(1, kBytesPerThread / std::max<int64_t>(1, bytes));
#ifdef __SANITIZE_THREAD__
  // ThreadSanitizer does not see OpenMP's synchronisation. An exception in one of these threads ends the process.
  const int64_t threads = std::clamp<int64_t>((count + least - 1) / least, 1, at::get_num_threads());
  const int64_t part = (count + threads - 1) / threads;
  std::vector<std::jthread> others;
  for (int64_t begin = part; begin < count; begin += part)
    others.emplace_back([&body, begin, end = std::min(count, begin + part)] { body(begin, end); });
  if (count > 0) body(0, part);
#else
  at::parallel_for(0, count, least, body);
#endif
}

}  // namespace moe
