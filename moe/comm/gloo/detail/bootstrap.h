#pragma once
// Exchanges the identities of a run's processes: who they are, whether they run the same job, which share a node and
// how to reach them.
#include <string>
#include <vector>

#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/store/store.h"

namespace moe::gloo {

/// A process as it describes itself to the others; two with equal `machine` can reach each other by loopback.
struct PeerInfo {
  std::string version, job, ranks_per_node, host, machine;
};
PeerInfo own_info(const Launch& launch, const GlooJob& job);

/// Returns the infos of all processes, by the launcher's ranks. A launcher that starts ranks anew may serve the same
/// store to them, so the ranks meet below a life that rank 0 begins, where `store` is left. Throws RankFailure naming
/// the rank that stayed away or differs from rank 0, BadInput if another process has our rank too.
std::vector<PeerInfo> bootstrap(std::shared_ptr<store::Store>& store, const Launch& launch, const PeerInfo& ours,
                                double timeout_s);

/// Numbers the world's ranks: those of a node are neighbours, and nodes come in the order in which the launcher's ranks
/// name them.
struct Ranking {
  std::vector<int> world_rank;  // rank in the world, by the launcher's rank
  int nodes = 1, ranks_per_node = 1;
  bool one_machine = true;
};
/// Uses the machines as nodes if `ranks_per_node` is 0; throws BadInput naming the machines if they then hold different
/// numbers of ranks.
Ranking rank_nodes(const std::vector<PeerInfo>& peers, int ranks_per_node, const LaunchNames& names = {});

/// Sends all ranks the address of our interface (GLOO_SOCKET_IFNAME, else loopback if there is one machine, else the
/// one on the route to the store) and sets the addresses of `topology`. Throws BadInput if there is no such
/// interface.
void exchange_addresses(store::Store& store, const Launch& launch, const Ranking& ranking, WorldTopology& topology,
                        double timeout_s);

/// Returns one key per rank, "NAME/<launcher's rank>".
std::vector<std::string> rank_keys(const std::string& name, int ranks);

/// Tells the others why we can't start; they end with that reason.
void refuse(store::Store& store, const std::string& why);
/// Leaves after a failed start. Rank 0 waits until all others that it has heard from have read the reason.
void part(store::Store& store, const Launch& launch);

}  // namespace moe::gloo
