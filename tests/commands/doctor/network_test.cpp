// Interfaces and InfiniBand ports of machines that are made up.
#include "tests/commands/doctor/found.h"

namespace moe::doctor {
namespace {

class Network : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const { machine_.write(path, text); }
  void interface(const std::string& name, const std::string& state, const std::string& speed,
                 const std::string& mtu) const {
    const std::string folder = "/sys/class/net/" + name;
    write(folder + "/device", "");
    write(folder + "/operstate", state + "\n");
    write(folder + "/speed", speed + "\n");
    write(folder + "/mtu", mtu + "\n");
  }
  void port(const std::string& device, int number, const std::string& state, const std::string& rate) const {
    const std::string folder = fmt::format("/sys/class/infiniband/{}/ports/{}", device, number);
    write(folder + "/state", state + "\n");
    write(folder + "/rate", rate + "\n");
  }
  Findings look() const { return network_findings(machine_.files()); }

  MadeUpMachine machine_;
};

TEST_F(Network, NothingIsFoundWhereNothingIs) { EXPECT_TRUE(look().empty()); }

TEST_F(Network, InterfacesAreToldWithSpeedAndMtu) {
  interface("lo", "unknown", "-1", "65536");
  interface("fast", "up", "100000", "9000");
  interface("small", "up", "25000", "1500");
  interface("slow", "up", "1000", "1500");
  interface("unplugged", "down", "-1", "1500");
  const Findings all = look();
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(found(all, "fast up, 100000 Mbit/s, MTU 9000").level, Level::ok);
  EXPECT_EQ(found(all, "small up, 25000 Mbit/s, MTU 1500").level, Level::note);
  EXPECT_EQ(found(all, "small").command, "sudo ip link set dev small mtu 9000");
  EXPECT_EQ(found(all, "slow up, 1000 Mbit/s, MTU 1500").level, Level::note);
  EXPECT_NE(found(all, "slow").command.find("NCCL_SOCKET_IFNAME"), std::string::npos);
  EXPECT_EQ(found(all, "unplugged down").level, Level::ok);
  write("/sys/class/net/fast/duplex", "half\n");
  EXPECT_EQ(found(look(), "fast up").level, Level::warn);
}

TEST_F(Network, VirtualOnesAreLeftOutUnlessTheyCarry) {
  write("/sys/class/net/veth0/operstate", "down\n");
  write("/sys/class/net/tunl0/operstate", "unknown\n");
  EXPECT_TRUE(look().empty());
  write("/sys/class/net/tunl0/carrier", "1\n");
  EXPECT_EQ(found(look(), "tunl0 up, speed unknown, MTU unknown").level, Level::ok);
}

TEST_F(Network, InfiniBandPortsThatAreDownAreWarnedOf) {
  port("mlx5_0", 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
  EXPECT_EQ(found(look(), "mlx5_0 port 1: ACTIVE, 200 Gb/sec (4X HDR)").level, Level::ok);
  port("mlx5_1", 1, "1: DOWN", "10 Gb/sec (4X SDR)");
  EXPECT_EQ(found(look(), "mlx5_1 port 1: DOWN").level, Level::warn);
  EXPECT_FALSE(has(look(), "InfiniBand ports of different rates"));
  port("mlx5_1", 1, "4: ACTIVE", "100 Gb/sec (4X EDR)");
  EXPECT_EQ(found(look(), "InfiniBand ports of different rates").level, Level::warn);
}

TEST_F(Network, GpuDirectIsAskedForWhereBothAre) {
  port("mlx5_0", 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
  EXPECT_FALSE(has(look(), "GPUDirect")) << "no GPU";
  write("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: NVIDIA H200\n");
  write("/proc/modules", "nvidia 9 1 other, Live 0x0\nno_nvidia_peermem 1 0 - Live 0x0\n");
  EXPECT_EQ(found(look(), "GPUDirect RDMA: nvidia_peermem is not loaded").level, Level::warn);
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    write("/proc/modules", fmt::format("nvidia 9 1 other, Live 0x0\n{} 16384 0 - Live 0x0\n", module));
    EXPECT_EQ(found(look(), fmt::format("GPUDirect RDMA: {} is loaded", module)).level, Level::ok);
  }
}

TEST_F(Network, GarbageIsNoError) {
  for (const std::string& text : garbage()) {
    interface("eth0", "up", text, text);
    interface("eth1", text, text, text);
    port("mlx5_0", 1, text, text);
    write("/proc/modules", text);
    const Findings all = look();
    EXPECT_TRUE(has(all, "eth0 up, ")) << text.substr(0, 40);
    EXPECT_EQ(found(all, "mlx5_0 port 1: ").level, Level::warn);
  }
}

}  // namespace
}  // namespace moe::doctor
