#pragma once
// Ranks as threads of one process: a rendezvous of pointers, then copies. The embedded default, and the emulated
// cluster's transport: with a Pace, an operation starts when its last rank arrived and ends at_least_s later on all
// (where the ranks' paces differ, the longest counts); with a pacer, on all or none of them, it ends when that says. A
// rank whose own copies ended after that counts an overrun.
//
// Buffers lie in the host's memory or, with streams of a GPU, in that GPU's, the same for all ranks. Then the ranks'
// threads meet while they issue (all issue in the same order), and their streams wait for each other's events: errors
// and timeouts show in the thread that issues, and what hangs on the GPU itself is not found out.
#include <functional>
#include <memory>

#include "moe/comm/world.h"

namespace moe {
namespace local {
struct State;
}

class LocalWorld final : public World {
 public:
  /// Makes a world in which an operation that waits longer than `timeout_s` for a rank ends with RankFailure on all
  /// ranks.
  explicit LocalWorld(int ranks, double timeout_s = 60);
  ~LocalWorld() override;
  std::string_view backend() const override { return "local"; }
  int ranks() const override;
  std::vector<int> here() const override;
  /// Returns the topology of one node.
  const WorldTopology& topology() const override;
  /// Returns the world communicator of `rank`. An operation that a failed stream skips aborts the world, since the
  /// others would wait for it.
  std::unique_ptr<Communicator> communicator(int rank) override;

  /// Runs the body on a thread a rank. Each rank keeps, with the threads it starts, to its share of the cores. A rank
  /// that dies by an exception names itself in the others' errors. What was aborted stays so: make another world.
  void run(const std::function<void(int rank)>& body) override;

 private:
  std::shared_ptr<local::State> state_;
};

}  // namespace moe
