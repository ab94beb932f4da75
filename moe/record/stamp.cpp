#include "moe/record/stamp.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "moe/base/check.h"

namespace moe {
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

/// The first line that a command prints; empty where it fails.
std::string first_line_of(const char* command) {
  std::string line;
  if (FILE* pipe = ::popen(command, "r")) {
    std::array<char, 256> buffer{};
    if (std::fgets(buffer.data(), buffer.size(), pipe)) line = buffer.data();
    if (::pclose(pipe) != 0) line.clear();
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return line;
}

Fields git_state() {
  // Of the source tree, not of where the program is run.
  const std::string state =
      first_line_of("git -C '" MOETUNE_SOURCE_DIR "' describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null");
  if (state.empty()) return {{"commit", "unknown"}};
  constexpr std::string_view kDirty = "-dirty";
  const bool dirty = state.ends_with(kDirty);
  return {{"commit", state.substr(0, state.size() - (dirty ? kDirty.size() : 0))}, {"dirty", dirty}};
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

Fields machine() {
  struct utsname os {};
  ::uname(&os);
  struct sysinfo memory {};
  ::sysinfo(&memory);
  return {{"cpu", cpu_name()},
          {"cores", int64_t{::sysconf(_SC_NPROCESSORS_ONLN)}},
          {"memory_bytes", static_cast<int64_t>(memory.totalram) * static_cast<int64_t>(memory.mem_unit)},
          {"os", fmt::format("{} {}", os.sysname, os.release)},
          {"architecture", std::string(os.machine)}};
}

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

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

RunHeader stamp_run(std::vector<std::string> argv, std::string config_digest) {
  RunHeader run;
  run.started = utc_now();
  run.argv = std::move(argv);
  run.config_digest = std::move(config_digest);
  run.git = git_state();
  run.compiler = compiler();
  run.libraries = {{"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)}};
  run.machine = machine();
  run.environment = environment();
  return run;
}

}  // namespace moe
