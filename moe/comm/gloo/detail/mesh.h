#pragma once
// Connections that only the members of one group use, so that messages of different groups are never confused, whatever
// their order. They use the Gloo TCP transport that is part of LibTorch.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "moe/comm/store/store.h"

namespace moe::gloo {

struct Message {
  int peer = 0;  // another member of the group
  bool send = false;
  void* data = nullptr;  // never written if `send`
  int64_t bytes = 0;
};

/// The progress of an exchange, for a thread that watches it.
struct Progress {
  uint64_t count = 0;  // pieces sent and received, plus exchanges begun, since the mesh was made
  int peer = -1;       // the member whose piece it waits for; -1: none
};

/// The store and the name by which the members of a mesh find each other.
struct Rendezvous {
  std::shared_ptr<store::Store> store;
  std::string name;  // the mesh's name: equal on all members, unique in the store
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
  /// Exchanges all messages concurrently. Sends match receives of equal `kind` and size, in order. There is no
  /// time-out: a thread that watches progress() calls abort(). One thread at a time. Empty messages are skipped.
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
