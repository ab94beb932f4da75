// The machine as a run is stamped with it: what stays, its fingerprint, and what changes.
#include "moe/record/machine.h"

#include <fmt/format.h>
#include <set>

#include "moe/record/record_json.h"
#include "tests/base/made_up_machine.h"

namespace moe {
namespace {

class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU\ncpu MHz\t\t: 2400.500\n\nprocessor\t: 1\n");
    write("/proc/meminfo", "MemTotal:       16384000 kB\nMemAvailable:    8192000 kB\n");
    write("/proc/loadavg", "0.25 0.50 0.75 1/200 1234\n");
    write("/proc/stat", "cpu  100 0 0 800 0 0 0 100 0 0\n");
    write("/proc/pressure/cpu", "some avg10=5.00 avg60=0.00 avg300=0.00 total=0\n");
    write("/sys/devices/system/cpu/online", "0-15\n");
    write("/sys/devices/system/cpu/smt/active", "1\n");
    write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    for (const char* node : {"node0", "node1"}) write(fmt::format("/sys/devices/system/node/{}/cpulist", node), "0\n");
    write("/sys/devices/system/node/online", "0-1\n");
    for (const char* gpu : {"0000:01:00.0", "0000:02:00.0"})
      write(fmt::format("/proc/driver/nvidia/gpus/{}/information", gpu), "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\n");
    link("eth0", "up", "25000");
    link("eth1", "up", "25000");
    link("eth2", "down", "-1");
    write("/sys/class/net/lo/operstate", "unknown\n");
    write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write("/sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  }
  void link(const std::string& name, const std::string& state, const std::string& speed) const {
    write("/sys/class/net/" + name + "/device", "");
    write("/sys/class/net/" + name + "/operstate", state + "\n");
    write("/sys/class/net/" + name + "/speed", speed + "\n");
  }
  void write(const std::string& path, const std::string& text) const { machine_.write(path, text); }
  Fields machine() const { return machine_of(machine_.files()); }
  std::string fingerprint() const { return machine().text("fingerprint", ""); }

  MadeUpMachine machine_;
};

TEST_F(MachineTest, SaysWhatDecidesItsSpeed) {
  const Fields found = machine();
  EXPECT_EQ(found.text("cpu", ""), "A CPU");
  EXPECT_EQ(found.whole("cores", ""), 16);
  EXPECT_EQ(found.whole("memory_bytes", ""), int64_t{16384000} << 10);
  EXPECT_FALSE(found.text("architecture", "").empty());
  EXPECT_EQ(std::get<bool>(*found.find("smt")), true);
  EXPECT_EQ(found.whole("numa_nodes", ""), 2);
  EXPECT_EQ(found.text("governor", ""), "performance");
  EXPECT_EQ(found.text("gpu", ""), "2 x NVIDIA H200");
  EXPECT_EQ(found.whole("gpus", ""), 2);
  EXPECT_EQ(found.text("network", ""), "200 Gb/sec (4X HDR), 2 x 25000 Mbit/s");
  EXPECT_FALSE(found.has("cpu_quota"));
  EXPECT_EQ(fingerprint().size(), 16u);
  EXPECT_EQ(fingerprint().find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST_F(MachineTest, AnotherOneHasAnotherFingerprint) {
  std::set<std::string> seen{fingerprint()};
  const auto differs = [&](const std::string& path, const std::string& text) {
    write(path, text);
    EXPECT_TRUE(seen.insert(fingerprint()).second) << path;
  };
  differs("/proc/cpuinfo", "model name\t: Another CPU\n");
  differs("/proc/cpuinfo", "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n");
  differs("/proc/meminfo", "MemTotal:       32768000 kB\n");
  differs("/sys/devices/system/cpu/online", "0-7\n");
  differs("/sys/devices/system/cpu/smt/active", "0\n");
  differs("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  differs("/sys/devices/system/node/node2/cpulist", "\n");
  differs("/proc/driver/nvidia/gpus/0000:02:00.0/information", "Model: NVIDIA A100\n");
  differs("/proc/driver/nvidia/gpus/0000:03:00.0/information", "Model: NVIDIA A100\n");
  differs("/sys/class/net/eth1/speed", "100000\n");
  differs("/sys/class/net/eth1/operstate", "down\n");
  differs("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  write("/proc/self/cgroup", "0::/\n");
  differs("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  differs("/sys/fs/cgroup/cpu.max", "400000 100000\n");
}

TEST_F(MachineTest, TheSameOneHasTheSameFingerprintWhateverItDoes) {
  const std::string before = fingerprint();
  write("/proc/loadavg", "64.00 32.00 16.00 9/200 1234\n");
  write("/proc/cpuinfo", "model name\t: A CPU\ncpu MHz\t\t: 800.000\n");
  write("/proc/meminfo", "MemTotal:       16384100 kB\nMemAvailable:     1000 kB\n");
  write("/proc/stat", "cpu  9000 0 0 0 0 0 0 0 0 0\n");
  write("/sys/class/net/veth0/operstate", "up\n");
  write("/sys/class/net/veth0/speed", "10000\n");
  EXPECT_EQ(fingerprint(), before) << "another kernel keeps a little more memory for itself, too";
  EXPECT_NE(machine().whole("memory_bytes", ""), int64_t{16384000} << 10);
}

TEST_F(MachineTest, ConditionsAreWhatChanges) {
  const Fields found = conditions_of(machine_.files());
  EXPECT_EQ(found.number("load1", ""), 0.25);
  EXPECT_EQ(found.number("steal_share", ""), 0.1);
  EXPECT_EQ(found.number("pressure", ""), 0.05);
  EXPECT_EQ(found.number("mhz", ""), 2400.5);
  EXPECT_EQ(found.whole("free_memory_bytes", ""), int64_t{8192000} << 10);
}

TEST(Machine, NothingIsKnownOfAnEmptyOne) {
  const MadeUpMachine empty;
  empty.write("/proc/self/cgroup", "");
  const Fields found = machine_of(empty.files());
  EXPECT_EQ(found.text("cpu", ""), "unknown");
  EXPECT_EQ(found.whole("cores", ""), 1);
  EXPECT_EQ(found.text("fingerprint", "").size(), 16u);
  for (const char* absent : {"smt", "numa_nodes", "cpu_quota", "governor", "gpu", "gpus", "network"})
    EXPECT_FALSE(found.has(absent)) << absent;
  EXPECT_TRUE(conditions_of(empty.files()).empty());
}

TEST_F(MachineTest, GarbageIsNoError) {
  for (const std::string& text : garbage()) {
    for (const char* file :
         {"/proc/cpuinfo", "/proc/meminfo", "/proc/loadavg", "/proc/stat", "/proc/pressure/cpu", "/proc/self/cgroup",
          "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/smt/active", "/sys/class/net/eth0/speed",
          "/sys/class/infiniband/mlx5_0/ports/1/rate", "/proc/driver/nvidia/gpus/0000:01:00.0/information"})
      write(file, text);
    RunHeader run;
    run.machine = machine();
    run.conditions = conditions_of(machine_.files());
    EXPECT_GE(run.machine.whole("cores", ""), 1);
    EXPECT_NO_THROW(record_line_from(to_json_line(run), "f:1")) << text.substr(0, 40);
  }
}

}  // namespace
}  // namespace moe
