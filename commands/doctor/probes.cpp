#include "commands/doctor/probes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

#include "moe/base/config_files.h"
#include "moe/base/system_files.h"
#include "moe/base/units.h"

namespace moe::doctor {
namespace {

constexpr double kMaxClockOffsetS = 1e-3;  // larger offsets make times of different nodes incomparable

constexpr Area kClock{"clock"};

}  // namespace

Findings clock_findings(const SystemFiles& files, const std::optional<ClockState>& clock) {
  Findings all;
  const auto source = files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  if (source && (*source == "hpet" || *source == "acpi_pm"))
    all.push_back(kClock(Level::warn, "clock source " + *source, "reading the time takes microseconds, not tens of ns",
                         "cat /sys/devices/system/clocksource/clocksource0/available_clocksource"));
  else if (source && !source->empty())
    all.push_back(kClock(Level::ok, "clock source " + *source, "reading the time takes tens of ns"));
  if (!clock) return all;
  const std::string off = human_seconds(std::abs(clock->offset_s));
  if (!clock->synchronised)
    all.push_back(kClock(Level::note, "time is not synchronised", "timelines of several machines can't be compared",
                         "sudo systemctl start chrony"));
  else if (std::abs(clock->offset_s) > kMaxClockOffsetS)
    all.push_back(kClock(Level::note, off + " off the time server",
                         "timelines of several machines are shifted by this time", "chronyc tracking"));
  else
    all.push_back(kClock(Level::ok, fmt::format("synchronised, {} off", off),
                         "at most " + human_seconds(clock->max_error_s) + " by the kernel's own estimate"));
  return all;
}

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
                      fmt::format("numactl --cpunodebind=0 --membind=0 {} VERB", program_command()))};
  if (files.number("/proc/sys/kernel/numa_balancing").value_or(0) != 0)
    found.push_back(kCpu(Level::note, "NUMA balancing on", "the kernel moves pages while something is timed",
                         "sudo sysctl kernel.numa_balancing=0"));
  return found;
}

/// Returns the number of cores that this process may run on.
int64_t allowed_cores(const SystemFiles& files) {
  const auto list = value_of_key(files.text("/proc/self/status").value_or(""), "Cpus_allowed_list");
  return std::min(count_of_list(list.value_or("")).value_or(online_cores(files)), online_cores(files));
}

Finding affinity(const SystemFiles& files) {
  const int64_t online = online_cores(files), allowed = allowed_cores(files);
  if (allowed == online) return kCpu(Level::ok, fmt::format("may run on all {} cores", online), "the whole machine");
  return kCpu(Level::note, fmt::format("may run on {} of {} cores", allowed, online),
              "measurements only cover these cores",
              fmt::format("taskset -c 0-{} {} VERB", online - 1, program_command()));
}

Finding quota(const SystemFiles& files) {
  const auto quota = cpu_quota(files);
  const auto allowed = static_cast<double>(allowed_cores(files));
  if (!quota || *quota >= allowed) return kCpu(Level::ok, "no CPU quota", "threads are not paused");
  return kCpu(Level::warn, fmt::format("control group: the time of {:.3g} of {} cores", *quota, allowed),
              "threads pause for milliseconds when the quota is used up",
              "docker update --cpus N CONTAINER  (Kubernetes: limits.cpu; systemd: CPUQuota=)");
}

Finding virtualization(const SystemFiles& files) {
  const auto flags = words_in(value_of_key(files.text("/proc/cpuinfo").value_or(""), "flags").value_or(""));
  if (std::ranges::find(flags, "hypervisor") == flags.end() && !files.has("/sys/hypervisor/type"))
    return kCpu(Level::ok, "no sign of a virtual machine", "no other guest shares these cores");
  return kCpu(Level::note, "a virtual machine", "its host may give cores and links to others");
}

Finding container(const SystemFiles& files) {
  const std::string groups = files.text("/proc/1/cgroup").value_or("");
  const bool inside = files.has("/.dockerenv") || files.has("/run/.containerenv") ||
                      files.has("/run/systemd/container") ||
                      std::ranges::any_of(std::initializer_list<const char*>{"docker", "kubepods", "containerd", "lxc"},
                                          [&](const char* name) { return groups.find(name) != std::string::npos; });
  if (!inside) return kCpu(Level::ok, "no sign of a container", "all processes of the machine are visible");
  return kCpu(Level::note, "a container", "processes outside of it take time, but are not visible");
}

}  // namespace

Findings cpu_findings(const SystemFiles& files) {
  Findings all{governor(files), affinity(files), quota(files), virtualization(files), container(files)};
  for (const auto probe : {boost, hyper_threads, numa})
    for (Finding& one : probe(files)) all.push_back(std::move(one));
  return all;
}

namespace {

constexpr double kBusyShare = 0.05;                         // share of all cores that disturbs a measurement
constexpr double kStolenShare = 0.005;                      // the same for stolen time
constexpr double kBusyProcess = 0.05, kHeavyProgram = 0.2;  // shares of one core
constexpr double kPressure = 0.01, kHighPressure = 0.05;    // shares of the time
constexpr size_t kShownPrograms = 3;

constexpr Area kLoad{"load"};

struct Process {
  std::string name;
  double ticks = 0;
};
using Processes = std::map<std::string, Process>;  // by process id

std::string printable(std::string name) {
  std::erase_if(name, [](unsigned char c) { return c < ' ' || c > '~'; });
  return name.starts_with('/') ? name.substr(name.rfind('/') + 1) : name;  // "kworker/0:1" is not a path
}

// Reads "ID (NAME) STATE ...": user and system time are fields 14 and 15; a name can hold blanks and parentheses.
Processes processes(const SystemFiles& files) {
  Processes found;
  for (const std::string& id : files.names("/proc")) {
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = files.text("/proc/" + id + "/stat").value_or("");
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close < open) continue;
    const auto words = words_in(std::string_view(stat).substr(close + 1));
    if (words.size() < 13) continue;
    const auto user = leading_number(words[11]), system = leading_number(words[12]);
    if (user && system) found[id] = {printable(stat.substr(open + 1, close - open - 1)), *user + *system};
  }
  return found;
}

/// The processes of one name together.
struct Program {
  std::string name;
  int processes = 0;
  double cores = 0;  // cores that they kept busy
};

/// Returns the programs that were busy between the two samples, the busiest first. `ticks`: clock ticks of one core.
std::vector<Program> busiest_programs(const Processes& before, const Processes& after, double ticks) {
  const std::string own = std::to_string(::getpid());
  std::vector<Program> busy;
  for (const auto& [id, process] : after) {
    const auto was = before.find(id);
    const double cores = was == before.end() ? 0 : (process.ticks - was->second.ticks) / ticks;
    if (cores < kBusyProcess || id == own) continue;
    auto known = std::ranges::find(busy, process.name, &Program::name);
    if (known == busy.end()) known = busy.insert(busy.end(), Program{process.name});
    ++known->processes;
    known->cores += cores;
  }
  std::ranges::stable_sort(busy, std::greater{}, &Program::cores);
  return busy;
}

Finding processes_finding(const std::vector<Program>& busy) {
  if (busy.empty()) return kLoad(Level::ok, "no busy process", "no visible process competes for the cores");
  std::string text;
  for (size_t i = 0; i < std::min(busy.size(), kShownPrograms); ++i)
    text += fmt::format("{}{}{} {:.0f} %", i > 0 ? ", " : "",
                        busy[i].processes > 1 ? fmt::format("{} x ", busy[i].processes) : "", busy[i].name,
                        100 * busy[i].cores);
  if (busy.size() > kShownPrograms) text += ", ...";
  return kLoad(busy.front().cores >= kHeavyProgram ? Level::warn : Level::note, "of a core: " + text,
               "other programs take cores, caches and memory bandwidth", "top");
}

Findings times(const CpuTimes& before, const CpuTimes& after) {
  const double total = after.total() - before.total();
  const double busy = (after.busy - before.busy) / total, stolen = (after.steal - before.steal) / total;
  Findings all;
  all.push_back(busy > kBusyShare
                    ? kLoad(Level::warn, fmt::format("{:.0f} % of all cores busy", 100 * busy),
                            "timings have to share the cores", "top")
                    : kLoad(Level::ok, fmt::format("{:.1f} % of all cores busy", 100 * busy), "the cores are free"));
  all.push_back(stolen > kStolenShare
                    ? kLoad(Level::warn, fmt::format("{:.1f} % of the time stolen", 100 * stolen),
                            "the host gave cores to other guests, so some times are too long",
                            "ask for a dedicated machine or dedicated cores")
                    : kLoad(Level::ok, fmt::format("{:.1f} % of the time stolen", 100 * std::max(stolen, 0.0)),
                            "the host gives it all of the time"));
  return all;
}

Findings pressures(const SystemFiles& files) {
  struct Row {
    const char *resource, *meaning;
  };
  constexpr Row kRows[] = {{"cpu", "threads wait for a core"},
                           {"memory", "threads wait for pages that were reclaimed"},
                           {"io", "threads wait for the disk"}};
  Findings all;
  for (const auto& [resource, meaning] : kRows)
    if (const auto share = pressure_of(files, resource))
      all.push_back(kLoad(*share >= kHighPressure ? Level::warn
                          : *share >= kPressure   ? Level::note
                                                  : Level::ok,
                          fmt::format("{} pressure {:.1f} % of the last 10 s", resource, 100 * *share),
                          *share >= kPressure ? meaning : "nothing waits for it"));
  return all;
}

Findings load_average(const SystemFiles& files) {
  const auto load = files.number("/proc/loadavg");
  if (!load) return {};
  const auto cores = static_cast<double>(online_cores(files));
  const Level level = *load >= cores / 2 ? Level::warn : *load >= 0.5 ? Level::note : Level::ok;
  return {
      kLoad(level, fmt::format("load average {:.2f} on {} cores", *load, cores),
            level == Level::ok ? "the last minute was quiet" : "average number of threads running or waiting to run")};
}

}  // namespace

Findings load_findings(const SystemFiles& files, const std::function<void()>& wait) {
  Findings all = load_average(files);
  for (Finding& one : pressures(files)) all.push_back(std::move(one));
  const auto before = cpu_times(files);
  const Processes running = processes(files);
  wait();
  const auto after = cpu_times(files);
  if (!before || !after || !(after->total() > before->total())) {
    all.push_back(kLoad(Level::note, "busy times of cores are unknown", "load by other programs is not detected"));
    return all;
  }
  const double ticks = (after->total() - before->total()) / static_cast<double>(online_cores(files));
  all.push_back(processes_finding(busiest_programs(running, processes(files), ticks)));
  for (Finding& one : times(*before, *after)) all.push_back(std::move(one));
  return all;
}

namespace {

constexpr double kLowShare = 0.1;  // share of the memory, or of a limit
constexpr double kSwapNoticed = 64.0 * kMiB;

constexpr Area kMemory{"memory"};

Findings free_memory(const SystemFiles& files) {
  const auto total = memory_bytes(files, "MemTotal"), free = memory_bytes(files, "MemAvailable");
  if (!total || !free || *total <= 0) return {};
  const std::string found = fmt::format("{} of {} free", human_bytes(*free), human_bytes(*total));
  if (*free < kLowShare * *total)
    return {kMemory(Level::warn, found, "layers may not fit, and pages are reclaimed during runs",
                    "ps -eo rss,comm --sort -rss | head")};
  return {kMemory(Level::ok, found, "nothing has to be reclaimed")};
}

Findings limit(const SystemFiles& files) {
  const auto limit = memory_limit(files);
  if (!limit || limit->limit_bytes >= memory_bytes(files, "MemTotal").value_or(limit->limit_bytes + 1))
    return {kMemory(Level::ok, "no memory limit", "all of the machine's memory")};
  const double free = limit->limit_bytes - limit->used_bytes;
  const std::string found = fmt::format("control group: at most {}, {} used", human_bytes(limit->limit_bytes),
                                        human_bytes(limit->used_bytes));
  if (free < kLowShare * limit->limit_bytes)
    return {kMemory(Level::warn, found, "programs that exceed it are killed; near the limit, pages are reclaimed",
                    "docker update --memory N CONTAINER  (Kubernetes: limits.memory; systemd: MemoryMax=)")};
  return {kMemory(Level::note, found, "programs that exceed it are killed")};
}

Findings swap(const SystemFiles& files) {
  const auto total = memory_bytes(files, "SwapTotal"), free = memory_bytes(files, "SwapFree");
  if (!total || !free) return {};
  const double used = *total - *free;
  if (used <= 0) return {kMemory(Level::ok, "no swap in use", "no page is on a disk")};
  return {kMemory(used > kSwapNoticed ? Level::warn : Level::note, human_bytes(used) + " swapped out",
                  "the first touch of such a page waits for the disk", "sudo swapoff -a")};
}

/// Returns the word in brackets of a list such as "always [madvise] never".
std::string bracketed_choice(const std::string& words) {
  const size_t open = words.find('['), close = words.find(']', std::min(open, words.size()));
  return open == std::string::npos || close == std::string::npos ? "" : words.substr(open + 1, close - open - 1);
}

Findings huge_pages(const SystemFiles& files) {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  const std::string enabled = bracketed_choice(files.text(folder + "enabled").value_or(""));
  const std::string defrag = bracketed_choice(files.text(folder + "defrag").value_or(""));
  if (enabled.empty()) return {};
  Findings all;
  if (enabled == "always")
    all.push_back(kMemory(Level::note, "transparent huge pages: always",
                          "large tensors gain, but a daemon moves pages during runs",
                          "echo madvise | sudo tee " + folder + "enabled"));
  else
    all.push_back(
        kMemory(Level::ok, "transparent huge pages: " + enabled, "only for programs that ask for them, if at all"));
  if (enabled != "never" && defrag == "always")
    all.push_back(kMemory(Level::note, "huge pages: defrag always",
                          "an allocation may wait until pages have been moved",
                          "echo madvise | sudo tee " + folder + "defrag"));
  return all;
}

}  // namespace

Findings memory_findings(const SystemFiles& files) {
  Findings all;
  for (const auto probe : {free_memory, limit, swap, huge_pages})
    for (Finding& one : probe(files)) all.push_back(std::move(one));
  return all;
}

namespace {

struct Variable {
  std::string_view name, meaning;
  Level level = Level::note;
  std::string_view harmless = {};  // values without an effect, separated by blanks
};

constexpr Level kWarn = Level::warn;
// Variables in the documentation of NCCL, PyTorch, CUDA, OpenMP, GNU's and Intel's OpenMP, MKL, oneDNN and glibc.
constexpr std::array kVariables{
    Variable{"NCCL_DEBUG", "NCCL writes a log while it works", kWarn, " VERSION WARN "},
    Variable{"NCCL_DEBUG_SUBSYS", "parts of NCCL that are logged"},
    Variable{"NCCL_DEBUG_FILE", "file of NCCL's log"},
    Variable{"NCCL_CHECK_POINTERS", "every call checks its pointers", kWarn, " 0 "},
    Variable{"NCCL_LAUNCH_MODE", "how kernels of several GPUs are launched"},
    Variable{"NCCL_P2P_DISABLE", "GPUs exchange through host memory, not by NVLink or PCIe", kWarn, " 0 "},
    Variable{"NCCL_P2P_LEVEL", "how near GPUs must be to exchange directly"},
    Variable{"NCCL_SHM_DISABLE", "ranks of a node exchange over the network, not by shared memory", kWarn, " 0 "},
    Variable{"NCCL_IB_DISABLE", "TCP instead of InfiniBand or RoCE", kWarn, " 0 "},
    Variable{"NCCL_NET_GDR_LEVEL", "how near a GPU and a network card must be for GPUDirect"},
    Variable{"NCCL_NET", "which network NCCL uses"},
    Variable{"NCCL_SOCKET_IFNAME", "which interfaces NCCL uses"},
    Variable{"NCCL_SOCKET_NTHREADS", "threads per TCP connection"},
    Variable{"NCCL_NSOCKS_PERTHREAD", "sockets per thread"},
    Variable{"NCCL_IB_HCA", "which InfiniBand devices NCCL uses"},
    Variable{"NCCL_IB_GID_INDEX", "index of a RoCE device's address"},
    Variable{"NCCL_IB_TC", "traffic class of packets"},
    Variable{"NCCL_IB_QPS_PER_CONNECTION", "queue pairs per connection"},
    Variable{"NCCL_CROSS_NIC", "whether a ring may send and receive by different network cards"},
    Variable{"NCCL_ALGO", "NCCL does not choose ring or tree by size"},
    Variable{"NCCL_PROTO", "NCCL does not choose its protocol by size"},
    Variable{"NCCL_MAX_CTAS", "most SMs that communication may use"},
    Variable{"NCCL_MIN_CTAS", "fewest SMs that communication uses"},
    Variable{"NCCL_MAX_NCHANNELS", "most channels, one SM each"},
    Variable{"NCCL_MIN_NCHANNELS", "fewest channels, one SM each"},
    Variable{"NCCL_NTHREADS", "threads per block of NCCL's kernels"},
    Variable{"NCCL_BUFFSIZE", "bytes of the buffers between two GPUs"},
    Variable{"NCCL_TOPO_FILE", "NCCL reads the machine's topology from a file"},
    Variable{"NCCL_NVLS_ENABLE", "whether NVSwitch computes sums (NVLink SHARP)"},
    Variable{"NCCL_COLLNET_ENABLE", "whether network switches compute sums (SHARP)"},
    Variable{"NCCL_CUMEM_ENABLE", "how NCCL allocates memory"},
    Variable{"TORCH_NCCL_BLOCKING_WAIT", "waiting blocks the thread", kWarn, " 0 "},
    Variable{"TORCH_DISTRIBUTED_DEBUG", "every collective is checked or logged", kWarn, " OFF "},
    Variable{"TORCH_CPP_LOG_LEVEL", "LibTorch writes a log", kWarn, " WARNING ERROR FATAL "},
    Variable{"CUDA_LAUNCH_BLOCKING", "every launch waits for its kernel: nothing overlaps", kWarn, " 0 "},
    Variable{"CUDA_DEVICE_MAX_CONNECTIONS", "1: kernels of all streams start in order of launch"},
    Variable{"CUDA_VISIBLE_DEVICES", "which GPUs are visible"},
    Variable{"NVIDIA_TF32_OVERRIDE", "0: float32 GEMMs never take TF32"},
    Variable{"GLOO_SOCKET_IFNAME", "which interface Gloo uses"},
    Variable{"OMP_NUM_THREADS", "threads of a rank"},
    Variable{"OMP_DYNAMIC", "the number of threads may change between regions", kWarn, " false FALSE 0 "},
    Variable{"OMP_PROC_BIND", "whether threads stay on their cores"},
    Variable{"OMP_PLACES", "which cores threads stay on"},
    Variable{"OMP_WAIT_POLICY", "whether idle threads spin or sleep"},
    Variable{"OMP_SCHEDULE", "how loops are divided among threads"},
    Variable{"OMP_DISPLAY_ENV", "OpenMP prints its settings once", Level::ok},
    Variable{"GOMP_CPU_AFFINITY", "which cores threads stay on"},
    Variable{"GOMP_SPINCOUNT", "how long idle threads spin"},
    Variable{"KMP_AFFINITY", "which cores threads stay on"},
    Variable{"KMP_BLOCKTIME", "how long idle threads spin, in ms"},
    Variable{"MKL_NUM_THREADS", "threads of MKL"},
    Variable{"MKL_DYNAMIC", "whether MKL may take fewer threads"},
    Variable{"MKL_VERBOSE", "MKL times and logs every call", kWarn, " 0 "},
    Variable{"MKL_CBWR", "MKL prefers reproducible results to speed"},
    Variable{"MKL_ENABLE_INSTRUCTIONS", "MKL does not use all CPU instructions"},
    Variable{"DNNL_VERBOSE", "oneDNN logs every call", kWarn, " 0 none "},
    Variable{"ONEDNN_VERBOSE", "oneDNN logs every call", kWarn, " 0 none "},
    Variable{"ONEDNN_MAX_CPU_ISA", "oneDNN does not use all CPU instructions"},
    Variable{"OPENBLAS_NUM_THREADS", "threads of OpenBLAS"},
    Variable{"MALLOC_ARENA_MAX", "threads share arenas of memory"},
};

constexpr std::array<std::string_view, 4> kFamilies{"NCCL_", "GLOO_", "OMP_", "MKL_"};

// Returns the value if it is printable, short and not a path.
std::string printable_value(const std::string& value) {
  constexpr size_t kMax = 24;
  const bool path = value.find('/') != std::string::npos;
  const bool plain = std::ranges::all_of(value, [](unsigned char c) { return c >= ' ' && c <= '~'; });
  return path || !plain || value.size() > kMax ? "is set" : fmt::format("= {}", value);
}

}  // namespace

Findings variable_findings(const Environment& environment) {
  Findings all;
  for (const auto& [name, value] : environment) {
    if (value.empty()) continue;
    const auto* known = std::ranges::find(kVariables, name, &Variable::name);
    const bool family = std::ranges::any_of(kFamilies, [&, &of = name](auto start) { return of.starts_with(start); });
    if (known == kVariables.end() && !family) continue;
    Finding finding{Level::note, "variable", fmt::format("{} {}", name, printable_value(value)),
                    "an unknown variable; see the library's documentation", "unset " + name};
    if (known != kVariables.end()) {
      const bool harmless = known->harmless.find(fmt::format(" {} ", value)) != std::string_view::npos;
      finding.level = harmless ? Level::ok : known->level;
      finding.meaning = known->meaning;
    }
    if (finding.level != kWarn) finding.command.clear();  // possibly chosen on purpose
    all.push_back(std::move(finding));
  }
  if (all.empty())
    all.push_back({Level::ok, "variable", "no variable that changes speed", "libraries use their defaults"});
  return all;
}

}  // namespace moe::doctor
