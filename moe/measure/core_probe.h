#pragma once
// Tells how fast the cores of ranks are beside what they were. Other guests of a machine's host, heat and power slow all
// of its cores for seconds, and nothing that a process can read says so.
#include <vector>

namespace moe {

/// Returns what a fixed piece of work takes of this thread's processor time, some 0.5 ms: multiply-adds over an array
/// that a core's second cache holds. Waiting for a core is not in it.
double probe_core();

/// Keeps what the ranks' cores took at their best.
class CoreSpeeds {
 public:
  /// Takes the probes of passes, [pass][rank], all with as many ranks. Returns how many times as long as at its best the
  /// rank that is slowed most took in its median pass: at least 1.
  double slowdown(const std::vector<std::vector<double>>& probe_s);

 private:
  std::vector<double> best_s_;  // by rank: of medians over passes
};

}  // namespace moe
