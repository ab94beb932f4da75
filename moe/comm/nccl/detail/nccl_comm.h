#pragma once
// An NCCL communicator and the operations queued on it.
#include <cuda_runtime.h>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>
#include <vector>

#include "moe/device/failure.h"

namespace moe::nccl {

/// A non-blocking NCCL communicator (blocking = 0), whose calls are made under a lock, so that another thread can abort
/// operations that wait for a dead rank. Thread-safe.
class Comm {
 public:
  /// `name` identifies the rank in errors.
  Comm(std::string name, double timeout_s) : name_(std::move(name)), timeout_s_(timeout_s) {}
  /// Waits until issued operations have ended; aborts them if that takes longer than the timeout.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  using Make = std::function<ncclResult_t(ncclComm_t* made)>;
  using Call = std::function<ncclResult_t(ncclComm_t comm)>;
  /// Makes the communicator and waits until all its ranks have joined. `made` stays null if this rank is not a member.
  /// If making it fails, keep this object: `made` points into it, and NCCL may still write there.
  void make(const Make& make);
  /// Waits until NCCL has taken `call`. Throws RankFailure that names rank and `what`.
  void issue(const std::string& what, const Call& call);
  /// Issues work for `stream`; `failure` is set if the work does not end.
  void queue(const std::string& what, const Call& call, cudaStream_t stream, std::shared_ptr<Failure> failure);

  /// Returns why work failed, or which work has not ended within the timeout since the GPU began it; empty if neither.
  std::string failure_text();
  /// Makes queued and all later operations fail with RankFailure.
  void abort(const std::string& reason);

 private:
  struct Marks {
    cudaEvent_t begun = nullptr, ended = nullptr;
  };
  struct Queued {
    std::string what;
    Marks marks;
    std::shared_ptr<Failure> failure;
    double begun_s = 0;  // when failure_text() first saw that the work had begun
  };

  std::string failure_line(const std::string& what, const std::string& why) const;
  void wait_until_taken(const std::string& what, ncclResult_t result);
  Marks take_marks();

  const std::string name_;
  const double timeout_s_;
  ncclComm_t making_ = nullptr;

  std::mutex mutex_;  // guards all below
  ncclComm_t comm_ = nullptr;
  std::string aborted_;
  std::deque<Queued> queued_;
  std::vector<Marks> spare_;
};

}  // namespace moe::nccl
