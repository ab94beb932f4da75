#pragma once
// The time of a stream whose work is paced: the moment at which its paces, and those of the streams that it waited for,
// say that it got to where it is.
//
// Idea: a thread that sleeps to a moment wakes 20 to 110 us after it. Were the next pace counted from there, a pass
// would be later by that for every task of its longest chain. A pace counts from the moment that was meant instead, so
// lateness does not add up, and work without a pace takes no time. Invariant: after a piece of work this clock is
// behind the one on the wall by kMostLateS at most; by more, and it takes the time that it takes.
namespace moe::cpu {

/// Keeps that time for one thread.
class PaceClock {
 public:
  static constexpr double kMostLateS = 0.5e-3;
  /// Returns this thread's time, never a moment before one that it told.
  double here_s();
  /// Returns whether here_s() was meant by paces; else it is the clock on the wall.
  bool paced() const { return paced_; }
  /// Sleeps to that moment. Returns false, and counts from now on, if it is past by more than kMostLateS.
  bool hold_until(double ends_s);
  /// Counts the calls of hold_until().
  int holds() const { return holds_; }
  /// Notes that the stream waited for what happened at that moment, `paced` by its own stream's clock. What is long
  /// past by the wall, or past by this clock, changes nothing.
  void wait(double seconds, bool paced);
  /// Notes that something ran that hold_until() does not follow.
  void worked();
  /// Notes that nothing is left to do: time passes as on the wall.
  void idle() { paced_ = false; }

 private:
  bool paced_ = false;
  double at_s_ = 0;  // unpaced: the latest moment that was told or held to
  int holds_ = 0;
};

}  // namespace moe::cpu
