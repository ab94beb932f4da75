#pragma once
// A key-value store over TCP that all processes of a run share. Every call has a time-out.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "moe/base/check.h"
#include "moe/device/stream.h"

namespace moe::store {

struct Address {
  std::string host;
  int port = 0;
};

/// The failure of the store itself: the process that serves it died or is silent.
class StoreLost : public RankFailure {
  using RankFailure::RankFailure;
};

/// Serves a store from this process until it is destroyed, on `address` only. Port 0: any free one.
class Server {
 public:
  /// Throws BadInput if the address isn't ours or its port is taken, RankFailure if it can't be served.
  explicit Server(const Address& address);
  ~Server();
  const Address& address() const { return address_; }

 private:
  struct Impl;
  Address address_;
  std::unique_ptr<Impl> impl_;
};

/// A connection to a store. Thread-safe. All keys begin with `prefix`. Calls throw StoreLost if not answered within
/// `timeout_s` ("... has not answered for 5.0 s") or if the connection closes ("... closed its connections").
class Store {
 public:
  /// Waits until the server accepts connections. `server`: its name in errors, such as "rank 0".
  Store(const Address& address, std::string prefix, std::string server, double timeout_s);
  ~Store();
  /// Returns a store on the same connection whose prefix is this store's prefix followed by `folder`.
  std::shared_ptr<Store> substore(const std::string& folder) const;
  const Address& address() const { return address_; }
  const std::string& prefix() const { return prefix_; }

  void set(const std::string& key, const std::string& value);
  /// Sets a key if it is not set yet; returns the key's value after that.
  std::string set_first(const std::string& key, const std::string& value);
  int64_t add(const std::string& key, int64_t amount);
  /// Returns whether all keys are set.
  bool check(const std::vector<std::string>& keys);
  /// Returns the values of keys that are set, in their order.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  /// Waits until all keys are set. Returns nullopt then, or the index of the first unset key once `timeout_s` has
  /// passed or stop() returns true.
  std::optional<size_t> wait(const std::vector<std::string>& keys, double timeout_s, const std::function<bool()>& stop);
  std::string get(const std::string& key) { return get_all({key}).front(); }

 private:
  struct Impl;
  Store(const Store& other, const std::string& folder);
  template <class Call>
  auto bounded(Call&& call);

  const Address address_;
  const std::string prefix_, server_;
  const double timeout_s_;
  std::shared_ptr<Impl> impl_;  // shared with the stores of all folders
};

/// Stops c10d's own log lines in the whole process. An executable calls it first, so that a lost store gives one line,
/// ours, without c10d's stack trace.
void silence_c10d();

/// Returns why c10d or Gloo failed, in one line: without the place in their sources and the stack, and with the limit
/// on open files if that is low.
std::string reason_of(const std::exception& error);

/// Packs several texts into one, and back.
std::string pack(const std::vector<std::string>& texts);
std::vector<std::string> unpack(const std::string& packed);

/// The time for which another process has been silent. A pause of the whole machine, or of this process, hardly counts,
/// because a gap between two calls of note() counts for at most a fifth of the time-out.
class Liveness {
 public:
  explicit Liveness(double timeout_s) : timeout_s_(timeout_s), noted_s_(now_s()) {}

  /// Returns how long to wait before the next note.
  std::chrono::duration<double> step() const { return std::chrono::duration<double>(timeout_s_ / kSteps); }

  /// Records the value that is heard now; the same value as before counts as silence.
  void note(uint64_t heard) {
    const double now = now_s();
    silent_s_ = heard == heard_ ? silent_s_ + std::min(now - noted_s_, 2 * timeout_s_ / kSteps) : 0;
    heard_ = heard;
    noted_s_ = now;
  }
  double silent_s() const { return silent_s_; }
  bool timed_out() const { return silent_s_ >= timeout_s_; }

 private:
  static constexpr int kSteps = 10;

  double timeout_s_, noted_s_, silent_s_ = 0;
  uint64_t heard_ = 0;
};

// Lets ranks of one host find the store's port without being told: rank 0 writes it into a file that only this user can
// read. The file names the process that wrote it, so the next run ignores a file that a killed run left behind.

/// Rank 0's port file, which exists as long as this object.
class PortFile {
 public:
  /// Writes the file. Throws BadInput if another run that is alive holds it, or it can't be made; `instead` is the name
  /// of the setting that tells ranks where to meet without a file.
  PortFile(std::string path, int port, const std::string& instead = "rendezvous");
  ~PortFile();
  PortFile(const PortFile&) = delete;
  PortFile& operator=(const PortFile&) = delete;

 private:
  const std::string path_;
};

/// Returns the port in rank 0's file, once a living process of this user has written it. Throws RankFailure after
/// `timeout_s`.
int wait_for_port(const std::string& path, double timeout_s);

/// A thread for calls that may never return. After a timeout the thread is abandoned, with the call that it runs.
class BoundedCalls {
 public:
  BoundedCalls();
  /// Waits for the running call, unless a call has timed out.
  ~BoundedCalls();
  BoundedCalls(const BoundedCalls&) = delete;
  BoundedCalls& operator=(const BoundedCalls&) = delete;

  /// Runs `call`, after earlier calls of other threads, and rethrows its exception. Returns false if it does not return
  /// within `timeout_s`; all later calls then return false. An abandoned call may keep running, so it must own the
  /// objects that it uses. A pause of the whole process doesn't count.
  bool run(std::function<void()> call, double timeout_s);

 private:
  struct Call;
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace moe::store
