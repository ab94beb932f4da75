#pragma once
// What a communicator's ranks send each other, message by message: a decorator of AlltoAlls and what is split from it.
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "moe/comm/communicator.h"

namespace moe {

class WireCount {
 public:
  void add(int from, int to, int64_t bytes);
  /// Returns the sizes of the messages from one node's ranks to another's, ascending.
  std::vector<int64_t> between(int from_node, int to_node, int ranks_per_node) const;
  /// Returns the bytes of all messages between different ranks.
  int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, std::vector<int64_t>> messages_;  // by sender and receiver, as ranks of the world
};

/// Returns the communicator that counts. `world` is the world's communicator of one rank; `count` must outlive it and
/// all that are split from it.
std::unique_ptr<Communicator> counted(std::unique_ptr<Communicator> world, WireCount& count);

}  // namespace moe
