#include "commands/shared/run/target.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/ranges.h>
#include <limits>

#include "commands/shared/selection.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/files.h"
#include "moe/base/system_files.h"
#include "moe/base/units.h"
#include "moe/device/cpu/cores.h"
#include "moe/device/device.h"
#include "moe/device/gpu_settings.h"
#include "moe/measure/layers/proxy.h"
#include "moe/prices/fit.h"
#include "moe/shape/model_file.h"
#include "moe/tensor/attention_heads.h"

namespace moe::commands {
namespace {

constexpr std::string_view kOnCuda = "-cuda";

Target unmeasured_target(std::string name, std::string source, int nodes, int ranks_per_node) {
  Target target;
  target.cluster.name = std::move(name);
  target.cluster.source = std::move(source);
  target.cluster.nodes = nodes;
  target.cluster.ranks_per_node = ranks_per_node;
  target.measured = false;
  return target;
}

// Returns a profile like find_profile(), whose error messages also list `host`.
Profile profile_of(const std::string& cluster) { return find_profile(cluster, {}, {std::string(kHostCluster)}); }

// Returns whether the name is that of a profile of this machine's threads on such a device.
bool is_own(std::string_view name, DeviceKind device) {
  if (name.ends_with(kFitted)) name.remove_suffix(kFitted.size());
  return name == fmt::format("{}{}", kHostCluster, device == DeviceKind::cuda ? kOnCuda : "");
}

Target thread_target(const std::string& cluster, DeviceKind device) {
  if (cluster == kHostCluster)
    return unmeasured_target(std::string(kHostCluster), "this machine's threads", measure::kProxyNodes,
                             measure::kProxyRanksPerNode);
  Target target{.cluster = profile_of(cluster)};
  const Profile& profile = target.cluster;
  target.emulated = !is_own(profile.name, device);
  require<BadInput>(
      target.emulated ||
          (profile.nodes == measure::kProxyNodes && profile.ranks_per_node == measure::kProxyRanksPerNode),
      "--cluster: found {} with {} nodes x {} ranks, expected {} x {} for {}, a profile of this machine's threads",
      cluster, profile.nodes, profile.ranks_per_node, measure::kProxyNodes, measure::kProxyRanksPerNode, profile.name);
  return target;
}

Target process_target(const std::string& cluster, const World& processes) {
  const WorldTopology& topology = processes.topology();
  const int nodes = topology.nodes, ranks_per_node = topology.ranks_per_node;
  if (cluster == kHostCluster)
    return unmeasured_target(fmt::format("{}-{}x{}", processes.backend(), nodes, ranks_per_node),
                             fmt::format("processes over {}", processes.backend()), nodes, ranks_per_node);
  Target target{.cluster = profile_of(cluster)};
  const Profile& profile = target.cluster;
  require<BadInput>(profile.nodes == nodes && profile.ranks_per_node == ranks_per_node,
                    "--cluster: found {} with {} nodes x {} ranks, expected {} x {}, as the processes have",
                    profile.name, profile.nodes, profile.ranks_per_node, nodes, ranks_per_node);
  return target;
}

// Returns the threads of each rank: an equal share of its cores. All ranks get the least share of any, because a layer
// is as fast as its slowest rank.
int shared_threads(const Target& target) {
  const std::vector<int> cores = cpu::usable_cores();
  const int ranks = target.cluster.nodes * target.cluster.ranks_per_node;
  cpu::CoreShare share{static_cast<int>(cores.size()), cpu_quota(), ranks, ranks > 1};
  World* processes = target.ranks.processes;
  if (processes == nullptr) return cpu::default_threads(share, std::getenv("OMP_NUM_THREADS"));
  const std::vector<std::string>& addresses = processes->topology().addresses;
  const auto rank = static_cast<size_t>(processes->local_ranks().front());
  const std::string place = fmt::format("{} {}", rank < addresses.size() ? addresses[rank] : "", fmt::join(cores, ","));
  share.sharers = static_cast<int>(std::ranges::count(gather(*processes, {place}), place));
  return static_cast<int>(target.ranks.min_over_processes(cpu::default_threads(share, std::getenv("OMP_NUM_THREADS"))));
}

int chosen_threads(const Target& target) {
  const int asked = target.ranks.threads;
  const bool on_gpu = target.ranks.device == DeviceKind::cuda;
  if (target.emulated || on_gpu) {
    require<BadInput>(asked <= 1, "--threads: found {}, expected 1 for ranks {}", asked,
                      on_gpu ? "on GPUs" : "that emulate a cluster");
    return 1;
  }
  return asked > 0 ? asked : shared_threads(target);
}

// Returns the fields of records about the ranks.
Fields fields_of(const Target& target) {
  const World* processes = target.ranks.processes;
  const bool computes = !target.emulated && target.ranks.device == DeviceKind::cpu;
  Fields threads;
  if (computes) threads.set("threads", int64_t{target.ranks.threads});
  const bool on_gpu = target.ranks.device == DeviceKind::cuda;
  if (processes == nullptr) return on_gpu ? gpu_fields(0) : threads;
  const WorldTopology& topology = processes->topology();
  Fields fields{{"backend", std::string(target.backend())},
                {"device", std::string(name_of(target.ranks.device))},
                {"ranks", int64_t{processes->ranks()}},
                {"nodes", int64_t{topology.nodes}},
                {"ranks_per_node", int64_t{topology.ranks_per_node}},
                {"interface", topology.interface}};
  if (computes) fields.set("threads", int64_t{target.ranks.threads});
  if (on_gpu)
    for (const auto& [name, value] : gpu_fields(topology.local_rank)) fields.set(name, value);
  for (const auto& [name, value] : processes->settings()) fields.set(name, value);
  return fields;
}

// Throws BadInput if a file has other contents on a rank than on rank 0, for example because a text was copied to one
// node only. Gradients of the ranks would differ.
void require_same_files(World& processes, std::vector<std::string> files) {
  std::erase(files, "");  // flags that were not given, which are the same on all ranks
  if (files.empty()) return;
  std::string mine;
  for (const std::string& file : files) mine += file_crc(file).value_or("") + '\n';
  const std::vector<std::string> all = gather(processes, {mine});
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    const auto differs =
        static_cast<size_t>(std::count(all[rank].begin(), std::ranges::mismatch(all[rank], all.front()).in1, '\n'));
    bad_input("{}: found other contents on rank {} than on rank 0, expected the same file on every rank",
              differs < files.size() ? files[differs] : "files", rank);
  }
}

}  // namespace

Fields gpu_fields(int local_rank) {
  Fields fields{{"device", std::string(name_of(DeviceKind::cuda))}};
  for (const auto& [name, value] : gpu_settings(local_rank)) fields.set(name, value);
  return fields;
}

RecordWriter Target::open_records(const std::string& path, const Invocation& invocation,
                                  std::vector<std::string> files) const {
  // make_device throws the reason why there is no GPU, before the file is opened.
  if (ranks.device == DeviceKind::cuda && gpu_count() == 0) make_device(DeviceKind::cuda);
  if (ranks.attention == AttentionBy::torch) open_torch_cuda();
  files.push_back(cluster.file);
  if (ranks.processes != nullptr) require_same_files(*ranks.processes, files);
  if (!is_leader()) return RecordWriter(path);
  Fields fields = fields_of(*this);
  if (ranks.attention == AttentionBy::torch) fields.set("attention", "torch");
  return RecordWriter(path, {invocation, std::move(files), fields});
}

bool Target::leader_value(bool own) const {
  return ranks.processes ? broadcast(*ranks.processes, own ? "y" : "n") == "y" : own;
}

std::string Target::file_name() const {
  const bool said = cluster.name.ends_with(kOnCuda);
  return ranks.device == DeviceKind::cuda && !said ? cluster.name + std::string(kOnCuda) : cluster.name;
}

std::string Target::place() const {
  if (emulated || ranks.device == DeviceKind::cuda) return cluster.name;
  return fmt::format("{}, {} a rank", cluster.name, counted(ranks.threads, "thread"));
}

void broadcast_finished_cases(const Target& target, RecordWriter& writer) {
  if (target.ranks.processes == nullptr) return;
  const std::string lines = broadcast(*target.ranks.processes, writer.finished_case_lines());
  if (!target.is_leader()) writer.add_finished_cases(lines);
}

measure::BenchRanks ranks_of(const RunOptions& options, World* processes) {
  return {processes, options.device, options.threads, options.attention};
}

Target target_of(const std::string& cluster, const measure::BenchRanks& ranks) {
  Target target = ranks.processes ? process_target(cluster, *ranks.processes) : thread_target(cluster, ranks.device);
  target.ranks = ranks;
  require<BadInput>(ranks.attention == AttentionBy::own || ranks.device == DeviceKind::cuda,
                    "--attention: found torch with --device cpu, expected --device cuda, because attention on CPUs "
                    "always uses LibTorch");
  target.ranks.threads = chosen_threads(target);
  if (ranks.device == DeviceKind::cuda && !target.measured) target.cluster.name += kOnCuda;
  return target;
}

double free_bytes(const measure::BenchRanks& ranks) {
  if (ranks.device == DeviceKind::cuda) {
    const int gpu = ranks.processes ? ranks.processes->topology().local_rank : 0;
    return ranks.min_over_processes(static_cast<double>(free_gpu_bytes(gpu)));
  }
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  return ranks.min_over_processes(memory_bytes(SystemFiles(), "MemAvailable").value_or(kUnknown));
}

int64_t ranks_sharing_memory(const measure::BenchRanks& ranks, int64_t all) {
  if (ranks.processes == nullptr) return all;
  if (ranks.device == DeviceKind::cuda) return ranks.processes->backend() == kNcclOnOneGpu ? all : 1;
  const std::vector<std::string>& addresses = ranks.processes->topology().addresses;
  const auto own = static_cast<size_t>(ranks.processes->local_ranks().front());
  return own < addresses.size() ? std::ranges::count(addresses, addresses[own]) : all;
}

}  // namespace moe::commands
