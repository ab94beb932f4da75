#pragma once
// Connections that only the members of one group use, so that messages of different groups are never confused, whatever
// their order. Over Gloo's TCP transport, as LibTorch brings it.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "moe/comm/store/store.h"

namespace moe::gloo {

struct Message {
  int peer = 0;  // a member of the group, never ourselves
  bool send = false;
  void* data = nullptr;  // only read if it is sent
  int64_t bytes = 0;
};

/// The progress of an exchange, for a thread that watches it.
struct Progress {
  uint64_t count = 0;  // pieces that arrived or left since the mesh was made, and exchanges begun
  int peer = -1;       // the member whose piece it waits for; -1: none
};

/// Where the members of a mesh find each other.
struct Rendezvous {
  std::shared_ptr<store::Store> store;
  std::string name;  // the same for all members; no other mesh in the store has it
  double timeout_s = 60;
  std::function<bool()> stop;  // returns whether to give up
};

class Mesh {
 public:
  struct Member {
    int rank = 0, size = 2;
    std::string address;  // address of our interface
  };

  /// Blocks until all members are connected.
  Mesh(const Rendezvous& rendezvous, const Member& member);
  ~Mesh();

  enum class End { done, closed, aborted };
  struct Result {
    End end = End::done;
    int peer = -1;  // the member that closed its connections
  };
  /// Moves all messages at once. Those between two members match by `kind` and size, in their order. Waits without a
  /// limit: a caller that sees no progress aborts. One thread at a time. Empty messages are skipped.
  Result exchange(std::span<const Message> messages, int kind);

  /// Returns the progress of the exchange; any thread may ask.
  Progress progress() const;
  /// Ends the exchange, if there is one, and all later ones.
  void abort();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe::gloo
