#include <gtest/gtest.h>

#include "commands/shared/printed.h"

namespace moe::commands {
namespace {

TEST(PublishedErrors, AreOfTheModelOnTheGpuOrElseOfAllModelsThere) {
  const Profile h100 = find_profile("h100-deepep-8-nodes");
  const auto own = published_errors(h100, "qwen3-235b-a22b");
  ASSERT_TRUE(own);
  EXPECT_EQ(own->model, "qwen3-235b-a22b");
  EXPECT_EQ(own->gpu, "H100");
  EXPECT_EQ(own->runs, 3);
  EXPECT_LE(own->min, own->median);
  EXPECT_LE(own->median, own->max);
  const auto any = published_errors(h100, "mixtral-7b");
  ASSERT_TRUE(any);
  EXPECT_EQ(any->model, "");
  EXPECT_EQ(any->runs, 9);
  EXPECT_EQ(published_errors(find_profile("h800-8-nodes"), "qwen3-235b-a22b")->runs, 4);
}

TEST(PublishedErrors, ThereAreNoneOfOtherClusters) {
  EXPECT_FALSE(published_errors(find_profile("testbed-b"), "qwen3-235b-a22b"));
  EXPECT_FALSE(published_errors(find_profile("b200-8"), "qwen3-235b-a22b"));
}

TEST(PublishedErrors, AreQuotedInOneLine) {
  EXPECT_EQ(text_of({"m", "H100", 3, -0.2, -0.371, 0.04}),
            "3 published steps of m on H100 took 25 % more than predicted in the median (4 % less to 59 % more)");
  EXPECT_EQ(text_of({"", "H100", 1, -0.2, -0.2, -0.2}), "a published step on H100 took 25 % more than predicted");
}

}  // namespace
}  // namespace moe::commands
