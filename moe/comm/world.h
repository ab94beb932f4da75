#pragma once
// The ranks of a run: all are threads of this process, or each is a process, on one or more machines.
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "moe/comm/communicator.h"

namespace moe {

/// How ranks share machines. All nodes have the same number of ranks, and the ranks of a node are neighbours: rank =
/// node x ranks_per_node + place.
struct WorldTopology {
  int nodes = 1, ranks_per_node = 1;
  std::string interface;               // network interface between processes, such as "lo" or "eth0"; empty: none
  std::vector<std::string> addresses;  // the ranks' addresses on that interface; empty: no interface
  int local_rank = 0;  // index of this rank among the ranks of its machine, which may hold several nodes
};

class World {
 public:
  virtual ~World() = default;
  /// Returns "local", "gloo", "nccl", or "nccl-one-gpu" if ranks share a GPU.
  virtual std::string_view backend() const = 0;
  virtual int ranks() const = 0;
  /// Returns the ranks that this process runs, ascending.
  virtual std::vector<int> local_ranks() const = 0;
  virtual const WorldTopology& topology() const = 0;
  /// Returns further settings that affect results, to be stored with them, such as a library's version.
  virtual std::vector<std::pair<std::string, std::string>> settings() const { return {}; }

  /// Returns the world communicator of `rank`, one of local_ranks(). All of its handles refer to one group, so two
  /// streams need two communicators made by split().
  virtual std::unique_ptr<Communicator> communicator(int rank) = 0;
  /// Runs body(rank) on one thread for each rank of local_ranks(), and joins them. The first exception ends the other
  /// ranks with RankFailure and is rethrown. If every process throws the same Unsupported, the run goes on and each
  /// process rethrows it, because a plan that can't run on one process can't run on any.
  virtual void run(const std::function<void(int rank)>& body) = 0;
};

/// Returns whether this process runs rank 0, and so writes files and prints.
bool is_leader(const World& world);

/// Returns every rank's text, by rank, on all processes; `mine` holds the texts of local_ranks(). Blocking; every
/// process calls it, outside of run().
std::vector<std::string> gather(World& world, std::vector<std::string> mine);
/// Gathers numbers in the same way; ranks may give different numbers of them.
std::vector<std::vector<double>> gather(World& world, const std::vector<std::vector<double>>& mine);
/// Returns rank 0's text on all ranks.
std::string broadcast(World& world, std::string text);

}  // namespace moe
