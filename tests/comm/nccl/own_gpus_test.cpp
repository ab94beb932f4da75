#include "moe/comm/nccl/own_gpus.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <vector>

namespace moe {
namespace {

using Sharers = std::optional<std::pair<size_t, size_t>>;

Sharers sharers(const std::vector<std::string>& gpus) { return ranks_of_one_gpu(gpus); }

TEST(OwnGpus, AreOneForEveryRank) {
  EXPECT_EQ(sharers({}), std::nullopt);
  EXPECT_EQ(sharers({"a"}), std::nullopt);
  EXPECT_EQ(sharers({"a", "b", "c"}), std::nullopt);
  EXPECT_EQ(sharers({"a", "b", "c", "b", "a"}), Sharers({1, 3}));
  EXPECT_EQ(sharers({"", "", "a"}), std::nullopt) << "where there is none, another error says so";
}

TEST(OwnGpus, AreSharedByNcclsOwnLeave) {
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_FALSE(may_share_gpus());
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
  EXPECT_FALSE(may_share_gpus());
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  EXPECT_TRUE(may_share_gpus());
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

}  // namespace
}  // namespace moe
