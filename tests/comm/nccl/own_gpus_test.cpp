#include "moe/comm/nccl/own_gpus.h"

#include <gtest/gtest.h>
#include <vector>

#include "moe/base/check.h"

namespace moe {
namespace {

std::string refusal(const std::vector<std::string>& gpus) {
  try {
    require_own_gpus(gpus);
    return {};
  } catch (const BadInput& error) {
    return error.what();
  }
}

TEST(OwnGpus, AreOneForEveryRank) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({"a"}), "");
  EXPECT_EQ(refusal({"a", "b", "c"}), "");
  EXPECT_EQ(refusal({"a", "b", "c", "b"}),
            "NCCL: found ranks 1 and 3 on the same GPU, expected one for each of 4 ranks");
  EXPECT_EQ(refusal({"", "", "a"}), "") << "where there is none, another error says so";
}

}  // namespace
}  // namespace moe
