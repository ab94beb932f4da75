#include "moe/record/stamp.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <link.h>
#include <sstream>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/file_text.h"
#include "moe/base/random.h"
#include "moe/base/version.h"
#include "moe/record/gpu_state.h"
#include "moe/record/machine.h"

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

// Reads "NAME=VERSION,.." of the build; a library that it was built without has no version.
Fields libraries() {
  Fields out;
  std::istringstream list(MOETUNE_LIBRARIES);
  for (std::string row; std::getline(list, row, ',');)
    if (const size_t equals = row.find('='); equals + 1 < row.size())
      out.set(row.substr(0, equals), row.substr(equals + 1));
  return out;
}

/// Returns the linker's digest of all that was linked, which no two programs share.
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
    return 1;  // the program is the first, and libraries have notes of their own
  };
  ::dl_iterate_phdr(note, &id);
  return id;
}

/// Returns a text that is never the same twice. It stands for the contents of a pipe, which are gone once read.
std::string read_once() {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return fmt::format("read once by {} at {}.{:09}", ::getpid(), now.tv_sec, now.tv_nsec);
}

std::string digest_of(const RunHeader& run, const Question& question) {
  std::string all;
  const auto add = [&](std::string_view text) { all += fmt::format("{}:{}", text.size(), text); };  // as what it is
  const auto add_fields = [&](const Fields& fields) {
    for (const auto& [name, value] : fields) {
      if (name == "CI") continue;  // who asks, not what
      add(name);
      add(scalar_text(value));
    }
    add("");
  };
  for (const size_t number : {static_cast<size_t>(run.schema), static_cast<size_t>(run.measurement),
                              question.asked.flags.size(), question.files.size()})
    add(fmt::format("{}", number));
  for (const std::string& flag : question.asked.flags) add(flag);
  for (const std::string& file : question.files)
    if (!file.empty()) add(file_crc(file).value_or(read_once()));
  for (const Fields* fields : {&run.ranks, &run.git, &run.libraries, &run.machine, &run.environment})
    add_fields(*fields);
  add(run.build);
  add(run.compiler);
  return fmt::format("{:016x}", stream_of(all));
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

RunHeader stamp_run(const Question& question) {
  RunHeader run;
  run.started = utc_now();
  run.argv = question.asked.argv;
  run.ranks = question.ranks;
  run.version = version();
  run.git = question.asked.built_from;
  run.build = build_id();
  run.compiler = compiler();
  run.libraries = libraries();
  run.machine = machine_of();
  run.conditions = conditions_now();
  run.environment = environment();
  run.config_digest = digest_of(run, question);
  return run;
}

}  // namespace moe
