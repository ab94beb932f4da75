// Rounding to FP8 on a device against the CPU's, bit for bit, and products of FP8 numbers, which a GPU may have of its
// own, against the CPU's in float64.
#include "moe/tensor/fp8.h"

#include <gtest/gtest.h>
#include <map>

#include "tests/layer/cuda/device_values.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

// A matrix of FP8 numbers on the device and on the CPU.
struct Rounded {
  Rounded(int64_t rows, int64_t cols, bool tiles, MemorySpace& memory)
      : on_device(rows, cols, tiles, memory), on_cpu(rows, cols, tiles, cpu_memory()) {
    if (tiles) return;
    const std::vector<uint8_t> numbers(on_cpu.numbers.size(), 0x7f);
    const std::vector<float> scales(on_cpu.scales.size(), NAN);
    for (const Place* place : {&on_device, &on_cpu}) {  // what rounding leaves as it is must never matter
      place->numbers.from_host(numbers.data());
      place->scales.from_host(scales.data());
    }
  }

  struct Place {
    Place(int64_t rows, int64_t cols, bool tiles, MemorySpace& memory)
        : numbers(memory, (tiles ? rows : round_up_to_4(rows)) * cols),
          scales(memory, fp8_scales(rows, cols, tiles)),
          m{numbers.data(), scales.data(), rows, cols, tiles} {}
    Array<uint8_t> numbers;
    Array<float> scales;
    Fp8Matrix m;
  };
  Place on_device, on_cpu;

  void expect_equal() const {
    std::vector<uint8_t> numbers(on_device.numbers.size());
    std::vector<float> scales(on_device.scales.size());
    finish_test_device();
    on_device.numbers.to_host(numbers.data());
    on_device.scales.to_host(scales.data());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const uint8_t expected = on_cpu.numbers.data()[i];
      if ((expected & 0x7f) == 0x7f && (numbers[i] & 0x7f) == 0x7f) continue;  // no number, of whatever sign
      ASSERT_EQ(numbers[i], expected) << "number " << i;
    }
    for (size_t i = 0; i < scales.size(); ++i)
      ASSERT_TRUE(scales[i] == on_cpu.scales.data()[i] ||
                  (std::isnan(scales[i]) && std::isnan(on_cpu.scales.data()[i])))
          << "scale " << i << ": " << scales[i] << ", expected " << on_cpu.scales.data()[i];
  }
};

class CudaFp8Test : public testing::TestWithParam<DType> {
 protected:
  // Numbers of blocks differ by powers of two, so that each has another scale.
  Pair random(std::initializer_list<int64_t> shape, uint64_t stream) const {
    Pair p(shape, GetParam(), math_->memory(), stream);
    const int64_t cols = p.reference.view().size(1);
    const auto size = [&](int64_t i) {
      const int64_t row = i / cols, tile = row / kFp8Block * 3 + i % cols / kFp8Block * 5;
      return std::exp2(tile % 7 + row % 3 - 4);
    };
    for_each_element(p.device, [&](int64_t i, auto& v) {
      using T = std::remove_reference_t<decltype(v)>;
      v = cuda::rounded<T>(cuda::value_of(v) * static_cast<Accumulator<T>>(size(i)));
      p.reference.as<double>()[i] = static_cast<double>(cuda::value_of(v));
    });
    return p;
  }
  Rounded rounded(const Pair& p, bool tiles) const {
    const int64_t rows = p.reference.view().size(0), cols = p.reference.view().size(1);
    Rounded out(rows, cols, tiles, math_->memory());
    math_->round_fp8(matrix(p.device), out.on_device.m, nullptr);
    cpu_math().round_fp8(matrix(p.reference), out.on_cpu.m);
    return out;
  }
  // Tensor cores keep some 14 bits of the sums of a block's products (DeepSeek-V3's report, 2024, 3.3.2).
  void expect_products(const Pair& out, bool own) const {
    const double tolerance = 4 * tolerance_for(GetParam());
    expect_near(out.device, out.reference, own ? std::max(tolerance, 0x1p-11) : tolerance, "product");
  }
  std::unique_ptr<cuda::CudaMath> math_ = make_test_math();
  std::unique_ptr<cuda::Gemm> gemm_ = make_test_gemm(cuda::AlgorithmChoice::first);
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 1},     {5, 128},   {2, 130},  {130, 257}, {128, 128},
                                                   {256, 384}, {129, 128}, {128, 20}, {0, 128}};

TEST_P(CudaFp8Test, RoundsAsTheCpuDoes) {
  for (const auto& [rows, cols] : kShapes)
    for (const bool tiles : {false, true}) {
      SCOPED_TRACE(fmt::format("({}, {}), tiles {}", rows, cols, tiles));
      rounded(random({rows, cols}, 1), tiles).expect_equal();
    }
}

TEST_P(CudaFp8Test, RoundsTransposesAndColumns) {
  for (const auto& [rows, cols] : {std::pair{128, 256}, {130, 70}, {1, 128}}) {
    SCOPED_TRACE(fmt::format("({}, {})", rows, cols));
    const Pair wide = random({rows, cols + 8}, 1);
    Rounded straight(rows, cols, true, math_->memory()), turned(cols, rows, true, math_->memory());
    math_->round_fp8(columns(wide.device, 4, cols), straight.on_device.m, &turned.on_device.m);
    cpu_math().round_fp8(columns(wide.reference, 4, cols), straight.on_cpu.m, &turned.on_cpu.m);
    straight.expect_equal();
    turned.expect_equal();
  }
}

TEST_P(CudaFp8Test, WhatIsNotFiniteMakesItsBlockNoNumbers) {
  for (const bool tiles : {false, true})
    for (const double bad : {double{INFINITY}, double{NAN}}) {
      Pair p = random({130, 256}, 2);
      for_each_element(p.device, [&](int64_t i, auto& v) {
        if (i == 300) v = cuda::rounded<std::remove_reference_t<decltype(v)>>(bad);
      });
      p.reference.view().as<double>()[300] = bad;
      rounded(p, tiles).expect_equal();
    }
}

TEST_P(CudaFp8Test, MultipliesWhatTheNumbersStandFor) {
  struct Extents {
    int64_t rows, inner, cols;
  };
  for (const auto& [rows, inner, cols] : {Extents{1, 128, 128},
                                          {3, 256, 128},
                                          {4, 384, 256},
                                          {17, 128, 256},
                                          {62, 640, 128},
                                          {128, 512, 256},
                                          {5, 70, 30}}) {
    SCOPED_TRACE(fmt::format("({}, {}) ({}, {})^T", rows, inner, cols, inner));
    const Rounded a = rounded(random({rows, inner}, 1), false), b = rounded(random({cols, inner}, 2), true);
    for (const Into into : {Into::overwrite, Into::add}) {
      const Pair out = random({rows, cols}, 3);
      Fp8Matrix by_four = a.on_device.m;
      by_four.rows = round_up_to_4(rows);
      const Pair other = random({by_four.rows, cols}, 4);
      const bool own = gemm_->run_fp8(by_four, b.on_device.m, matrix(other.device), into, nullptr);
      math_->gemm_fp8(a.on_device.m, b.on_device.m, matrix(out.device), into);
      cpu_math().gemm_fp8(a.on_cpu.m, b.on_cpu.m, matrix(out.reference), into);
      expect_products(out, own);
    }
  }
}

// A GPU multiplies rows by fours; the others get up to three more.
TEST_P(CudaFp8Test, ItsOwnProductsAreTheSame) {
  std::string own;
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 17, 60, 61, 307, 308})
    for (const int64_t inner : {128, 384, 512, 640}) {
      SCOPED_TRACE(fmt::format("({}, {}) (384, {})^T", rows, inner, inner));
      const Rounded a = rounded(random({rows, inner}, 1), false), b = rounded(random({384, inner}, 2), true);
      const Pair out = random({rows, 384}, 3);
      if (!gemm_->run_fp8(a.on_device.m, b.on_device.m, matrix(out.device), Into::overwrite, nullptr)) break;
      if (inner == 128) own += fmt::format(" {}", rows);
      cpu_math().gemm_fp8(a.on_cpu.m, b.on_cpu.m, matrix(out.reference), Into::overwrite);
      expect_products(out, true);
    }
  EXPECT_EQ(own, has_fp8_products() && GetParam() != DType::float64 ? " 4 8 16 60 308" : "");
}

INSTANTIATE_TEST_SUITE_P(Types, CudaFp8Test, testing::ValuesIn(kDTypes),
                         [](const auto& row) { return std::string(name_of(row.param)); });

}  // namespace
}  // namespace moe
