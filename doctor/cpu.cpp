#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "doctor/probes.h"
#include "moe/base/control_groups.h"

namespace moe::doctor {
namespace {

const std::string kCpus = "/sys/devices/system/cpu/";

constexpr Area kCpu{"cpu"};

Finding governor(const SystemFiles& files) {
  std::map<std::string, int> governors;
  int cores = 0;
  for (const std::string& cpu : files.names(kCpus))
    if (const auto name = files.text(kCpus + cpu + "/cpufreq/scaling_governor"); name && !name->empty())
      ++governors[*name], ++cores;
  if (governors.empty()) return kCpu(Level::ok, "no governor to choose", "the host or the firmware sets clocks");
  std::string found = "governor";
  for (const auto& [name, count] : governors) found += fmt::format(" {} on {} of {} cores", name, count, cores);
  if (governors.size() == 1 && governors.contains("performance"))
    return kCpu(Level::ok, found, "clocks do not wait for load");
  return kCpu(Level::warn, found, "clocks follow the load: short operations run slower",
              "sudo cpupower frequency-set -g performance");
}

Findings boost(const SystemFiles& files) {
  const std::string intel = kCpus + "intel_pstate/no_turbo", others = kCpus + "cpufreq/boost";
  const auto off = files.number(intel), on = files.number(others);
  if (!off && !on) return {};
  if (off ? *off != 0 : *on == 0) return {kCpu(Level::ok, "boost off", "all cores keep their base clock")};
  return {kCpu(Level::note, "boost on", "clocks depend on heat and on how many cores work",
               off ? "echo 1 | sudo tee " + intel : "echo 0 | sudo tee " + others)};
}

Findings hyper_threads(const SystemFiles& files) {
  const auto active = files.number(kCpus + "smt/active");
  if (!active) return {};
  if (*active == 0) return {kCpu(Level::ok, "one thread a core", "no two ranks share a core")};
  return {kCpu(Level::note, "hyper-threading (SMT) on", "two ranks or threads may share one core's units",
               "echo off | sudo tee " + kCpus + "smt/control")};
}

Findings numa(const SystemFiles& files) {
  const auto nodes = std::ranges::count_if(files.names("/sys/devices/system/node"), [](const std::string& name) {
    return name.starts_with("node") && leading_number(name.substr(4));
  });
  if (nodes == 0) return {};
  if (nodes == 1) return {kCpu(Level::ok, "1 NUMA node", "all memory is equally near")};
  Findings found{kCpu(Level::note, fmt::format("{} NUMA nodes", nodes),
                      "memory of another node is slower: bind each rank to one",
                      "numactl --cpunodebind=0 --membind=0 ./moetune VERB")};
  if (files.number("/proc/sys/kernel/numa_balancing").value_or(0) != 0)
    found.push_back(kCpu(Level::note, "NUMA balancing on", "the kernel moves pages while something is timed",
                         "sudo sysctl kernel.numa_balancing=0"));
  return found;
}

/// Returns how many cores this process may run on.
int64_t allowed_cores(const SystemFiles& files) {
  const auto list = value_of_key(files.text("/proc/self/status").value_or(""), "Cpus_allowed_list");
  return std::min(count_of_list(list.value_or("")).value_or(online_cores(files)), online_cores(files));
}

Finding affinity(const SystemFiles& files) {
  const int64_t online = online_cores(files), allowed = allowed_cores(files);
  if (allowed == online) return kCpu(Level::ok, fmt::format("may run on all {} cores", online), "as on the whole");
  return kCpu(Level::note, fmt::format("may run on {} of {} cores", allowed, online),
              "figures are of these cores alone", fmt::format("taskset -c 0-{} ./moetune VERB", online - 1));
}

Finding quota(const SystemFiles& files) {
  const auto quota = cpu_quota(files);
  const auto allowed = static_cast<double>(allowed_cores(files));
  if (!quota || *quota >= allowed) return kCpu(Level::ok, "no limit of cores' time", "threads are not stopped");
  return kCpu(Level::warn, fmt::format("control group: the time of {:.3g} of {} cores", *quota, allowed),
              "threads are stopped once it is used up, for milliseconds",
              "docker update --cpus N CONTAINER  (Kubernetes: limits.cpu; systemd: CPUQuota=)");
}

Finding guest(const SystemFiles& files) {
  const auto flags = words_in(value_of_key(files.text("/proc/cpuinfo").value_or(""), "flags").value_or(""));
  if (std::ranges::find(flags, "hypervisor") == flags.end() && !files.has("/sys/hypervisor/type"))
    return kCpu(Level::ok, "no virtual machine that shows", "nobody else has these cores");
  return kCpu(Level::note, "a virtual machine", "its host may give cores and links to others");
}

Finding container(const SystemFiles& files) {
  const std::string groups = files.text("/proc/1/cgroup").value_or("");
  const bool inside = files.has("/.dockerenv") || files.has("/run/.containerenv") ||
                      files.has("/run/systemd/container") ||
                      std::ranges::any_of(std::initializer_list<const char*>{"docker", "kubepods", "containerd", "lxc"},
                                          [&](const char* name) { return groups.find(name) != std::string::npos; });
  if (!inside) return kCpu(Level::ok, "no container that shows", "all that runs here is seen");
  return kCpu(Level::note, "a container", "what runs outside takes time, and is not seen from here");
}

}  // namespace

Findings cpu_findings(const SystemFiles& files) {
  Findings all{governor(files), affinity(files), quota(files), guest(files), container(files)};
  for (const auto probe : {boost, hyper_threads, numa})
    for (Finding& one : probe(files)) all.push_back(std::move(one));
  return all;
}

}  // namespace moe::doctor
