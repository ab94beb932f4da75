// Kernels that work element by element, except activations.
#include "moe/tensor/cuda/for_each.cuh"
#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {
namespace {

// Rotates N consecutive pairs of one head. N divides the number of pairs of a head (`half`) and the head's width.
template <class T>
struct Rotate {
  T* rows;
  const Accumulator<T>* turns;
  int64_t seq, half, heads, width;
  Accumulator<T> sign;
  template <int N>
  __device__ void at(int64_t i) const {
    const int64_t head = i / half, j = i - head * half;
    const Accumulator<T>* angle = turns + head / heads % seq * 2 * half + j;
    T* low = rows + (head + 1) * width - 2 * half + j;
    Pack<T, N> p = load<N>(low), q = load<N>(low + half);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const Accumulator<T> a = value_of(p.at[n]), b = value_of(q.at[n]), cosine = angle[n],
                           sine = sign * angle[half + n];
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
  Accumulator<T> by;
  template <int N>
  __device__ void at(int64_t i) const {
    Pack<T, N> p = load<N>(t + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p.at[j] = rounded<T>(value_of(p.at[j]) * by);
    store(p, t + i);
  }
};

// N is the pack size of the wider type, so reads or writes of the other type have fewer than 16 bytes.
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

}  // namespace

void rotate(Work work, const Rotation& r, int64_t pairs) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Rotate<T> op{out<T>(r.rows), in<Accumulator<T>>(r.turns),    r.seq, r.half, r.heads,
                       r.width,        Accumulator<T>(r.back ? -1 : 1)};
    const bool in_packs = r.half % kPack<T> == 0 && r.width % kPack<T> == 0;
    for_each<T>(work.stream, op, pairs, aligned(r.rows) && in_packs);
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
    for_each<T>(work.stream, Scale<T>{out<T>(t), static_cast<Accumulator<T>>(by)}, count, aligned(t));
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
