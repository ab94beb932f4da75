#include <algorithm>
#include <fmt/format.h>

#include "commands/doctor/probes.h"
#include "moe/base/config_files.h"

namespace moe::doctor {
namespace {

constexpr double kFastMbit = 10000;  // slower links are slow between nodes that train together
constexpr double kJumbo = 9000;
const std::string kInterfaces = "/sys/class/net/", kFabric = "/sys/class/infiniband/";

constexpr Area kNetwork{"network"};

Finding interface(const SystemFiles& files, const std::string& name) {
  const std::string folder = kInterfaces + name;
  const auto speed = files.number(folder + "/speed"), mtu = files.number(folder + "/mtu");
  const bool known = speed && *speed > 0;
  const std::string found =
      fmt::format("{} up, {}, MTU {}", name, known ? fmt::format("{} Mbit/s", *speed) : "speed unknown",
                  mtu ? fmt::format("{}", *mtu) : "unknown");
  if (files.text(folder + "/duplex") == "half")
    return kNetwork(Level::warn, found + ", half duplex", "sending and receiving take turns",
                    fmt::format("sudo ethtool -s {} duplex full", name));
  if (known && *speed < kFastMbit)
    return kNetwork(Level::note, found, "slow for collectives between nodes",
                    fmt::format("NCCL_SOCKET_IFNAME=... GLOO_SOCKET_IFNAME=... {} VERB", program_command()));
  if (known && mtu && *mtu < kJumbo)
    return kNetwork(Level::note, found,
                    "small packets cost more work per byte; MTU 9000 needs switches that support it",
                    fmt::format("sudo ip link set dev {} mtu 9000", name));
  return kNetwork(Level::ok, found, known ? "full speed" : "a virtual link: the host decides");
}

Findings interfaces(const SystemFiles& files) {
  Findings all;
  for (const std::string& name : files.names(kInterfaces)) {
    if (name == "lo") continue;
    const std::string state = files.text(kInterfaces + name + "/operstate").value_or("");
    // Some drivers and containers report an unknown state; then the carrier decides.
    if (state == "up" || (state == "unknown" && files.number(kInterfaces + name + "/carrier") == 1))
      all.push_back(interface(files, name));
    else if (files.has(kInterfaces + name + "/device"))
      all.push_back(
          kNetwork(Level::ok, fmt::format("{} {}", name, state.empty() ? "has no state" : state), "not used"));
  }
  return all;
}

Findings fabric(const SystemFiles& files) {
  Findings all;
  std::vector<std::string> rates;
  for (const std::string& device : files.names(kFabric))
    for (const std::string& port : files.names(kFabric + device + "/ports")) {
      const std::string folder = fmt::format("{}{}/ports/{}", kFabric, device, port);
      const auto words = words_in(files.text(folder + "/state").value_or(""));  // "4: ACTIVE"
      const std::string state = words.empty() ? "no state" : words.back();
      const std::string rate = files.text(folder + "/rate").value_or("speed unknown");
      const std::string found = fmt::format("{} port {}: {}, {}", device, port, state, rate);
      if (state == "ACTIVE") {
        rates.push_back(rate);
        all.push_back(kNetwork(Level::ok, found, "its link is up"));
      } else {
        all.push_back(kNetwork(Level::warn, found, "NCCL uses fewer links, or TCP", "ibstat " + device));
      }
    }
  if (std::ranges::adjacent_find(rates, std::not_equal_to{}) != rates.end())
    all.push_back(kNetwork(Level::warn, "InfiniBand ports of different rates", "collectives wait for the slowest link",
                           "ibstat"));
  return all;
}

Findings gpu_direct(const SystemFiles& files) {
  if (files.names(kFabric).empty() || files.names("/proc/driver/nvidia/gpus").empty()) return {};
  const std::string modules = fmt::format("\n{}", files.text("/proc/modules").value_or(""));
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"})
    if (modules.find(fmt::format("\n{} ", module)) != std::string::npos)
      return {kNetwork(Level::ok, fmt::format("GPUDirect RDMA: {} is loaded", module),
                       "network cards access GPU memory directly")};
  return {kNetwork(Level::warn, "GPUDirect RDMA: nvidia_peermem is not loaded",
                   "data passes through host memory, unless NCCL uses DMA-BUF", "sudo modprobe nvidia-peermem")};
}

}  // namespace

Findings network_findings(const SystemFiles& files) {
  Findings all;
  for (const auto probe : {interfaces, fabric, gpu_direct})
    for (Finding& one : probe(files)) all.push_back(std::move(one));
  return all;
}

}  // namespace moe::doctor
