#include "moe/record/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <link.h>
#include <map>
#include <numeric>
#include <sstream>
#include <sys/utsname.h>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/random.h"
#include "moe/base/system_files.h"
#include "moe/base/units.h"
#include "moe/base/version.h"
#include "moe/record/gpu_watch.h"

namespace moe {
namespace {

constexpr size_t kFirstCore = 4096;  // bytes of /proc/cpuinfo that contain the first core

/// Returns the processor's name or, because Arm kernels report no name, its implementer and part numbers.
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

/// Returns names with their counts: "7 x NVIDIA H200, NVIDIA A100".
std::string counted(const std::map<std::string, int>& names) {
  std::string text;
  for (const auto& [name, count] : names)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", count > 1 ? fmt::format("{} x ", count) : "", name);
  return text;
}

/// Returns the number of GPUs of each name, read from the driver's files without its library.
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
    // Virtual links have no device.
    if (!files.has(link + "/device") || files.text(link + "/operstate") != "up") continue;
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
  return fmt::format("{:016x}", random_stream_id(all));
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

namespace {

constexpr std::array kAllowedEnvironment{"OMP_NUM_THREADS",
                                         "MKL_NUM_THREADS",
                                         "OPENBLAS_NUM_THREADS",
                                         "CUDA_VISIBLE_DEVICES",
                                         "CUDA_LAUNCH_BLOCKING",
                                         "CUDA_DEVICE_MAX_CONNECTIONS",
                                         "NCCL_ALGO",
                                         "NCCL_PROTO",
                                         "NCCL_MAX_CTAS",
                                         "NCCL_MIN_CTAS",
                                         "NCCL_IB_DISABLE",
                                         "NCCL_P2P_DISABLE",
                                         "NCCL_SHM_DISABLE",
                                         "NCCL_SOCKET_IFNAME",
                                         "GLOO_SOCKET_IFNAME",
                                         "RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "SLURM_NTASKS",
                                         "SLURM_NNODES",
                                         "MALLOC_ARENA_MAX",
                                         "CI"};

Fields environment() {
  Fields out;
  for (const char* name : kAllowedEnvironment)
    if (const char* value = std::getenv(name)) out.set(name, std::string(value));
  return out;
}

std::string compiler() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

// Returns the libraries' versions from the build's list "NAME=VERSION,.."; a library without a version is not part of
// the build.
Fields libraries() {
  Fields out;
  std::istringstream list(MOETUNE_LIBRARIES);
  for (std::string row; std::getline(list, row, ',');)
    if (const size_t equals = row.find('='); equals + 1 < row.size())
      out.set(row.substr(0, equals), row.substr(equals + 1));
  return out;
}

/// Returns the build id, the linker's digest of the program, which differs between any two builds.
std::string build_id() {
  std::string id;
  const auto note = [](dl_phdr_info* object, size_t, void* out) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object->dlpi_phdr[i];
      if (part.p_type != PT_NOTE) continue;
      const size_t unit = std::max<size_t>(part.p_align, 4);
      const auto align = [&](size_t size) { return (size + unit - 1) / unit * unit; };
      const char* at = reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr);
      for (const char* end = at + part.p_memsz; at + sizeof(ElfW(Nhdr)) < end;) {
        const auto* header = reinterpret_cast<const ElfW(Nhdr)*>(at);
        const char* bytes = at + align(sizeof *header + header->n_namesz);
        if (bytes + header->n_descsz > end) break;
        if (header->n_type == NT_GNU_BUILD_ID)
          for (const char* b = bytes; b < bytes + header->n_descsz; ++b)
            *static_cast<std::string*>(out) += fmt::format("{:02x}", static_cast<unsigned char>(*b));
        at = bytes + align(header->n_descsz);
      }
    }
    return 1;  // stop after the first object, the program; libraries have build ids too
  };
  ::dl_iterate_phdr(note, &id);
  return id;
}

/// Returns a unique text to hash instead of the contents of a pipe, which can't be read twice.
std::string read_once() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return fmt::format("read once by {} at {}.{:09}", ::getpid(), now.tv_sec, now.tv_nsec);
}

std::string digest_of(const RunHeader& run, const RunInputs& inputs) {
  std::string all;
  // Each text follows its size.
  const auto add = [&](std::string_view text) { all += fmt::format("{}:{}", text.size(), text); };
  const auto add_fields = [&](const Fields& fields) {
    for (const auto& [name, value] : fields) {
      if (name == "CI") continue;  // depends only on who runs the command
      add(name);
      add(scalar_text(value));
    }
    add("");
  };
  for (const size_t number : {static_cast<size_t>(run.schema), static_cast<size_t>(run.measurement),
                              inputs.invocation.flags.size(), inputs.files.size()})
    add(fmt::format("{}", number));
  for (const std::string& flag : inputs.invocation.flags) add(flag);
  for (const std::string& file : inputs.files)
    if (!file.empty()) add(file_crc(file).value_or(read_once()));
  for (const Fields* fields : {&run.ranks, &run.git, &run.libraries, &run.machine, &run.environment})
    add_fields(*fields);
  add(run.build);
  add(run.compiler);
  return fmt::format("{:016x}", random_stream_id(all));
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

Fields conditions_now() {
  Fields conditions = conditions_of();
  if (uses_cuda())
    for (const auto& [name, value] : gpu_state(open_nvml().get())) conditions.set(name, value);
  return conditions;
}

std::string fitted_from(const std::string& records, const RunHeader& run, bool emulated) {
  std::string text = "fitted from " + records;
  const auto word = [&](size_t i) { return i < run.argv.size() ? run.argv[i] : std::string(); };
  if (word(1) == "import") return text + fmt::format(", imported {} from {}", run.started, word(2));
  if (!run.started.empty()) text += ", measured " + run.started;
  const Fields& machine = run.machine;
  if (machine.has("cpu") && machine.has("cores"))
    text += fmt::format(" on {} cores of {}", machine.whole("cores", records), machine.text("cpu", records));
  if (machine.has("fingerprint")) text += fmt::format(" (machine {})", machine.text("fingerprint", records));
  if (run.ranks.has("attention")) text += ", attention by LibTorch";
  return text + (emulated ? ", emulated" : "");
}

RunHeader stamp_run(const RunInputs& inputs) {
  RunHeader run;
  run.started = utc_now();
  run.argv = inputs.invocation.argv;
  run.ranks = inputs.ranks;
  run.version = version();
  run.git = inputs.invocation.built_from;
  run.build = build_id();
  run.compiler = compiler();
  run.libraries = libraries();
  run.machine = machine_of();
  run.conditions = conditions_now();
  run.environment = environment();
  run.config_digest = digest_of(run, inputs);
  return run;
}

}  // namespace moe
