#pragma once
// Launches of a made-up machine, to learn how often a rule is wrong.
#include <string_view>
#include <vector>

#include "moe/base/random.h"

namespace moe::regress {

/// Says how a machine's launches scatter, in shares of their time. A launch's cases share what the machine does then.
struct MachineNoise {
  std::string_view name;
  double launch = 0.015;  // normal deviation of a case's launch
  double drift = 0;       // deviation of a step of a random walk, a launch
  double spikes = 0;      // share of launches that something disturbs: longer by 20 % in the mean, exponentially
  double slow_mode = 0;   // share of launches of a case that lie in a mode 12 % slower
  double neighbour = 0;   // slower while a neighbour is busy, which comes and goes every 20 launches or so
};
const std::vector<MachineNoise>& machine_noises();

/// Makes launches in the order of time; the same seed and gate give the same ones.
class NoisyLaunches {
 public:
  NoisyLaunches(const MachineNoise& noise, size_t cases, uint64_t seed, uint64_t gate);
  /// Returns every case's log seconds of the next launch, about 0.
  const std::vector<double>& next();
  /// Returns a number uniform in [0, 1), for decisions by lot.
  double uniform() { return random_uniform(seed_, stream_, index_++); }

 private:
  const MachineNoise& noise_;
  uint64_t seed_, stream_, index_ = 0;
  double level_ = 0;  // of the random walk
  bool busy_ = false;
  std::vector<double> times_;
};

}  // namespace moe::regress
