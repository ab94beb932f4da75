#pragma once
// One process per rank, on one machine or many, over LibTorch's Gloo. The ranks of a node are numbered as neighbours; a
// rank that dies, is stopped or hangs ends the run on all of them.
#include <functional>
#include <memory>

#include "moe/comm/launch.h"
#include "moe/comm/world.h"

namespace moe {
namespace gloo {
struct State;
}

/// The job of a run, which must be equal on all ranks: a difference ends the run on all with RankFailure naming the
/// rank and both values.
struct GlooJob {
  std::string version;  // version of the program
  std::string text;     // verb and flags
};

class GlooWorld final : public World {
 public:
  /// Blocks until all ranks have connected. If a rank is missing after `start_s`, or later silent for `timeout_s`, the
  /// run ends with RankFailure on all ranks. Throws BadInput if nodes hold different numbers of ranks, the store's
  /// address can't be used, or GLOO_SOCKET_IFNAME names no interface. The process must ignore SIGPIPE: Gloo writes to
  /// connections that a dying rank closes. If `ends_process`, a process that runs no operation when the run fails ends
  /// a few seconds later; if not, its next operation throws.
  GlooWorld(const Launch& launch, const GlooJob& job, double timeout_s = 60, double start_s = 60,
            bool ends_process = true);
  /// On rank 0, waits for the others unless the run has failed.
  ~GlooWorld() override;
  std::string_view backend() const override { return "gloo"; }
  int ranks() const override;
  std::vector<int> local_ranks() const override;
  const WorldTopology& topology() const override;

  /// Returns the world communicator of this process's rank. Its operations are unpaced: a Pace is BadInput. Every
  /// communicator from split() has separate connections, so lanes run concurrently. A rank that fails publishes the
  /// reason before its connections close; the operations of all others then end with RankFailure: "rank 1 in 'combine
  /// 2/2' (alltoall): rank 3 failed: ...".
  std::unique_ptr<Communicator> communicator(int rank) override;

  /// Runs the body on this process's rank. If the process has not left the body and destroyed the world a few seconds
  /// after a failure, it prints the line and ends with code 4: no thread may keep a failed run alive.
  void run(const std::function<void(int rank)>& body) override;

  /// For communication that does not use this world's operations, such as NCCL's: failure() returns why the run failed,
  /// empty if it hasn't; fail() ends the run on all ranks.
  std::string failure() const;
  void fail(const std::string& why);
  /// Returns whether every rank calls this with the same text, within a few seconds.
  bool every_rank_refuses(const std::string& why);

 private:
  int refusals_ = 0;  // number of refusals so far

  std::shared_ptr<gloo::State> state_;
  int exceptions_ = 0;  // exceptions in flight when this was made
};

}  // namespace moe
