#pragma once
// Lets the processes of a run get to know each other: who they are, whether they run the same job, which share a node
// and how to reach them.
#include <string>
#include <vector>

#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/store/store.h"

namespace moe::gloo {

/// What a process tells all others; `machine` is equal where two can reach each other by loopback.
struct PeerInfo {
  std::string version, job, ranks_per_node, host, machine;
};
PeerInfo own_info(const Launch& launch, const GlooJob& job);

/// Returns the infos of all processes, by the launcher's ranks. A launcher that starts ranks anew may serve the same
/// store to them: the ranks meet below a life that rank 0 begins, and `store` is left there. Throws RankFailure naming
/// who stayed away or differs from rank 0, BadInput if another process is our rank too.
std::vector<PeerInfo> bootstrap(std::shared_ptr<store::Store>& store, const Launch& launch, const PeerInfo& ours,
                                double timeout_s);

/// Numbers the world's ranks: those of a node are neighbours, and nodes come in the order in which the launcher's ranks
/// name them.
struct Ranking {
  std::vector<int> world_rank;  // by the launcher's rank
  int nodes = 1, ranks_per_node = 1;
  bool one_machine = true;
};
/// Takes the ranks as they are on machines if `ranks_per_node` is 0; throws BadInput naming the machines if these hold
/// unequally many.
Ranking rank_nodes(const std::vector<PeerInfo>& peers, int ranks_per_node, const LaunchNames& names = {});

/// Sends all ranks the address of the interface over which we talk (GLOO_SOCKET_IFNAME, else loopback on one
/// machine, else the one towards the store) and fills those of `topology` in. Throws BadInput if there is no such
/// interface.
void exchange_addresses(store::Store& store, const Launch& launch, const Ranking& ranking, WorldTopology& topology,
                        double timeout_s);

/// Returns one key a rank, "NAME/<launcher's rank>".
std::vector<std::string> rank_keys(const std::string& name, int ranks);

/// Sends the others why we can't start: they end with it.
void refuse(store::Store& store, const std::string& why);
/// Leaves after a failed start. Rank 0 waits until the others have read why, but those that nothing was heard of.
void part(store::Store& store, const Launch& launch);

}  // namespace moe::gloo
