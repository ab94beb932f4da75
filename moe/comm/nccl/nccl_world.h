#pragma once
// One process per rank, one GPU per rank, collectives by NCCL. Its communicators take CUDA streams; with a CPU stream
// they copy host memory to the GPU and back, which is meant for small data (sizes, results).
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "moe/comm/world.h"

namespace moe {

struct NcclOptions {
  int rank = 0, size = 1;
  int local_rank = 0;           // the rank uses GPU local_rank modulo the number of GPUs
  WorldTopology topology = {};  // for information only: NCCL finds its own routes
  /// Exchange values between ranks: rank 0 sets each key once, and get() on the others waits for it. No other world
  /// uses these keys.
  std::function<void(const std::string& key, const std::string& value)> set = nullptr;
  std::function<std::string(const std::string& key)> get = nullptr;
  /// Returns why another rank's run failed, empty if it hasn't; a thread of this world calls it every few milliseconds.
  std::function<std::string()> failure = nullptr;
  /// Called to tell the others why this rank's run failed.
  std::function<void(const std::string& why)> fail = nullptr;
  /// Seconds after which an operation that the GPU has begun ends with RankFailure if other ranks do not take part.
  double timeout_s = 60;
  int min_ctas = 0, max_ctas = 0;  // thread blocks of a communicator's kernels; 0: NCCL's choice
};

/// Makes the world of NCCL's ranks. Its settings(): version, algorithm of alltoall, thread blocks, NCCL_* that were
/// set. Blocking; every rank calls it. Throws BadInput in a build without NCCL or CUDA and if there is no GPU,
/// RankFailure if the ranks can't all connect within timeout_s. Sums are in NCCL's order, not in the order of ranks. If
/// ranks issue different operations, these end by the timeout only. abort() ends this rank's operations, and the
/// others' as soon as they hear of it, or by their timeout. A failure fails the stream that an operation was queued on
/// (moe/device/failure.h).
std::unique_ptr<World> make_nccl_world(NcclOptions options);

}  // namespace moe
