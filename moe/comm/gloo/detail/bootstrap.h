#pragma once
// Exchanges the identities of a run's processes: who they are, whether they run the same job, which share a node and
// how to reach them.
#include <string>
#include <vector>

#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/store/store.h"

namespace moe::gloo {

/// A process's description of itself for the others. Processes with equal `machine` can reach each other by loopback.
struct PeerInfo {
  std::string version, job, ranks_per_node, host, machine;
};
PeerInfo own_info(const Launch& launch, const GlooJob& job);

/// Returns the infos of all processes, by the launcher's ranks. A launcher that restarts ranks may give them the same
/// store, so rank 0 opens a new folder of keys, a "life", at each start; `store` is set to that folder. Throws
/// RankFailure naming a rank that is missing or differs from rank 0, BadInput if another process has this rank too.
std::vector<PeerInfo> bootstrap(std::shared_ptr<store::Store>& store, const Launch& launch, const PeerInfo& ours,
                                double timeout_s);

/// The numbers of the world's ranks: the ranks of a node are consecutive, and nodes are in the order of the launcher's
/// ranks.
struct Ranking {
  std::vector<int> world_rank;  // rank in the world, by the launcher's rank
  int nodes = 1, ranks_per_node = 1;
  bool one_machine = true;
};
/// Uses the machines as nodes if `ranks_per_node` is 0; throws BadInput naming the machines if they then hold different
/// numbers of ranks.
Ranking assign_ranks_by_node(const std::vector<PeerInfo>& peers, int ranks_per_node, const LaunchNames& names = {});

/// Sends all ranks the address of our interface (GLOO_SOCKET_IFNAME, else loopback if there is one machine, else the
/// one on the route to the store) and sets the addresses of `topology`. Throws BadInput if there is no such
/// interface.
void exchange_addresses(store::Store& store, const Launch& launch, const Ranking& ranking, WorldTopology& topology,
                        double timeout_s);

/// Returns one key per rank, "NAME/<launcher's rank>".
std::vector<std::string> rank_keys(const std::string& name, int ranks);

/// Publishes why this process can't start; the others end with that reason.
void refuse(store::Store& store, const std::string& why);
/// Leaves after a failed start. Rank 0 waits until all others that it has heard from have read the reason.
void part(store::Store& store, const Launch& launch);

}  // namespace moe::gloo
