#pragma once
// The time of a stream whose work is paced: the moment at which the stream should have reached its present point, given
// its paces and those of the streams that it waited for.
//
// Idea: a thread that sleeps until a moment wakes 20 to 110 us late. If the next pace counted from the wake-up, a pass
// would be late by that much for every task of its longest chain. A pace therefore counts from the planned moment, so
// lateness does not add up, and work without a pace takes no time. Invariant: after a piece of work this clock is at
// most kMaxLateS behind the wall clock; if it would be more, the work's real time counts.
namespace moe::cpu {

/// The paced time of one thread.
class PaceClock {
 public:
  static constexpr double kMaxLateS = 0.5e-3;
  /// Returns this thread's time, never earlier than a time that it returned before.
  double time_s();
  /// Returns whether time_s() comes from paces; otherwise it is the wall clock.
  bool is_paced() const { return paced_; }
  /// Sleeps until `ends_s`. If that is past by more than kMaxLateS, returns false and continues from the wall clock.
  bool hold_until(double ends_s);
  /// Returns the number of calls of hold_until().
  int holds() const { return holds_; }
  /// Records that the stream waited for something that happened at `seconds`, `paced` if that comes from paces. Nothing
  /// changes if that moment is long past by the wall clock, or past by this clock.
  void wait(double seconds, bool paced);
  /// Records that work ran that no hold_until() follows.
  void worked();
  /// Records that nothing is left to do: time passes as on the wall clock.
  void idle() { paced_ = false; }

 private:
  bool paced_ = false;
  double at_s_ = 0;  // if unpaced: the latest moment that was returned or held to
  int holds_ = 0;
};

}  // namespace moe::cpu
