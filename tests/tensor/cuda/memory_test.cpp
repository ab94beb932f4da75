// Memory of a device as tensors need it: zeroed, aligned, copied there and back.
#include "moe/device/memory.h"

#include <gtest/gtest.h>
#include <numeric>

#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

class TestDeviceMemory : public testing::Test {
 protected:
  std::vector<uint8_t> read(const void* from, size_t bytes) {
    finish_test_device();
    std::vector<uint8_t> here(bytes, 0xEE);
    memory_->to_host(from, here.data(), static_cast<int64_t>(bytes));
    return here;
  }
  std::unique_ptr<MemorySpace> memory_ = make_test_memory();
};

TEST_F(TestDeviceMemory, IsZeroedAndAligned) {
  EXPECT_EQ(memory_->kind(), DeviceKind::cuda);
  for (const int64_t bytes : {1, 15, 16, 4097}) {
    for (int again = 0; again < 2; ++again) {  // what is given back holds something
      const Memory block = memory_->allocate(bytes);
      EXPECT_EQ(block.bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 16, 0U);
      EXPECT_EQ(read(block.data(), static_cast<size_t>(bytes)), std::vector<uint8_t>(static_cast<size_t>(bytes)));
      const std::vector<uint8_t> ones(bytes, 1);
      memory_->from_host(ones.data(), block.data(), bytes);
    }
  }
}

TEST_F(TestDeviceMemory, NoBytesAreStillSomewhere) { EXPECT_NE(memory_->allocate(0).data(), nullptr); }

TEST_F(TestDeviceMemory, CopiesAndClearsInsideAndFromOutside) {
  std::vector<uint8_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), uint8_t{0});
  const Memory one = memory_->allocate(1000), two = memory_->allocate(1000);
  auto* there = static_cast<std::byte*>(two.data());
  memory_->from_host(numbers.data(), one.data(), 1000);
  EXPECT_EQ(read(one.data(), 1000), numbers);
  memory_->copy(one.data(), there + 3, 900, nullptr);
  memory_->copy(one.data(), there, 0, nullptr);
  memory_->clear(there + 100, 50, nullptr);
  std::vector<uint8_t> expected(1000);
  std::copy_n(numbers.begin(), 900, expected.begin() + 3);
  std::fill_n(expected.begin() + 100, 50, uint8_t{0});
  EXPECT_EQ(read(two.data(), 1000), expected);
}

TEST_F(TestDeviceMemory, ArraysGoThereAndBack) {
  const std::vector<int32_t> numbers{3, -1, 4};
  const Array<int32_t> array(*memory_, 3);
  array.from_host(numbers.data());
  std::vector<int32_t> back(3);
  array.to_host(back.data());
  EXPECT_EQ(back, numbers);
}

}  // namespace
}  // namespace moe
