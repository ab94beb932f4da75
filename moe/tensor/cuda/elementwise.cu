// Kernels that work element by element: they are bound by memory, so a thread has 16 bytes a turn.
#include "moe/tensor/cuda/element.cuh"
#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {
namespace {

template <int N, class Op>
__global__ void for_each_pack(Op op, int64_t count) {
  const int64_t first = thread_index() * N;
  if (first < count) op.template at<N>(first);
}

template <class T, class Op>
void for_each(void* stream, Op op, int64_t count, bool whole) {
  with_pack<T>(whole && count % kPack<T> == 0, [&](auto n) {
    constexpr int kN = decltype(n)::value;
    launch(for_each_pack<kN, Op>, threads_for(count / kN), stream, op, count);
  });
}

// GELU is x share(x): of the normal distribution, or of GPT-2's approximation of it.
struct Normal {
  template <class A>
  static __device__ A share(A x) {
    return A(0.5) * std::erfc(x * A(-0.70710678118654752440));
  }
  template <class A>
  static __device__ A slope(A x) {
    return A(0.39894228040143267794) * std::exp(A(-0.5) * x * x);
  }
};

struct NearlyNormal {
  template <class A>
  static __device__ A tanh_of(A x) {
    return std::tanh(A(0.79788456080286535588) * (x + A(0.044715) * x * x * x));
  }
  template <class A>
  static __device__ A share(A x) {
    return A(0.5) * (1 + tanh_of(x));
  }
  template <class A>
  static __device__ A slope(A x) {
    const A t = tanh_of(x);
    return A(0.5) * (1 - t * t) * A(0.79788456080286535588) * (1 + A(0.134145) * x * x);
  }
};

template <class T, class Share = Normal>
struct Gelu {
  const T* x;
  T* out;
  template <int N>
  __device__ void at(int64_t i) const {
    Pack<T, N> p = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Sums<T> v = value_of(p.at[j]);
      p.at[j] = rounded<T>(v * Share::share(v));
    }
    store(p, out + i);
  }
};

template <class T, class Share = Normal>
struct GeluBackward {
  const T *x, *d_out;
  T* d_x;
  template <int N>
  __device__ void at(int64_t i) const {
    const Pack<T, N> p = load<N>(x + i);
    Pack<T, N> d = load<N>(d_out + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Sums<T> v = value_of(p.at[j]);
      d.at[j] = rounded<T>(value_of(d.at[j]) * (Share::share(v) + v * Share::slope(v)));
    }
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
      const Sums<T> v = value_of(p.at[j]);
      p.at[j] = rounded<T>(v / (1 + std::exp(-v)) * value_of(q.at[j]));
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
      const Sums<T> v = value_of(p.at[j]), out = value_of(d.at[j]);
      const Sums<T> s = 1 / (1 + std::exp(-v)), silu = v * s;
      dp.at[j] = rounded<T>(out * value_of(q.at[j]) * (s + silu * (1 - s)));
      dq.at[j] = rounded<T>(out * silu);
    }
    store(dp, d_a + i);
    store(dq, d_b + i);
  }
};

// Turns N pairs of one head: N divides half a head's width.
template <class T>
struct Rotate {
  T* rows;
  const Sums<T>* turns;
  int64_t seq, half, heads;
  Sums<T> sign;
  template <int N>
  __device__ void at(int64_t i) const {
    const int64_t head = i / half, j = i - head * half;
    const Sums<T>* angle = turns + head / heads % seq * 2 * half + j;
    T* low = rows + 2 * head * half + j;
    Pack<T, N> p = load<N>(low), q = load<N>(low + half);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const Sums<T> a = value_of(p.at[n]), b = value_of(q.at[n]), cosine = angle[n], sine = sign * angle[half + n];
      p.at[n] = rounded<T>(a * cosine - b * sine);
      q.at[n] = rounded<T>(b * cosine + a * sine);
    }
    store(p, low);
    store(q, low + half);
  }
};

template <class T>
struct Add {
  const T* from;
  T* to;
  template <int N>
  __device__ void at(int64_t i) const {
    const Pack<T, N> p = load<N>(from + i);
    Pack<T, N> q = load<N>(to + i);
#pragma unroll
    for (int j = 0; j < N; ++j) q.at[j] = rounded<T>(value_of(q.at[j]) + value_of(p.at[j]));
    store(q, to + i);
  }
};

template <class T>
struct Scale {
  T* t;
  Sums<T> by;
  template <int N>
  __device__ void at(int64_t i) const {
    Pack<T, N> p = load<N>(t + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p.at[j] = rounded<T>(value_of(p.at[j]) * by);
    store(p, t + i);
  }
};

// N is that of the wider type: what is read or written of the other is a part of 16 bytes.
template <class From, class To>
struct Convert {
  const From* from;
  To* to;
  template <int N>
  __device__ void at(int64_t i) const {
    const Pack<From, N> p = load<N>(from + i);
    Pack<To, N> q;
#pragma unroll
    for (int j = 0; j < N; ++j) q.at[j] = rounded<To>(value_of(p.at[j]));
    store(q, to + i);
  }
};

template <class T>
const T* in(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* out(void* p) {
  return static_cast<T*>(p);
}

}  // namespace

void gelu(Work work, const void* x, void* y, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, Gelu<T>{in<T>(x), out<T>(y)}, count, aligned(x) && aligned(y));
  });
}

void gelu_backward(Work work, const void* x, const void* d_y, void* d_x, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, GeluBackward<T>{in<T>(x), in<T>(d_y), out<T>(d_x)}, count,
                aligned(x) && aligned(d_y) && aligned(d_x));
  });
}

void gelu_tanh(Work work, const void* x, void* y, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, Gelu<T, NearlyNormal>{in<T>(x), out<T>(y)}, count, aligned(x) && aligned(y));
  });
}

void gelu_tanh_backward(Work work, const void* x, const void* d_y, void* d_x, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, GeluBackward<T, NearlyNormal>{in<T>(x), in<T>(d_y), out<T>(d_x)}, count,
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

void rotate(Work work, const Rotation& r, int64_t pairs) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Rotate<T> op{out<T>(r.rows), in<Sums<T>>(r.turns), r.seq, r.half, r.heads, Sums<T>(r.back ? -1 : 1)};
    for_each<T>(work.stream, op, pairs, aligned(r.rows) && r.half % kPack<T> == 0);
  });
}

void add(Work work, const void* from, void* to, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, Add<T>{in<T>(from), out<T>(to)}, count, aligned(from) && aligned(to));
  });
}

void scale(Work work, void* t, double by, int64_t count) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each<T>(work.stream, Scale<T>{out<T>(t), static_cast<Sums<T>>(by)}, count, aligned(t));
  });
}

void convert(Work work, const void* from, DType to_type, void* to, int64_t count) {
  with_type(work.dtype, [&](auto from_zero) {
    with_type(to_type, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      using Wider = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
      for_each<Wider>(work.stream, Convert<From, To>{in<From>(from), out<To>(to)}, count, aligned(from) && aligned(to));
    });
  });
}

}  // namespace moe::cuda
