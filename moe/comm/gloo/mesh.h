#pragma once
// Connections among the members of one group, which are theirs alone: whatever other groups move, in whatever order,
// can't be taken for theirs. Over Gloo's TCP transport, as LibTorch brings it.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "moe/comm/store/store.h"

namespace moe {

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

class Mesh {
 public:
  struct Member {
    int rank = 0, size = 2;
    std::string address;  // of our interface
  };

  /// All members make it with the same `name`, which no other mesh in the store has. Blocks until all are connected.
  Mesh(const StoreAddress& store, const std::string& name, const Member& member, double timeout_s);
  ~Mesh();

  enum class End { done, closed, aborted };
  struct Result {
    End end = End::done;
    int peer = -1;  // who closed its connections
  };
  /// Moves all messages at once. Those between two members match by `kind` and size, in their order. Waits without a
  /// limit: whoever sees no progress aborts. One thread at a time. Empty messages are skipped.
  Result exchange(std::span<const Message> messages, int kind);

  /// Any thread may ask for these.
  Progress progress() const;
  /// Ends the exchange, if there is one, and all later ones.
  void abort();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe
