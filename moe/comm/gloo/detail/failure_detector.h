#pragma once
// Ends a run on all ranks if one of them died, was stopped or hangs. A detector by heartbeats and time-outs (Chandra
// and Toueg, Unreliable failure detectors for reliable distributed systems, 1996): each rank writes to the store that
// it is alive and which rank it waits for; rank 0 watches all ranks, and the others watch rank 0.
//
// Invariant: all ranks end with the same reason. A rank that finds a failure writes it to the store by compare-and-set,
// and ends with the failure that the store then holds. A wait that is too long does not prove that the peer failed:
// failure_of_peer() follows the waits from rank to rank to one that is dead or waits for nobody.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "moe/comm/store/store.h"

namespace moe::gloo {

class FailureDetector {
 public:
  /// An operation of this rank that waits for a peer.
  struct Wait {
    const void* group = nullptr;  // identifies the operation: its group, or the count of groups that connect
    uint64_t progress = 0;
    int peer = -1;  // rank of the world, or kConnecting
  };
  /// Value of `peer` while a new group connects, since the missing members are unknown.
  static constexpr int kConnecting = -2;
  struct Rank {
    int rank = 0, ranks = 2;
    double timeout_s = 60;
    std::function<std::vector<Wait>()> waits;
    std::function<void()> abort;  // ends all operations
    /// Returns the error line with which this rank ends, given the reason.
    std::function<std::string(const std::string& reason)> line;
    bool ends_process = true;  // false: a failure only ends running and later operations
  };

  /// Announces to the others that this rank takes part. All ranks call it before any makes its detector.
  static void announce(store::Store& store, int rank);
  FailureDetector(std::shared_ptr<store::Store> store, Rank self);
  /// Leaves the run. Rank 0 waits until all others have left or the run fails, because it watches them and may serve
  /// the store. After a failure, returns within kGraceS; a failure that only appears during the wait ends the process.
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// Announces to all that the run failed. Returns once they can read it, or the store is lost.
  void fail(const std::string& reason);
  /// The reason of a failure, and the rank that is presumed dead (-1: none).
  struct Failure {
    std::string reason;
    int gone = -1;
  };
  /// Reports a presumed failure, which ends the run unless one that is due earlier is reported within `patience_s`. If
  /// the rank in `gone` still sends heartbeats, the reason becomes a broken connection. Doesn't block.
  void suspect(Failure failure, double patience_s);
  bool failed() const;
  /// Blocks until the run failed, and returns the reason: the same on all ranks.
  std::string verdict() const;

  /// Seconds that a process has after a failure to destroy its detector. After that it prints its line and ends with
  /// code 4 (Rank::ends_process).
  static constexpr double kGraceS = 3;

 private:
  struct Suspicion {
    Failure failure;
    double due_s = 0;
  };
  void serve();
  bool done(double now);
  void tick();
  void send_heartbeat();
  void listen();
  std::optional<Failure> overdue();
  Failure check_failure(const Failure& failure);
  Failure failure_of_peer(int peer);
  Failure idle(const std::vector<std::string>& before, const std::vector<std::string>& after) const;
  std::vector<std::string> read_heartbeats(const std::vector<int>& ranks);
  void conclude(const Failure& failure);
  void end(const Failure& failure);
  void end_process(const std::string& reason);
  void pause();

  const std::shared_ptr<store::Store> store_;
  const Rank self_;
  const double interval_s_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Suspicion> suspicion_;  // mutex_ guards this and the next
  std::optional<std::string> reason_;   // why the run failed
  double ended_s_ = 0;
  bool leaving_ = false;

  // Used by the detector's thread only.
  struct PeerState {
    int rank = 0;
    store::Liveness liveness;
    bool left = false;
  };
  struct Stall {
    const void* group = nullptr;
    int peer = -1;
    store::Liveness liveness;
  };
  std::vector<PeerState> peers_;
  std::vector<Stall> stalls_;
  uint64_t beats_ = 0;
  std::jthread thread_;
};

}  // namespace moe::gloo
