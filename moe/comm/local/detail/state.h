#pragma once
// State that the communicators of one local world share.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "moe/comm/local/detail/rendezvous.h"
#include "moe/comm/local/local_world.h"

namespace moe::local {

struct Group {
  Group(std::vector<int> world_ranks, double timeout_s)
      : ranks(std::move(world_ranks)),
        timeout(timeout_s),
        operations(ranks, timeout),
        splits(ranks, timeout),
        children(ranks.size()) {}

  /// Returns the rendezvous of the messages from `from` to `to`; `from` is its member 0.
  Rendezvous& pair(int from, int to);
  void abort(const std::string& reason);

  const std::vector<int> ranks;  // ranks of the world, by rank in the group
  const double timeout;
  Rendezvous operations;
  Rendezvous splits;                             // separate: split() blocks its caller while operations run on streams
  std::vector<std::shared_ptr<Group>> children;  // groups of the current split, by the member that made them

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, Rendezvous> pairs_;  // made at their first use; mutex_ guards this and the next
  std::string reason_;                               // why the group was aborted; empty if it was not
};

struct State {
  State(int ranks, double timeout);

  /// Returns a group that abort() also ends.
  std::shared_ptr<Group> make_group(std::vector<int> world_ranks);
  void abort(const std::string& why);

  const double timeout_s;
  const WorldTopology topology;
  std::mutex mutex;
  std::vector<std::weak_ptr<Group>> groups;  // guarded by mutex
  std::string reason;                        // why the world was aborted, empty if it was not; guarded by mutex
  std::shared_ptr<Group> world;
};

/// Returns the communicator of `rank` inside `group`.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<State> state, std::shared_ptr<Group> group, int rank);

}  // namespace moe::local
