#pragma once
// Launches of element-by-element work. It is bound by memory bandwidth, so a thread reads 16 bytes at once.
#include "moe/tensor/cuda/element.cuh"

namespace moe::cuda {

template <int N, class Op>
__global__ void for_each_pack(Op op, int64_t count) {
  const int64_t first = thread_index() * N;
  if (first < count) op.template at<N>(first);
}

/// Calls op.at<N>(i) on the device for i = 0, N, 2 N, ... below `count`. N is kPack<T> if `whole` (the pointers are
/// aligned to 16 bytes) and it divides `count`, else 1.
template <class T, class Op>
void for_each(void* stream, Op op, int64_t count, bool whole) {
  with_pack<T>(whole && count % kPack<T> == 0, [&](auto n) {
    constexpr int kN = decltype(n)::value;
    launch(for_each_pack<kN, Op>, threads_for(count / kN), stream, op, count);
  });
}

template <class T>
const T* in(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* out(void* p) {
  return static_cast<T*>(p);
}

}  // namespace moe::cuda
