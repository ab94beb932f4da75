#pragma once
// Progress with an estimate of the time left, on stderr: one line that is rewritten on a terminal, a few lines
// elsewhere.
#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace moe {

/// What the seconds of the work so far say about the rest. Work is of several kinds and has amounts that grow with it:
/// within a kind its own seconds an amount count, of a kind that has not begun those of all work so far.
class MeasuredWork {
 public:
  /// The amount of a kind that is to be done yet.
  double& open(const std::string& kind) { return kinds_[kind].open; }
  /// So much of what is open was done, in this time.
  void did(const std::string& kind, double amount, double seconds);
  /// Nothing before some work is done.
  std::optional<double> left_s() const;
  /// The share of the time that is over, in [0, 1]; 0 before some work is done.
  double share() const;

 private:
  struct Kind {
    double open = 0, done = 0, seconds = 0;
  };
  double seconds() const;

  std::map<std::string, Kind> kinds_;
};

class Progress {
 public:
  /// `expected_s`: its time, where that was measured before.
  explicit Progress(std::string what, std::optional<double> expected_s = {});
  /// The share of the work that is done, in [0, 1].
  void at(double share);
  void done();

  /// How far it is, as it is shown. Without a share and an expected time no time left is said.
  static std::string state(double share, double elapsed_s, std::optional<double> expected_s);

 private:
  void show(double share, bool last);
  double elapsed_s() const;

  std::string what_;
  std::optional<double> expected_s_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_;
  double shown_s_ = -1e9;
};

}  // namespace moe
