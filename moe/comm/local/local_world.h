#pragma once
// Ranks as threads of one process: they exchange pointers, then copy. The default for embedding, and the transport of
// the emulated cluster: with a Pace, an operation starts when its last rank arrives and ends at_least_s later on all
// ranks (if their paces differ, the longest counts); with a pacer (on all ranks or on none), the pacer decides the end.
// A rank whose copies end later than that counts an overrun.
//
// Buffers lie in the host's memory or, with streams of a GPU, in that GPU's, the same for all ranks. With a GPU, the
// ranks' threads meet while they issue (all issue in the same order), and their streams wait for each other's events:
// errors and timeouts appear in the thread that issues, and a hang on the GPU itself is not detected.
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
  std::vector<int> local_ranks() const override;
  /// Returns the topology of one node.
  const WorldTopology& topology() const override;
  /// Returns the world communicator of `rank`. An operation that a failed stream skips aborts the world, since the
  /// others would wait for it.
  std::unique_ptr<Communicator> communicator(int rank) override;

  /// Runs the body on one thread per rank. A rank and the threads that it starts run on the rank's share of the cores.
  /// If a rank throws, the errors of the others name it. An aborted world cannot be used again.
  void run(const std::function<void(int rank)>& body) override;

 private:
  std::shared_ptr<local::State> state_;
};

}  // namespace moe
