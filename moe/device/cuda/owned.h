#pragma once
// An owner of an object that CUDA's libraries make and destroy by a pair of calls.

namespace moe::cuda {

template <class Handle, auto kDestroy>
struct Owned {
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle) kDestroy(handle);
  }
  Handle handle = nullptr;
};

}  // namespace moe::cuda
