// What a machine without a GPU, or a build without NCCL, is told.
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/comm/nccl/nccl_world.h"
#include "moe/device/device.h"

namespace moe {
namespace {

template <class Make>
std::string refusal(Make&& make) {
  try {
    make();
  } catch (const BadInput& error) {
    return error.what();
  }
  return "none";
}

TEST(NcclAbsentTest, WithoutAGpuOneLineSaysSo) {
  if (gpu_count() > 0) GTEST_SKIP() << "there is a GPU";
  for (const std::string& line : {refusal([] { make_nccl_world({}); }), refusal([] { make_device(DeviceKind::cuda); })})
    EXPECT_TRUE(line.find("no GPU") != std::string::npos || line.find("this build has no") != std::string::npos)
        << line;
}

TEST(NcclAbsentTest, RanksNeedAPlaceToMeet) {
  EXPECT_NE(refusal([] { make_nccl_world({.rank = 2, .size = 2}); }), "none");
  EXPECT_NE(refusal([] { make_nccl_world({.rank = 0, .size = 2}); }), "none");
}

}  // namespace
}  // namespace moe
