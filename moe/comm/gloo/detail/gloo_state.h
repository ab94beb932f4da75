#pragma once
// State that the communicators of one process share.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moe/comm/gloo/detail/failure_detector.h"
#include "moe/comm/gloo/detail/gloo_group.h"
#include "moe/comm/gloo/gloo_world.h"
#include "moe/comm/store/store.h"

namespace moe::gloo {

struct State {
  ~State() { close(); }
  /// Closes all connections, then leaves the run.
  void close();

  int rank = 0;
  double timeout_s = 0;
  WorldTopology topology;
  int ranks_of_machine = 1;

  // Null in a world of one rank.
  std::unique_ptr<store::Server> server;
  std::shared_ptr<store::Store> store;
  std::unique_ptr<FailureDetector> detector;

  std::shared_ptr<Group> world;
  std::mutex mutex;
  std::vector<std::weak_ptr<Group>> groups;  // mutex guards this and the next
  std::vector<std::shared_ptr<Group>> kept_groups;
  bool aborted = false;
  std::atomic<int> connecting{0};     // groups that are being made
  std::optional<std::string> reason;  // why the run failed, if the world has one rank; else see detector

  /// Returns a group that abort() also ends. Blocks until its members are connected; throws RankFailure.
  std::shared_ptr<Group> make_group(const std::string& name, const std::vector<int>& world_ranks);
  /// Keeps the group's connections open until the world is destroyed.
  void keep_group(std::shared_ptr<Group> group);
  void abort();
  std::vector<FailureDetector::Wait> waits();
  /// Returns the error line of a running operation: "rank 1 in 'forward gate of layer 0' (alltoall): " + why.
  std::string line(const std::string& why);

  bool failed();
  std::string verdict();
  /// Ends the run on all ranks; returns once they can read why.
  void fail(const std::string& why);
  /// Passes a suspicion on to the detector.
  void suspect(const FailureDetector::Failure& failure, double patience_s);
  /// Runs an operation of `group`; throws RankFailure with the operation's error line if an exchange breaks.
  void run(Group& group, std::string_view op, std::string_view task, const std::function<void()>& work);

 private:
  std::vector<std::shared_ptr<Group>> live_groups();
};

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<State> state, std::shared_ptr<Group> group);

}  // namespace moe::gloo
