// What a GPU has not is refused, and it works on.
#include <gtest/gtest.h>

#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

TEST(DeviceMemory, RefusesATensorThatIsTooLarge) {
  const auto memory = make_test_memory();
  EXPECT_THROW(memory->allocate(int64_t{1} << 42), OutOfMemory);
  EXPECT_NE(memory->allocate(7).data(), nullptr);
}

}  // namespace
}  // namespace moe
