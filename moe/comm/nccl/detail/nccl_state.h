#pragma once
// State that the communicators of one NCCL world share: their GPU, the thread that watches them, and the reason of an
// abort.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "moe/comm/nccl/detail/nccl_comm.h"
#include "moe/comm/nccl/nccl_world.h"
#include "moe/device/device.h"

namespace moe::nccl {

/// The type of ncclAlltoAll, which libraries before 2.28 lack.
using AlltoAll = ncclResult_t (*)(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream);

class State {
 public:
  explicit State(NcclOptions options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const NcclOptions& options() const { return options_; }
  Device& device() const { return *device_; }
  AlltoAll alltoall() const { return alltoall_; }
  ncclConfig_t config() const;
  std::string name() const;

  /// Returns a communicator that is watched, and that abort() also ends. Throws what Comm::make() throws.
  std::shared_ptr<Comm> make_comm(const Comm::Make& make);
  void abort(const std::string& reason);

 private:
  std::vector<std::shared_ptr<Comm>> comms();
  void watch();

  const NcclOptions options_;
  const std::unique_ptr<Device> device_;
  AlltoAll alltoall_ = nullptr;

  std::mutex mutex_;  // guards all below
  std::vector<std::weak_ptr<Comm>> comms_;
  std::vector<std::shared_ptr<Comm>> unfinished_;  // communicators whose making failed: NCCL may still write to them
  std::string aborted_;
  bool stopping_ = false;
  std::condition_variable stop_;
  std::jthread watcher_;
};

/// Makes the Communicator of rank `rank` in `comm`, which has `size` ranks.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<State> state, std::shared_ptr<Comm> comm, int rank,
                                                int size);

}  // namespace moe::nccl
