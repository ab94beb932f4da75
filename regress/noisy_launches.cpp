#include "regress/noisy_launches.h"

#include <cmath>

namespace moe::regress {
namespace {

constexpr double kSpike = 0.2, kSlower = 0.12, kNeighbourLasts = 20;

}  // namespace

const std::vector<MachineNoise>& machine_noises() {
  static const std::vector<MachineNoise> kAll{{"quiet", 0.005},
                                              {"even", 0.015},
                                              {"rough", 0.03},
                                              {"drift", 0.015, 0.005},
                                              {"spikes", 0.015, 0, 0.05},
                                              {"two modes", 0.015, 0, 0, 0.2},
                                              {"busy neighbour", 0.015, 0, 0, 0, 0.08},
                                              {"all of it", 0.02, 0.005, 0.03, 0.1, 0.08}};
  return kAll;
}

NoisyLaunches::NoisyLaunches(const MachineNoise& noise, size_t cases, uint64_t seed, uint64_t gate)
    : noise_(noise), seed_(seed), stream_(stream_of(noise.name, gate)), times_(cases) {
  busy_ = noise.neighbour > 0 && uniform() < 0.5;
}

const std::vector<double>& NoisyLaunches::next() {
  if (noise_.drift > 0) level_ += noise_.drift * random_normal(seed_, stream_, index_++);
  if (noise_.neighbour > 0 && uniform() < 1 / kNeighbourLasts) busy_ = !busy_;
  double shared = level_ + (busy_ ? std::log1p(noise_.neighbour) : 0);
  if (noise_.spikes > 0 && uniform() < noise_.spikes) shared += std::log1p(-kSpike * std::log1p(-uniform()));
  for (double& time : times_) {
    time = shared + (busy_ ? 2 : 1) * noise_.launch * random_normal(seed_, stream_, index_++);
    if (noise_.slow_mode > 0 && uniform() < noise_.slow_mode) time += std::log1p(kSlower);
  }
  return times_;
}

}  // namespace moe::regress
