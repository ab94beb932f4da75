// Limits of control groups, of both versions.
#include "moe/base/system_files.h"
#include "tests/base/made_up_machine.h"

namespace moe {
namespace {

class ControlGroups : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const { machine_.write(path, text); }
  std::optional<double> quota() const { return cpu_quota(machine_.files()); }
  std::optional<MemoryLimit> memory() const { return memory_limit(machine_.files()); }

  MadeUpMachine machine_;
};

TEST_F(ControlGroups, LimitNothingWhereThereAreNone) {
  EXPECT_EQ(quota(), std::nullopt);
  EXPECT_FALSE(memory());
}

TEST_F(ControlGroups, QuotaIsTheLeastOfItsGroupAndThoseAboveIt) {
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

TEST_F(ControlGroups, QuotaIsOfTheFirstVersionToo) {
  write("/proc/self/cgroup", "3:cpuset:/\n2:cpuacct,cpu:/job\n0::/\nno group\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(ControlGroups, MemoryIsThatOfTheTightestGroup) {
  write("/proc/self/cgroup", "0::/of/run\n");
  write("/sys/fs/cgroup/of/run/memory.max", "max\n");
  EXPECT_FALSE(memory());
  write("/sys/fs/cgroup/of/memory.max", "8589934592\n");
  write("/sys/fs/cgroup/of/memory.current", "1048576\n");
  write("/sys/fs/cgroup/memory.max", "17179869184\n");
  ASSERT_TRUE(memory());
  EXPECT_EQ(memory()->limit_bytes, 0x1p33);
  EXPECT_EQ(memory()->used_bytes, 0x1p20);
}

TEST_F(ControlGroups, MemoryIsOfTheFirstVersionToo) {
  write("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(memory()) << "the largest number of pages";
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "536870912\n");
  ASSERT_TRUE(memory());
  EXPECT_EQ(memory()->limit_bytes, 0x1p30);
  EXPECT_EQ(memory()->used_bytes, 0x1p29);
}

TEST_F(ControlGroups, GarbageLimitsNothing) {
  for (const std::string& text : garbage()) {
    write("/proc/self/cgroup", "0::/run\n1:cpu,memory:/\n");
    for (const char* file : {"/run/cpu.max", "/run/memory.max", "/run/memory.current", "/cpu/cpu.cfs_quota_us",
                             "/cpu/cpu.cfs_period_us", "/memory/memory.limit_in_bytes"})
      write(std::string("/sys/fs/cgroup") + file, text);
    const auto limit = memory();
    EXPECT_TRUE(!limit || limit->limit_bytes > 0) << text.substr(0, 40);
    EXPECT_TRUE(!quota() || *quota() > 0) << text.substr(0, 40);
    write("/proc/self/cgroup", text + "\n0::no/path\n");
    EXPECT_EQ(quota(), std::nullopt) << text.substr(0, 40);
    EXPECT_FALSE(memory()) << text.substr(0, 40);
  }
}

}  // namespace
}  // namespace moe
