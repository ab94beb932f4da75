// How many threads a rank computes with by itself: cores, control groups of both versions, OMP_NUM_THREADS.
#include "moe/device/cpu/quota.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

class QuotaTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = scratch_.path("root") + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> quota() const { return cpu::cpu_quota(scratch_.path("root")); }

  Scratch scratch_;
};

TEST_F(QuotaTest, IsNoneWithoutControlGroups) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(QuotaTest, IsTheLeastOfItsGroupAndThoseAboveIt) {
  write("/proc/self/cgroup", "0::/of/run\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/of/run/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/of/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("/sys/fs/cgroup/of/run/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(QuotaTest, IsOfTheFirstVersionToo) {
  write("/proc/self/cgroup", "3:cpuset:/\n2:cpuacct,cpu:/job\n0::/\nno group\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(quota(), 3);
}

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
