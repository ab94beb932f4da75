#pragma once
// Connections among the members of one group, which are theirs alone: whatever other groups move, in whatever order,
// can't be taken for theirs. Over Gloo's TCP transport, as LibTorch brings it.
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
  void* data = nullptr;  // only read where it is sent
  int64_t bytes = 0;
};

/// How far an exchange has come, for whoever watches it.
struct Progress {
  uint64_t count = 0;  // pieces that arrived or left since the mesh was made, and exchanges begun
  int peer = -1;       // whose piece it waits for; -1: none
};

/// Where the members of a mesh find each other.
struct Rendezvous {
  std::shared_ptr<store::Store> store;
  std::string name;  // the same for all members; no other mesh in the store has it
  double timeout_s = 60;
  std::function<bool()> stop;  // whether to give up
};

class Mesh {
 public:
  struct Member {
    int rank = 0, size = 2;
    std::string address;  // of our interface
  };

  /// Blocks until all members are connected.
  Mesh(const Rendezvous& rendezvous, const Member& member);
  ~Mesh();

  enum class End { done, closed, aborted };
  struct Result {
    End end = End::done;
    int peer = -1;  // who closed its connections
  };
  /// Moves all messages at once. Those between two members match by `kind` and size, in their order. Waits without a
  /// limit: whoever sees no progress aborts. One thread at a time. Empty messages are skipped.
  Result exchange(std::span<const Message> messages, int kind);

  /// Returns how far the exchange has come; any thread may ask.
  Progress progress() const;
  /// Ends the exchange, if there is one, and all later ones.
  void abort();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe::gloo
