#pragma once
// A meeting point of a group's ranks: for each operation, every rank arrives with its arguments, reads those of the
// others, and leaves when all have finished.
//
// A round opens when the last member has arrived (opened_) and closes when the last has departed (closed_). Between the
// two every member may read the others' operations and buffers, so leave() returns only after the round has closed.
// Arrivals and departures are counted under mutex_; a waiting thread sleeps on bell_ and reads only the atomics.
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "moe/base/check.h"
#include "moe/comm/local/detail/operation.h"
#include "moe/device/cpu/doorbell.h"
#include "moe/device/pacer.h"

namespace moe::local {

/// The RankFailure of a rank that did not fail itself: another rank's failure or abort ended its operation.
class Aborted : public RankFailure {
  using RankFailure::RankFailure;
};

/// A member's events. The others' streams wait for `ready` (its buffers may be read) and `done` (it no longer uses any
/// buffer); `began` marks the start of its part.
struct Marks {
  std::unique_ptr<Event> ready, done, began;
};

class Rendezvous {
 public:
  /// `names[i]` is the world rank of member i, by which errors name it.
  Rendezvous(std::vector<int> names, double timeout_s);

  struct Turn {
    uint64_t round = 0;
    double began_s = 0;                              // time at which the last member arrived
    bool paced = false;                              // whether began_s comes from paces, on all members
    double ends_s = 0;                               // earliest end of the operation; 0: when its copies are done
    std::shared_ptr<Pacer::Task> running = nullptr;  // decides the end if a pacer is used; else null
  };
  /// Blocks until all members are here. Throws RankFailure on all of them if the operations disagree or one is missing
  /// for longer than the timeout. The others read `operation` until leave() returns.
  Turn meet(int member, const Operation& operation);
  const Operations& operations() const { return operations_; }
  /// Records that the caller no longer uses the others' buffers. Nothing may throw between meet() and depart().
  void depart();
  /// Blocks until all have departed. Never fails, because every member that met departs.
  void leave(const Turn& turn);

  int members() const { return static_cast<int>(names_.size()); }
  /// Returns a member's events. The member makes its own when it first needs them; the others read them while they
  /// meet.
  Marks& marks(int member) { return marks_[member]; }

  /// Makes the round that is not open yet, and all later ones, throw Aborted.
  void abort(const std::string& reason);

 private:
  uint64_t arrive(int member, const Operation& operation);
  void open();
  void set_failed(std::string reason);
  void give_up(const Operation& operation, uint64_t round);
  [[noreturn]] void fail(int member, const Operation& operation) const;

  const std::vector<int> names_;
  const double timeout_s_;
  std::vector<Marks> marks_;

  std::mutex mutex_;
  std::vector<bool> has_arrived_;      // guarded by mutex_
  Operations operations_;              // written under mutex_, constant while a round is open
  size_t arrived_ = 0, departed_ = 0;  // guarded by mutex_
  Turn turn_;                          // turn of the open round
  std::string reason_;                 // why rounds fail; constant once failed_ is set
  bool aborted_ = false;               // whether abort() is the reason; constant once failed_ is set
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> opened_{0}, closed_{0};  // last rounds for which all arrived, all departed
  cpu::Doorbell bell_;
};

}  // namespace moe::local
