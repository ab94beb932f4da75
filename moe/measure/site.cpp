#include "moe/measure/site.h"

#include "moe/base/check.h"
#include "moe/measure/proxy.h"
#include "verbs/selection.h"

namespace moe {
namespace {

Site unmeasured(std::string name, std::string source, int nodes, int ranks_per_node) {
  Site site;
  site.cluster.name = std::move(name);
  site.cluster.source = std::move(source);
  site.cluster.nodes = nodes;
  site.cluster.ranks_per_node = ranks_per_node;
  site.measured = false;
  return site;
}

Site of_threads(const std::string& cluster) {
  if (cluster == kHostCluster)
    return unmeasured(std::string(kHostCluster), "this machine's threads", kProxyNodes, kProxyRanksPerNode);
  return {.cluster = find_profile(cluster), .emulated = true};
}

Site of_processes(const std::string& cluster, World& processes) {
  const WorldTopology& topology = processes.topology();
  const int nodes = topology.nodes, ranks_per_node = topology.ranks_per_node;
  Site site = unmeasured(fmt::format("{}-{}x{}", processes.backend(), nodes, ranks_per_node),
                         fmt::format("processes over {}", processes.backend()), nodes, ranks_per_node);
  site.processes = &processes;
  if (cluster == kHostCluster) return site;
  site.cluster = find_profile(cluster);
  site.measured = true;
  const Profile& profile = site.cluster;
  require<BadInput>(profile.nodes == nodes && profile.ranks_per_node == ranks_per_node,
                    "--cluster: {} is of {} nodes x {} ranks, found processes on {} x {}", profile.name, profile.nodes,
                    profile.ranks_per_node, nodes, ranks_per_node);
  return site;
}

}  // namespace

Fields Site::ranks() const {
  if (processes == nullptr) return {};
  const WorldTopology& topology = processes->topology();
  Fields ranks{{"backend", std::string(backend())},
               {"device", std::string(name_of(device))},
               {"ranks", int64_t{processes->ranks()}},
               {"nodes", int64_t{topology.nodes}},
               {"ranks_per_node", int64_t{topology.ranks_per_node}},
               {"interface", topology.interface}};
  for (const auto& [name, value] : processes->settings()) ranks.set(name, value);
  return ranks;
}

void share_done(const Site& site, RecordWriter& writer) {
  if (site.processes == nullptr) return;
  const std::string lines = broadcast(*site.processes, writer.done_lines());
  if (!site.leads()) writer.take_done(lines);
}

Site site_of(const std::string& cluster, World* processes, DeviceKind device) {
  Site site = processes ? of_processes(cluster, *processes) : of_threads(cluster);
  site.device = device;
  if (device == DeviceKind::cuda && !site.measured) site.cluster.name += "-cuda";
  return site;
}

}  // namespace moe
