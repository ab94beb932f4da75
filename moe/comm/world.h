#pragma once
// The ranks of a run: threads of this process, or one per process, on one machine or many.
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
  std::vector<std::string> addresses;  // by rank, on that interface; empty: no interface
  int local_rank = 0;                  // rank of this process among those of its machine, even if nodes are smaller
};

class World {
 public:
  virtual ~World() = default;
  /// Returns "local", "gloo", "nccl", or "nccl-one-gpu" where ranks share a GPU.
  virtual std::string_view backend() const = 0;
  virtual int ranks() const = 0;
  /// Returns the ranks that this process runs, ascending.
  virtual std::vector<int> local_ranks() const = 0;
  virtual const WorldTopology& topology() const = 0;
  /// Returns further settings on which results depend, for records: a library's version and choices.
  virtual std::vector<std::pair<std::string, std::string>> settings() const { return {}; }

  /// Returns the world communicator of `rank`, one of local_ranks(). Handles share one group: two streams need two
  /// split()s.
  virtual std::unique_ptr<Communicator> communicator(int rank) = 0;
  /// Runs body(rank) on one thread for each rank of local_ranks(), and joins them. The first exception (other than the
  /// RankFailures that it caused) ends the other ranks, wherever they are, and is rethrown. If every process throws the
  /// same Unsupported, nothing is ended and each rethrows it: a plan that can't run can't on any of them.
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
