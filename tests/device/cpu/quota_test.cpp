// How many threads a rank computes with by itself: its share of the cores and of their time, OMP_NUM_THREADS.
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/device/cpu/cores.h"

namespace moe {
namespace {

TEST(DefaultThreads, ShareTheCores) {
  const auto of = [](int cores, std::optional<double> quota, int sharers, bool communicates = true) {
    return cpu::default_threads({cores, quota, sharers, communicates}, nullptr);
  };
  EXPECT_EQ(of(2, {}, 1, false), 2);
  EXPECT_EQ(of(2, {}, 4), 1);
  EXPECT_EQ(of(12, {}, 4), 3);
  EXPECT_EQ(of(16, {}, 4), 3) << "one is left to communicate";
  EXPECT_EQ(of(16, {}, 1, false), 16);
  EXPECT_EQ(of(16, 6.5, 2), 3);
  EXPECT_EQ(of(16, 0.5, 1), 1);
  EXPECT_EQ(of(2, 64, 1), 2);
}

TEST(DefaultThreads, ObeyTheVariable) {
  EXPECT_EQ(cpu::default_threads({16, {}, 4, true}, "5"), 5);
  EXPECT_EQ(cpu::default_threads({3}, ""), 3);
  EXPECT_EQ(cpu::default_threads({1, 0.5, 4, true}, "3,2"), 3);
  for (const char* wrong : {"0", "-1", "two", "2x", ",2"}) {
    try {
      cpu::default_threads({}, wrong);
      ADD_FAILURE() << wrong;
    } catch (const BadInput& error) {
      EXPECT_EQ(std::string(error.what()),
                fmt::format("OMP_NUM_THREADS: found '{}', expected a whole number of 1 or more", wrong));
    }
  }
}

}  // namespace
}  // namespace moe
