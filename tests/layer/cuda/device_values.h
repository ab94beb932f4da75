#pragma once
// Tensors of a device and of the CPU side by side: the same numbers, the CPU's in float64.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "moe/base/random.h"
#include "moe/tensor/cuda/element.cuh"
#include "moe/tensor/tensor.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {

/// Shows what a tensor holds once the device has done what it was given: the host's own memory, or a copy of a
/// device's.
class OnHost {
 public:
  explicit OnHost(TensorView t) : there_(t), here_(t) {
    if (t.device() == DeviceKind::cpu) return;
    copy_.resize(t.bytes());
    here_ = t.moved_to(copy_.data(), DeviceKind::cpu, t.dtype());
    finish_test_device();
    memory().to_host(t.data(), copy_.data(), t.bytes());
  }
  TensorView view() const { return here_; }
  void send() const {
    if (here_.data() != there_.data()) memory().from_host(here_.data(), there_.data(), there_.bytes());
  }

 private:
  static MemorySpace& memory() {
    static const std::unique_ptr<MemorySpace> of_device = make_test_memory();
    return *of_device;
  }
  TensorView there_, here_;
  std::vector<std::byte> copy_;
};

/// Calls body(i, element), which may change the element.
template <class Body>
void for_each_element(TensorView t, Body body) {
  const OnHost here(t);
  cuda::with_type(t.dtype(), [&](auto zero) {
    for (int64_t i = 0; i < t.elements(); ++i) body(i, here.view().as<decltype(zero)>()[i]);
  });
  here.send();
}

inline std::vector<double> values_of(TensorView t) {
  const OnHost here(t);
  std::vector<double> all;
  cuda::with_type(t.dtype(), [&](auto zero) {
    for (int64_t i = 0; i < t.elements(); ++i)
      all.push_back(static_cast<double>(cuda::value_of(here.view().as<decltype(zero)>()[i])));
  });
  return all;
}

/// The same random numbers on the device and, in float64, on the CPU.
struct Pair {
  Pair(std::initializer_list<int64_t> shape, DType dtype, MemorySpace& memory, uint64_t stream)
      : device(shape, dtype, memory), reference(shape, DType::float64) {
    for_each_element(device, [&](int64_t i, auto& v) {
      using T = std::remove_reference_t<decltype(v)>;
      v = cuda::rounded<T>(random_normal(7, stream, static_cast<uint64_t>(i)));
      reference.as<double>()[i] = static_cast<double>(cuda::value_of(v));
    });
  }
  Tensor device, reference;
};

/// Returns the share of the largest value that roundings of a few operations may come to.
inline double tolerance_for(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return 1e-13;
    case DType::float32:
      return 2e-6;
    case DType::float16:
      return 0x1p-9;
    default:
      return 0x1p-6;
  }
}

inline void expect_near(TensorView device, TensorView reference, double tolerance, std::string_view what) {
  const std::vector<double> found = values_of(device), expected = values_of(reference);
  ASSERT_EQ(found.size(), expected.size());
  double most = 1e-30;
  for (const double v : expected) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * most) << what << " " << i << " as " << name_of(device.dtype());
}
inline void expect_near(const Pair& pair, std::string_view what, double factor = 1) {
  expect_near(pair.device, pair.reference, factor * tolerance_for(pair.device.view().dtype()), what);
}

inline constexpr DType kDTypes[] = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

}  // namespace moe
