#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "doctor/probes.h"

namespace moe::doctor {
namespace {

struct Variable {
  std::string_view name, meaning;
  Level level = Level::note;
  std::string_view harmless = {};  // values, between blanks, that change nothing
};

constexpr Level kWarn = Level::warn;
// Lists what the pages of NCCL, PyTorch, CUDA, OpenMP, GNU's and Intel's OpenMP, MKL, oneDNN and glibc document.
constexpr std::array kVariables{
    Variable{"NCCL_DEBUG", "NCCL writes a log while it works", kWarn, " VERSION WARN "},
    Variable{"NCCL_DEBUG_SUBSYS", "what NCCL's log is of"},
    Variable{"NCCL_DEBUG_FILE", "where NCCL's log goes"},
    Variable{"NCCL_CHECK_POINTERS", "every call checks its pointers", kWarn, " 0 "},
    Variable{"NCCL_LAUNCH_MODE", "how kernels of several GPUs are launched"},
    Variable{"NCCL_P2P_DISABLE", "GPUs exchange over the host's memory, not NVLink or PCIe", kWarn, " 0 "},
    Variable{"NCCL_P2P_LEVEL", "how near GPUs must be to exchange directly"},
    Variable{"NCCL_SHM_DISABLE", "no shared memory inside a node: over the network", kWarn, " 0 "},
    Variable{"NCCL_IB_DISABLE", "no InfiniBand or RoCE: over TCP", kWarn, " 0 "},
    Variable{"NCCL_NET_GDR_LEVEL", "how near a GPU and a network card must be for GPUDirect"},
    Variable{"NCCL_NET", "which network NCCL uses"},
    Variable{"NCCL_SOCKET_IFNAME", "which interfaces NCCL uses"},
    Variable{"NCCL_SOCKET_NTHREADS", "threads a TCP connection"},
    Variable{"NCCL_NSOCKS_PERTHREAD", "sockets a thread"},
    Variable{"NCCL_IB_HCA", "which InfiniBand devices NCCL uses"},
    Variable{"NCCL_IB_GID_INDEX", "which address of a RoCE device"},
    Variable{"NCCL_IB_TC", "traffic class of packets"},
    Variable{"NCCL_IB_QPS_PER_CONNECTION", "queue pairs a connection"},
    Variable{"NCCL_CROSS_NIC", "whether rings may leave by another card than they came"},
    Variable{"NCCL_ALGO", "NCCL does not choose ring or tree by size"},
    Variable{"NCCL_PROTO", "NCCL does not choose its protocol by size"},
    Variable{"NCCL_MAX_CTAS", "at most so many SMs for communication"},
    Variable{"NCCL_MIN_CTAS", "at least so many SMs for communication"},
    Variable{"NCCL_MAX_NCHANNELS", "at most so many channels, each an SM"},
    Variable{"NCCL_MIN_NCHANNELS", "at least so many channels, each an SM"},
    Variable{"NCCL_NTHREADS", "threads an SM of NCCL's kernels"},
    Variable{"NCCL_BUFFSIZE", "bytes of the buffers between two GPUs"},
    Variable{"NCCL_TOPO_FILE", "NCCL takes the machine to be what a file says"},
    Variable{"NCCL_NVLS_ENABLE", "whether NVSwitch sums (NVLink SHARP)"},
    Variable{"NCCL_COLLNET_ENABLE", "whether switches of the network sum (SHARP)"},
    Variable{"NCCL_CUMEM_ENABLE", "how NCCL takes memory"},
    Variable{"TORCH_NCCL_BLOCKING_WAIT", "waiting blocks the thread", kWarn, " 0 "},
    Variable{"TORCH_DISTRIBUTED_DEBUG", "every collective is checked or logged", kWarn, " OFF "},
    Variable{"TORCH_CPP_LOG_LEVEL", "LibTorch writes a log", kWarn, " WARNING ERROR FATAL "},
    Variable{"CUDA_LAUNCH_BLOCKING", "every launch waits for its kernel: nothing overlaps", kWarn, " 0 "},
    Variable{"CUDA_DEVICE_MAX_CONNECTIONS", "1: kernels of all streams start in order of launch"},
    Variable{"CUDA_VISIBLE_DEVICES", "which GPUs there are"},
    Variable{"NVIDIA_TF32_OVERRIDE", "0: float32 GEMMs never take TF32"},
    Variable{"GLOO_SOCKET_IFNAME", "which interface Gloo uses"},
    Variable{"OMP_NUM_THREADS", "threads of a rank"},
    Variable{"OMP_DYNAMIC", "the number of threads may change between regions", kWarn, " false FALSE 0 "},
    Variable{"OMP_PROC_BIND", "whether threads stay on their cores"},
    Variable{"OMP_PLACES", "which cores threads stay on"},
    Variable{"OMP_WAIT_POLICY", "whether idle threads spin or sleep"},
    Variable{"OMP_SCHEDULE", "how loops are cut"},
    Variable{"OMP_DISPLAY_ENV", "OpenMP prints its settings once", Level::ok},
    Variable{"GOMP_CPU_AFFINITY", "which cores threads stay on"},
    Variable{"GOMP_SPINCOUNT", "how long idle threads spin"},
    Variable{"KMP_AFFINITY", "which cores threads stay on"},
    Variable{"KMP_BLOCKTIME", "how long idle threads spin, in ms"},
    Variable{"MKL_NUM_THREADS", "threads of MKL"},
    Variable{"MKL_DYNAMIC", "whether MKL may take fewer threads"},
    Variable{"MKL_VERBOSE", "MKL times and logs every call", kWarn, " 0 "},
    Variable{"MKL_CBWR", "MKL gives up speed for equal results"},
    Variable{"MKL_ENABLE_INSTRUCTIONS", "MKL leaves instructions unused"},
    Variable{"DNNL_VERBOSE", "oneDNN logs every call", kWarn, " 0 none "},
    Variable{"ONEDNN_VERBOSE", "oneDNN logs every call", kWarn, " 0 none "},
    Variable{"ONEDNN_MAX_CPU_ISA", "oneDNN leaves instructions unused"},
    Variable{"OPENBLAS_NUM_THREADS", "threads of OpenBLAS"},
    Variable{"MALLOC_ARENA_MAX", "threads share arenas of memory"},
};

constexpr std::array<std::string_view, 4> kFamilies{"NCCL_", "GLOO_", "OMP_", "MKL_"};

// Returns the value where it is printable, short and no path.
std::string shown_value(const std::string& value) {
  constexpr size_t kMost = 24;
  const bool path = value.find('/') != std::string::npos;
  const bool plain = std::ranges::all_of(value, [](unsigned char c) { return c >= ' ' && c <= '~'; });
  return path || !plain || value.size() > kMost ? "is set" : fmt::format("= {}", value);
}

}  // namespace

Findings variable_findings(const Environment& environment) {
  Findings all;
  for (const auto& [name, value] : environment) {
    if (value.empty()) continue;
    const auto* known = std::ranges::find(kVariables, name, &Variable::name);
    const bool family = std::ranges::any_of(kFamilies, [&, &of = name](auto start) { return of.starts_with(start); });
    if (known == kVariables.end() && !family) continue;
    Finding finding{Level::note, "variable", fmt::format("{} {}", name, shown_value(value)),
                    "not known here: see its documentation", "unset " + name};
    if (known != kVariables.end()) {
      const bool harmless = known->harmless.find(fmt::format(" {} ", value)) != std::string_view::npos;
      finding.level = harmless ? Level::ok : known->level;
      finding.meaning = known->meaning;
    }
    if (finding.level != kWarn) finding.command.clear();  // a choice, perhaps meant
    all.push_back(std::move(finding));
  }
  if (all.empty()) all.push_back({Level::ok, "variable", "no variable that changes speed", "libraries choose"});
  return all;
}

}  // namespace moe::doctor
