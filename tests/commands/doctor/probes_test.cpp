// Cores, memory, variables and clock of machines that are made up.
#include "commands/doctor/probes.h"

#include "tests/commands/doctor/found.h"

namespace moe::doctor {
namespace {

const std::string kCpus = "/sys/devices/system/cpu/";

class Probes : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const { machine_.write(path, text); }
  Findings cpu() const { return cpu_findings(machine_.files()); }
  Findings memory() const { return memory_findings(machine_.files()); }
  void cores(int count, const std::string& governor) const {
    write(kCpus + "online", fmt::format("0-{}\n", count - 1));
    for (int i = 0; i < count; ++i) write(fmt::format("{}cpu{}/cpufreq/scaling_governor", kCpus, i), governor + "\n");
  }

  MadeUpMachine machine_;
};

TEST_F(Probes, AGovernorThatFollowsTheLoadIsAWarning) {
  cores(4, "performance");
  EXPECT_EQ(found(cpu(), "governor performance on 4 of 4 cores").level, Level::ok);
  write(kCpus + "cpu2/cpufreq/scaling_governor", "powersave\n");
  const Finding mixed = found(cpu(), "governor performance on 3 of 4 cores powersave on 1 of 4 cores");
  EXPECT_EQ(mixed.level, Level::warn);
  EXPECT_EQ(mixed.area, "cpu");
  EXPECT_NE(mixed.command.find("performance"), std::string::npos);
  cores(4, "schedutil");
  EXPECT_EQ(found(cpu(), "governor schedutil on 4 of 4 cores").level, Level::warn);
}

TEST_F(Probes, WithoutGovernorsThereIsNothingToChoose) {
  EXPECT_EQ(found(cpu(), "no governor to choose").level, Level::ok);
}

TEST_F(Probes, BoostIsReadAsEachDriverHasIt) {
  EXPECT_FALSE(has(cpu(), "boost"));
  write(kCpus + "cpufreq/boost", "1\n");
  EXPECT_EQ(found(cpu(), "boost on").level, Level::note);
  EXPECT_NE(found(cpu(), "boost on").command.find("echo 0"), std::string::npos);
  write(kCpus + "cpufreq/boost", "0\n");
  EXPECT_EQ(found(cpu(), "boost off").level, Level::ok);
  machine_.remove(kCpus + "cpufreq/boost");
  write(kCpus + "intel_pstate/no_turbo", "0\n");
  EXPECT_NE(found(cpu(), "boost on").command.find("echo 1"), std::string::npos);
  write(kCpus + "intel_pstate/no_turbo", "1\n");
  EXPECT_EQ(found(cpu(), "boost off").level, Level::ok);
}

TEST_F(Probes, HyperThreadsAreANote) {
  write(kCpus + "smt/active", "1\n");
  EXPECT_EQ(found(cpu(), "hyper-threading").level, Level::note);
  write(kCpus + "smt/active", "0\n");
  EXPECT_EQ(found(cpu(), "one thread a core").level, Level::ok);
}

TEST_F(Probes, TwoNumaNodesAreANote) {
  write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  write("/sys/devices/system/node/online", "0\n");
  EXPECT_EQ(found(cpu(), "1 NUMA node").level, Level::ok);
  write("/sys/devices/system/node/node1/cpulist", "4-7\n");
  EXPECT_EQ(found(cpu(), "2 NUMA nodes").level, Level::note);
  EXPECT_FALSE(has(cpu(), "NUMA balancing"));
  write("/proc/sys/kernel/numa_balancing", "1\n");
  EXPECT_EQ(found(cpu(), "NUMA balancing on").level, Level::note);
}

TEST_F(Probes, AQuotaBelowTheCoresIsAWarningInBothVersions) {
  cores(4, "performance");
  EXPECT_EQ(found(cpu(), "no CPU quota").level, Level::ok);
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(found(cpu(), "control group: the time of 1.5 of 4 cores").level, Level::warn);
  write("/sys/fs/cgroup/job/cpu.max", "400000 100000\n");
  EXPECT_EQ(found(cpu(), "no CPU quota").level, Level::ok) << "as many as there are";
  write("/proc/self/cgroup", "2:cpu,cpuacct:/job\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
  write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(found(cpu(), "control group: the time of 2 of 4 cores").level, Level::warn);
}

TEST_F(Probes, AffinityIsANoteWhereItLeavesCoresOut) {
  cores(8, "performance");
  write("/proc/self/status", "Name:\tmoetune\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n");
  EXPECT_EQ(found(cpu(), "may run on all 8 cores").level, Level::ok);
  write("/proc/self/status", "Cpus_allowed_list:\t0,2-3\n");
  EXPECT_EQ(found(cpu(), "may run on 3 of 8 cores").level, Level::note);
}

TEST_F(Probes, GuestsAndContainersAreNotes) {
  EXPECT_TRUE(has(cpu(), "no sign of a virtual machine"));
  EXPECT_TRUE(has(cpu(), "no sign of a container"));
  write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n");
  EXPECT_EQ(found(cpu(), "a virtual machine").level, Level::note);
  write("/proc/1/cgroup", "5:cpu:/kubepods/pod1\n");
  EXPECT_EQ(found(cpu(), "a container").level, Level::note);
  machine_.remove("/proc/1");
  write("/.dockerenv", "");
  EXPECT_EQ(found(cpu(), "a container").level, Level::note);
}

TEST_F(Probes, LittleMemoryLeftIsAWarning) {
  write("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n");
  EXPECT_EQ(found(memory(), "512.0 MiB of 1.00 GiB free").level, Level::ok);
  write("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 52428 kB\n");
  EXPECT_EQ(found(memory(), "51.2 MiB of 1.00 GiB free").level, Level::warn);
}

TEST_F(Probes, ALimitOfMemoryIsToldInBothVersions) {
  write("/proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 4194304 kB\n");
  EXPECT_EQ(found(memory(), "no memory limit").level, Level::ok);
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "1073741824\n");
  write("/sys/fs/cgroup/job/memory.current", "536870912\n");
  EXPECT_EQ(found(memory(), "control group: at most 1.00 GiB, 512.0 MiB used").level, Level::note);
  write("/proc/self/cgroup", "9:memory:/job\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1063004406\n");
  EXPECT_EQ(found(memory(), "control group: at most 1.00 GiB").level, Level::warn);
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1099511627776\n");
  EXPECT_EQ(found(memory(), "no memory limit").level, Level::ok) << "more than there is";
}

TEST_F(Probes, SwapInUseIsToldByHowMuch) {
  write("/proc/meminfo", "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB\n");
  EXPECT_EQ(found(memory(), "no swap in use").level, Level::ok);
  write("/proc/meminfo", "SwapTotal: 1048576 kB\nSwapFree: 1047552 kB\n");
  EXPECT_EQ(found(memory(), "1.0 MiB swapped out").level, Level::note);
  write("/proc/meminfo", "SwapTotal: 1048576 kB\nSwapFree: 524288 kB\n");
  EXPECT_EQ(found(memory(), "512.0 MiB swapped out").level, Level::warn);
}

TEST_F(Probes, HugePagesAreANoteWhereTheyAreAlwaysMade) {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  write(folder + "enabled", "always [madvise] never\n");
  write(folder + "defrag", "always defer defer+madvise [madvise] never\n");
  EXPECT_EQ(found(memory(), "transparent huge pages: madvise").level, Level::ok);
  write(folder + "enabled", "[always] madvise never\n");
  EXPECT_EQ(found(memory(), "transparent huge pages: always").level, Level::note);
  write(folder + "defrag", "[always] defer defer+madvise madvise never\n");
  EXPECT_EQ(found(memory(), "huge pages: defrag always").level, Level::note);
}

TEST_F(Probes, VariablesOfDebuggingAreWarnedOf) {
  const Findings all = variable_findings({{"NCCL_DEBUG", "INFO"},
                                          {"NCCL_ALGO", "Ring"},
                                          {"NCCL_TOPO_FILE", "/home/someone/topology.xml"},
                                          {"NCCL_IB_DISABLE", "0"},
                                          {"OMP_OF_ANOTHER_YEAR", "1"},
                                          {"MKL_VERBOSE", "1"},
                                          {"GLOO_SOCKET_IFNAME", "eth\x01"},
                                          {"HOME", "/home/someone"},
                                          {"OMP_NUM_THREADS", ""}});
  ASSERT_EQ(all.size(), 7u);
  EXPECT_EQ(found(all, "NCCL_DEBUG = INFO").level, Level::warn);
  EXPECT_EQ(found(all, "NCCL_DEBUG = INFO").command, "unset NCCL_DEBUG");
  EXPECT_EQ(found(all, "MKL_VERBOSE = 1").level, Level::warn);
  EXPECT_EQ(found(all, "NCCL_ALGO = Ring").level, Level::note);
  EXPECT_EQ(found(all, "NCCL_ALGO = Ring").command, "");
  EXPECT_EQ(found(all, "NCCL_IB_DISABLE = 0").level, Level::ok);
  EXPECT_EQ(found(all, "NCCL_TOPO_FILE is set").level, Level::note) << "its value is a path";
  EXPECT_EQ(found(all, "GLOO_SOCKET_IFNAME is set").level, Level::note) << "not for a terminal";
  EXPECT_NE(found(all, "OMP_OF_ANOTHER_YEAR").meaning.find("unknown variable"), std::string::npos);
  EXPECT_EQ(found(variable_findings({{"PATH", "/bin"}}), "no variable").level, Level::ok);
  EXPECT_EQ(found(variable_findings({{"NCCL_DEBUG", "WARN"}}), "NCCL_DEBUG").level, Level::ok);
}

TEST_F(Probes, TheClockIsToldByTheSystem) {
  const auto clock = [&](std::optional<ClockState> state) { return clock_findings(machine_.files(), state); };
  EXPECT_TRUE(clock({}).empty());
  EXPECT_EQ(found(clock(ClockState{false, 0, 16}), "time is not synchronised").level, Level::note);
  EXPECT_EQ(found(clock(ClockState{true, -2e-3, 0.1}), "2.000 ms off").level, Level::note);
  EXPECT_EQ(found(clock(ClockState{true, 2e-6, 0.1}), "synchronised, 2.0 us off").level, Level::ok);
  const std::string source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  write(source, "tsc\n");
  EXPECT_EQ(found(clock({}), "clock source tsc").level, Level::ok);
  write(source, "hpet\n");
  EXPECT_EQ(found(clock({}), "clock source hpet").level, Level::warn);
}

// Whatever a file holds, a probe says something of it or nothing.
TEST_F(Probes, GarbageIsNoError) {
  for (const std::string& text : garbage()) {
    for (const char* file :
         {"/proc/self/cgroup", "/proc/self/status", "/proc/cpuinfo", "/proc/meminfo", "/proc/1/cgroup",
          "/proc/sys/kernel/numa_balancing", "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/smt/active",
          "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "/sys/devices/system/cpu/intel_pstate/no_turbo",
          "/sys/devices/system/node/node0/cpulist", "/sys/kernel/mm/transparent_hugepage/enabled",
          "/sys/kernel/mm/transparent_hugepage/defrag", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max",
          "/sys/devices/system/clocksource/clocksource0/current_clocksource"})
      write(file, text);
    Findings all = cpu();
    for (const Findings& more : {memory(), clock_findings(machine_.files(), {})})
      all.insert(all.end(), more.begin(), more.end());
    EXPECT_GE(all.size(), 5u);
    for (const Finding& one : all) {
      EXPECT_FALSE(one.found.empty());
      EXPECT_FALSE(one.meaning.empty());
    }
  }
}

}  // namespace
}  // namespace moe::doctor
