#pragma once
// One process a rank, one GPU a rank, collectives by NCCL. Its communicators take CUDA streams; with a stream of the
// CPU they take the host's memory and pass it through the GPU's, which is meant for small things (sizes, results).
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "moe/comm/world.h"

namespace moe {

struct NcclOptions {
  int rank = 0, size = 1;
  int local_rank = 0;           // takes GPU local_rank modulo those that there are
  WorldTopology topology = {};  // as NCCL finds its own ways, for reading only
  /// These two let ranks meet: what rank 0 sets once, the others get, waiting for it. The keys are this world's alone.
  std::function<void(const std::string& key, const std::string& value)> set = nullptr;
  std::function<std::string(const std::string& key)> get = nullptr;
  /// Returns why another rank's run failed; empty: it hasn't. Asked every few milliseconds by a thread of this world's.
  std::function<std::string()> failure = nullptr;
  /// Called to tell the others why this rank's run failed.
  std::function<void(const std::string& why)> fail = nullptr;
  /// An operation that the GPU has begun ends with RankFailure after so long without the other ranks.
  double timeout_s = 60;
  int min_ctas = 0, max_ctas = 0;  // thread blocks a communicator takes from the experts; 0: NCCL's choice
};

/// Makes the world of NCCL's ranks. Its settings(): version, algorithm of alltoall, thread blocks, NCCL_* that were
/// set. Blocking; every rank calls it. Throws BadInput in a build without NCCL or CUDA and where there is no GPU,
/// RankFailure where the ranks can't all connect within timeout_s. Sums are in NCCL's order, not in that of ranks; what
/// ranks disagree on is not found out, but ends by the timeout. abort() ends this rank's operations, and the others' as
/// soon as they hear of it, or by their timeout. A failure fails the stream that an operation was queued on
/// (moe/device/failure.h).
std::unique_ptr<World> make_nccl_world(NcclOptions options);

}  // namespace moe
