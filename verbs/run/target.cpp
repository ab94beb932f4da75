#include "verbs/run/target.h"

#include "moe/base/check.h"
#include "moe/measure/layers/proxy.h"
#include "verbs/selection.h"

namespace moe {
namespace {

Target unmeasured(std::string name, std::string source, int nodes, int ranks_per_node) {
  Target target;
  target.cluster.name = std::move(name);
  target.cluster.source = std::move(source);
  target.cluster.nodes = nodes;
  target.cluster.ranks_per_node = ranks_per_node;
  target.measured = false;
  return target;
}

Target of_threads(const std::string& cluster) {
  if (cluster == kHostCluster)
    return unmeasured(std::string(kHostCluster), "this machine's threads", kProxyNodes, kProxyRanksPerNode);
  return {.cluster = find_profile(cluster), .emulated = true};
}

Target of_processes(const std::string& cluster, const World& processes) {
  const WorldTopology& topology = processes.topology();
  const int nodes = topology.nodes, ranks_per_node = topology.ranks_per_node;
  if (cluster == kHostCluster)
    return unmeasured(fmt::format("{}-{}x{}", processes.backend(), nodes, ranks_per_node),
                      fmt::format("processes over {}", processes.backend()), nodes, ranks_per_node);
  Target target{.cluster = find_profile(cluster)};
  const Profile& profile = target.cluster;
  require<BadInput>(profile.nodes == nodes && profile.ranks_per_node == ranks_per_node,
                    "--cluster: {} is of {} nodes x {} ranks, found processes on {} x {}", profile.name, profile.nodes,
                    profile.ranks_per_node, nodes, ranks_per_node);
  return target;
}

// Returns what records say of the processes.
Fields fields_of(const Target& target) {
  const World* processes = target.ranks.processes;
  if (processes == nullptr) return {};
  const WorldTopology& topology = processes->topology();
  Fields fields{{"backend", std::string(target.backend())},
                {"device", std::string(name_of(target.ranks.device))},
                {"ranks", int64_t{processes->ranks()}},
                {"nodes", int64_t{topology.nodes}},
                {"ranks_per_node", int64_t{topology.ranks_per_node}},
                {"interface", topology.interface}};
  for (const auto& [name, value] : processes->settings()) fields.set(name, value);
  return fields;
}

}  // namespace

RecordWriter Target::open_records(const std::string& path, const Asked& asked, std::vector<std::string> files) const {
  if (!leads()) return RecordWriter(path);
  files.push_back(cluster.file);
  return RecordWriter(path, {asked, std::move(files), fields_of(*this)});
}

void share_done(const Target& target, RecordWriter& writer) {
  if (target.ranks.processes == nullptr) return;
  const std::string lines = broadcast(*target.ranks.processes, writer.done_lines());
  if (!target.leads()) writer.take_done(lines);
}

Target target_of(const std::string& cluster, const BenchRanks& ranks) {
  Target target = ranks.processes ? of_processes(cluster, *ranks.processes) : of_threads(cluster);
  target.ranks = ranks;
  if (ranks.device == DeviceKind::cuda && !target.measured) target.cluster.name += "-cuda";
  return target;
}

}  // namespace moe
