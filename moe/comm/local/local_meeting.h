#pragma once
// Where the ranks of a group meet, operation after operation: all bring an offer, see each other's, and leave together.
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "moe/base/check.h"
#include "moe/comm/local/local_offer.h"
#include "moe/device/cpu/doorbell.h"
#include "moe/device/pacer.h"

namespace moe {

/// The RankFailure of a rank that was well itself: another one's failure or abort ended its operation.
class LocalAborted : public RankFailure {
  using RankFailure::RankFailure;
};

/// A member's events, which the others' streams wait for: its buffers are ready, it is done with all buffers; and when
/// its part began.
struct LocalMarks {
  std::unique_ptr<Event> ready, done, began;
};

class LocalMeeting {
 public:
  /// `names[i]`: what to call member i in errors, its world rank.
  LocalMeeting(std::vector<int> names, double timeout_s);

  struct Turn {
    uint64_t meeting = 0;
    double ends_s = 0;                               // no earlier than; 0: whenever it is done
    std::shared_ptr<Pacer::Task> running = nullptr;  // where others slow it down, what says when it ends
  };
  /// Blocks until all members are here. Throws RankFailure on all of them if the offers disagree or one is missing for
  /// longer than the timeout. `offer` is read by the others until leave() returns.
  Turn meet(int member, const LocalOffer& offer);
  const std::vector<const LocalOffer*>& offers() const { return offers_; }
  /// The caller is done with the others' buffers. Nothing may throw between meet() and depart().
  void depart();
  /// Blocks until all have departed. Never fails: whoever met will depart.
  void leave(const Turn& turn);

  int members() const { return static_cast<int>(names_.size()); }
  /// Made by the member when it first needs them; others look while they meet.
  LocalMarks& marks(int member) { return marks_[static_cast<size_t>(member)]; }

  /// Ends all meetings that aren't complete yet, and all later ones, with LocalAborted.
  void abort(const std::string& reason);

 private:
  uint64_t arrive(int member, const LocalOffer& offer);
  void open();
  void set_failed(std::string reason);
  void give_up(const LocalOffer& offer, uint64_t meeting);
  [[noreturn]] void fail(int member, const LocalOffer& offer) const;

  const std::vector<int> names_;
  const double timeout_s_;
  std::vector<LocalMarks> marks_;

  std::mutex mutex_;
  std::vector<bool> here_;                 // guarded by mutex_
  std::vector<const LocalOffer*> offers_;  // written under mutex_, constant while a meeting is open
  size_t arrived_ = 0, departed_ = 0;      // guarded by mutex_
  Turn turn_;                              // of the open meeting
  std::string reason_;                     // why it failed, and
  bool aborted_ = false;                   // whether from outside: constant once failed_ is set
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> opened_{0}, closed_{0};  // meetings at which all have arrived, have departed
  Doorbell bell_;
};

}  // namespace moe
