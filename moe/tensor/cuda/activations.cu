// Kernels of activations. They are bound by memory if a 16-bit element takes at most about 32 instructions.
#include "moe/tensor/cuda/for_each.cuh"
#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {
namespace {

// GELU and its derivative. share(x) is the normal distribution's cumulative probability Phi(x).
struct Exact {
  template <class A>
  static __device__ A share(A x) {
    return A(0.5) * std::erfc(x * A(-0.70710678118654752440));
  }
  template <class A>
  static __device__ A value(A x) {
    return x * share(x);
  }
  template <class A>
  static __device__ A derivative(A x) {
    return share(x) + x * A(0.39894228040143267794) * std::exp(A(-0.5) * x * x);
  }
};

// GELU and its derivative for 16-bit types. The normal distribution's probability of a number above z = |x| is
// exp(-z^2 / 2) q(t) with t = 1 / (1 + 0.36 z), where q is the minimax polynomial for z up to 14 (relative error 9e-7).
struct Rounded {
  float z, q, density;  // density: exp(-z^2 / 2)

  explicit __device__ Rounded(float x) {
    constexpr float kFar = 16;  // density is 0 from here on
    z = std::abs(x) > kFar ? kFar : std::abs(x);
    const float t = quick_inverse(1 + 0.36F * z);
    q = 0.0470561406F;
    for (const float c : {-0.179764201F, 0.180953367F, 0.0265497488F, 0.139719121F, 0.141772477F, 0.143713044F, 0.0F})
      q = q * t + c;
    density = quick_exp(-0.5F * z * z);
  }
  static __device__ float value(float x) {
    const Rounded at(x);
    const float behind = at.z * at.q * at.density;
    return x < 0 ? -behind : x - behind;
  }
  static __device__ float derivative(float x) {
    const Rounded at(x);
    const float more = at.density * (0.39894228F * at.z - at.q);
    return x < 0 ? -more : 1 + more;
  }
};

template <class T>
using Normal = std::conditional_t<sizeof(T) == 2, Rounded, Exact>;

// GPT-2's approximation of GELU: Phi(x) is approximated by (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)).
template <class T>
struct NearlyNormal {
  using A = Accumulator<T>;
  static __device__ A share(A x) { return logistic<T>(A(1.59576912160573071176) * (x + A(0.044715) * x * x * x)); }
  static __device__ A value(A x) { return x * share(x); }
  static __device__ A derivative(A x) {
    const A s = share(x);
    return s + x * s * (1 - s) * A(1.59576912160573071176) * (1 + A(0.134145) * x * x);
  }
};

template <class T, class Kind>
struct Gelu {
  const T* x;
  T* out;
  template <int N>
  __device__ void at(int64_t i) const {
    Pack<T, N> p = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p.at[j] = rounded<T>(Kind::value(value_of(p.at[j])));
    store(p, out + i);
  }
};

template <class T, class Kind>
struct GeluBackward {
  const T *x, *d_out;
  T* d_x;
  template <int N>
  __device__ void at(int64_t i) const {
    const Pack<T, N> p = load<N>(x + i);
    Pack<T, N> d = load<N>(d_out + i);
#pragma unroll
    for (int j = 0; j < N; ++j) d.at[j] = rounded<T>(value_of(d.at[j]) * Kind::derivative(value_of(p.at[j])));
    store(d, d_x + i);
  }
};

template <class T>
struct SwigluForward {
  const T *a, *b;
  T* out;
  template <int N>
  __device__ void at(int64_t i) const {
    Pack<T, N> p = load<N>(a + i);
    const Pack<T, N> q = load<N>(b + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Accumulator<T> v = value_of(p.at[j]);
      p.at[j] = rounded<T>(v * logistic<T>(v) * value_of(q.at[j]));
    }
    store(p, out + i);
  }
};

template <class T>
struct SwigluBackward {
  const T *a, *b, *d_out;
  T *d_a, *d_b;
  template <int N>
  __device__ void at(int64_t i) const {
    const Pack<T, N> p = load<N>(a + i), q = load<N>(b + i), d = load<N>(d_out + i);
    Pack<T, N> dp, dq;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Accumulator<T> v = value_of(p.at[j]), out = value_of(d.at[j]);
      const Accumulator<T> s = logistic<T>(v), silu = v * s;
      dp.at[j] = rounded<T>(out * value_of(q.at[j]) * (s + silu * (1 - s)));
      dq.at[j] = rounded<T>(out * silu);
    }
    store(dp, d_a + i);
    store(dq, d_b + i);
  }
};

}  // namespace

void gelu(Work work, const void* x, void* y, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, Gelu<T, Normal<T>>{in<T>(x), out<T>(y)}, count, aligned(x) && aligned(y));
  });
}

void gelu_backward(Work work, const void* x, const void* d_y, void* d_x, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, GeluBackward<T, Normal<T>>{in<T>(x), in<T>(d_y), out<T>(d_x)}, count,
                aligned(x) && aligned(d_y) && aligned(d_x));
  });
}

void gelu_tanh(Work work, const void* x, void* y, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, Gelu<T, NearlyNormal<T>>{in<T>(x), out<T>(y)}, count, aligned(x) && aligned(y));
  });
}

void gelu_tanh_backward(Work work, const void* x, const void* d_y, void* d_x, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, GeluBackward<T, NearlyNormal<T>>{in<T>(x), in<T>(d_y), out<T>(d_x)}, count,
                aligned(x) && aligned(d_y) && aligned(d_x));
  });
}

void swiglu(Work work, const Swiglu& s, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, SwigluForward<T>{in<T>(s.a), in<T>(s.b), out<T>(s.out)}, count,
                aligned(s.a) && aligned(s.b) && aligned(s.out));
  });
}

void swiglu_backward(Work work, const Swiglu& s, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, SwigluBackward<T>{in<T>(s.a), in<T>(s.b), in<T>(s.d_out), out<T>(s.out), out<T>(s.d_b)},
                count, aligned(s.a) && aligned(s.b) && aligned(s.d_out) && aligned(s.out) && aligned(s.d_b));
  });
}

}  // namespace moe::cuda
