#include "moe/record/machine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sys/utsname.h>

#include "moe/base/check.h"
#include "moe/base/control_groups.h"
#include "moe/base/random.h"
#include "moe/base/units.h"

namespace moe {
namespace {

constexpr size_t kFirstCore = 4096;  // bytes of /proc/cpuinfo that hold it

/// Returns the processor's name; Arm's kernels number what others name.
std::string cpu_name(const std::string& info) {
  if (const auto name = value_of_key(info, "model name")) return *name;
  const auto maker = value_of_key(info, "CPU implementer"), part = value_of_key(info, "CPU part");
  return maker && part ? fmt::format("implementer {} part {}", *maker, *part) : "unknown";
}

int64_t numa_nodes(const SystemFiles& files) {
  return std::ranges::count_if(files.names("/sys/devices/system/node"), [](const std::string& name) {
    return name.starts_with("node") && leading_number(name.substr(4));
  });
}

/// Returns "7 x NVIDIA H200, NVIDIA A100": what is there, and how often.
std::string counted(const std::map<std::string, int>& names) {
  std::string text;
  for (const auto& [name, count] : names)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", count > 1 ? fmt::format("{} x ", count) : "", name);
  return text;
}

/// Counts GPUs by name, from what the driver tells without its library.
std::map<std::string, int> gpus(const SystemFiles& files) {
  const std::string folder = "/proc/driver/nvidia/gpus";
  std::map<std::string, int> found;
  for (const std::string& gpu : files.names(folder))
    if (const auto name = value_of_key(files.text(fmt::format("{}/{}/information", folder, gpu)).value_or(""), "Model"))
      ++found[*name];
  return found;
}

std::string network(const SystemFiles& files) {
  std::map<std::string, int> links;
  const std::string interfaces = "/sys/class/net/", fabric = "/sys/class/infiniband/";
  for (const std::string& name : files.names(interfaces)) {
    const std::string link = interfaces + name;
    if (!files.has(link + "/device") || files.text(link + "/operstate") != "up") continue;  // virtual ones have none
    if (const auto speed = files.number(link + "/speed"); speed && *speed > 0)
      ++links[fmt::format("{} Mbit/s", *speed)];
  }
  for (const std::string& device : files.names(fabric))
    for (const std::string& port : files.names(fabric + device + "/ports")) {
      const std::string at = fmt::format("{}{}/ports/{}", fabric, device, port);
      if (files.text(at + "/state").value_or("").ends_with("ACTIVE"))
        if (const auto rate = files.text(at + "/rate")) ++links[*rate];
    }
  return counted(links);
}

std::string fingerprint(const Fields& machine) {
  std::string all;
  for (const auto& [name, value] : machine) {
    if (name == "os") continue;
    const std::string text =
        name == "memory_bytes" ? fmt::format("{}", std::lround(machine.number(name, "") / kGiB)) : scalar_text(value);
    all += fmt::format("{}={}:{};", name, text.size(), text);
  }
  return fmt::format("{:016x}", stream_of(all));
}

}  // namespace

Fields machine_of(const SystemFiles& files) {
  struct utsname os {};
  ::uname(&os);
  Fields machine{{"cpu", cpu_name(files.text("/proc/cpuinfo", kFirstCore).value_or(""))},
                 {"cores", online_cores(files)},
                 {"memory_bytes", static_cast<int64_t>(memory_bytes(files, "MemTotal").value_or(0))},
                 {"os", fmt::format("{} {}", os.sysname, os.release)},
                 {"architecture", std::string(os.machine)}};
  if (const auto smt = files.number("/sys/devices/system/cpu/smt/active")) machine.set("smt", *smt != 0);
  if (const int64_t nodes = numa_nodes(files); nodes > 0) machine.set("numa_nodes", nodes);
  if (const auto quota = cpu_quota(files)) machine.set("cpu_quota", *quota);
  if (const auto governor = files.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
    machine.set("governor", *governor);
  if (const auto found = gpus(files); !found.empty()) {
    machine.set("gpu", counted(found));
    machine.set("gpus", std::accumulate(found.begin(), found.end(), int64_t{0},
                                        [](int64_t sum, const auto& gpu) { return sum + gpu.second; }));
  }
  if (const std::string links = network(files); !links.empty()) machine.set("network", links);
  machine.set("fingerprint", fingerprint(machine));
  return machine;
}

Fields conditions_of(const SystemFiles& files) {
  Fields conditions;
  if (const auto load = files.number("/proc/loadavg")) conditions.set("load1", *load);
  if (const auto times = cpu_times(files)) conditions.set("steal_share", times->steal / times->total());
  if (const auto pressure = pressure_of(files, "cpu")) conditions.set("pressure", *pressure);
  if (const auto mhz = value_of_key(files.text("/proc/cpuinfo", kFirstCore).value_or(""), "cpu MHz"))
    if (const auto number = leading_number(*mhz)) conditions.set("mhz", *number);
  if (const auto free = memory_bytes(files, "MemAvailable"))
    conditions.set("free_memory_bytes", static_cast<int64_t>(*free));
  return conditions;
}

}  // namespace moe
