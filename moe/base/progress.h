#pragma once
// Progress with an estimate of the time left, on stderr: one line that is rewritten on a terminal, a few lines
// elsewhere.
#include <chrono>
#include <string>

namespace moe {

class Progress {
 public:
  /// `seconds`: the guess of its time before anything is known.
  Progress(std::string what, double guessed_s);
  /// The share of the work that is done, in [0, 1].
  void at(double share);
  void done();

 private:
  void show(double share, bool last);
  double elapsed_s() const;

  std::string what_;
  double guessed_s_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_;
  double shown_s_ = -1e9;
};

}  // namespace moe
