#pragma once
// Loops over arrays with one element per rank, for replays of many ranks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "moe/simulator/rank_replay.h"

namespace moe::rank_loops {

// For each rank, the factor on the modelled seconds of a kind of task, without jitter.
class RankFactors {
 public:
  void multiply(int rank, double factor, int ranks) {
    factors_.resize(ranks, 1.0);
    factors_[rank] *= factor;
  }
  void count() {
    others_.assign(factors_.size() + 1, 0);
    for (size_t i = 0; i < factors_.size(); ++i) others_[i + 1] = others_[i] + (factors_[i] != 1);
  }
  // Returns the factors of the ranks from `begin` on; null if those of [begin, end) are all 1.
  const double* factors(size_t begin, size_t end) const {
    return factors_.empty() || others_[begin] == others_[end] ? nullptr : factors_.data() + begin;
  }

 private:
  std::vector<double> factors_;
  std::vector<uint32_t> others_;  // for each rank, the number of lower ranks whose factor is not 1
};

// The factors of a RankNoise on the seconds of every rank's tasks, without jitter.
class RankSlowdowns {
 public:
  RankSlowdowns(const RankNoise& noise, int ranks) : kinds_(noise.loaded) {
    const size_t of_a_layer = static_cast<size_t>(ranks);
    loaded_.resize(std::max<size_t>(1, noise.load.size() / of_a_layer));
    for (const Straggler& s : noise.stragglers) {
      straggling_.multiply(s.rank, s.factor, ranks);
      for (RankFactors& layer : loaded_) layer.multiply(s.rank, s.factor, ranks);
    }
    for (size_t i = 0; i < noise.load.size(); ++i)
      loaded_[i / of_a_layer].multiply(static_cast<int>(i % of_a_layer), noise.load[i], ranks);
    straggling_.count();
    for (RankFactors& layer : loaded_) layer.count();
  }
  // Returns the factors of a kind of task in a layer, on ranks from `begin` on; null if none is stretched.
  const double* factors(TaskKind kind, int layer, size_t begin, size_t end) const {
    if (std::ranges::find(kinds_, kind) == kinds_.end()) return straggling_.factors(begin, end);
    return loaded_[loaded_.size() > 1 ? layer : 0].factors(begin, end);
  }

 private:
  std::vector<TaskKind> kinds_;  // kinds whose seconds are proportional to a rank's rows
  RankFactors straggling_;
  std::vector<RankFactors> loaded_;  // for each layer; a single element applies to all layers
};

struct GroupStride {
  size_t size = 1, step = 1;
};

// Returns the number of stages of a structure. Throws WrongResult if `parallel` has fewer.
int stages_of(const Structure& structure, const ParallelShape& parallel);
// Returns the number of layers of a structure. Layer numbers of ends and step, beyond the last layer, do not count.
int layers_of(const Structure& structure);
// Returns how a task's groups are spread over the ranks of a stage: size of a group, and distance of its members. Size
// 1: each rank runs the task on its own.
GroupStride group_stride_of(const Task& task, const ParallelShape& parallel);

// Writes the maximum of each group to `out`, in the order of the groups' first ranks. Members of a group are `step`
// ranks apart, so `step` groups are interleaved.
template <class T>
void group_max(const T* __restrict in, size_t count, GroupStride group, T* __restrict out) {
  const size_t span = group.size * group.step;
  if (group.step == 1) {
    for (size_t base = 0; base < count; base += span, ++out) {
      T most = in[base];
      for (size_t i = 1; i < span; ++i) most = std::max(most, in[base + i]);
      *out = most;
    }
    return;
  }
  for (size_t base = 0; base < count; base += span, out += group.step) {
    std::copy_n(in + base, group.step, out);
    for (size_t i = 1; i < group.size; ++i)
      for (size_t j = 0; j < group.step; ++j) out[j] = std::max(out[j], in[base + i * group.step + j]);
  }
}

// Copies each group's value to all of its members.
inline void spread(const double* __restrict of_group, size_t count, GroupStride group, double* __restrict out) {
  const size_t span = group.size * group.step;
  if (group.step == 1) {
    for (size_t base = 0; base < count; base += span, ++of_group) std::fill_n(out + base, span, *of_group);
    return;
  }
  for (size_t base = 0; base < count; base += span, of_group += group.step)
    for (size_t i = 0; i < group.size; ++i) std::copy_n(of_group, group.step, out + base + i * group.step);
}

inline void add(const double* __restrict a, const double* __restrict b, size_t count, double* __restrict out) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

inline void add_to(double* __restrict out, const double* __restrict in, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] += in[i];
}

// Runs all samples and returns their outcome; rank times are means over samples. `run.sample(number)` replays a sample,
// `run.collect(outcome)` adds its results.
template <class Run>
RankOutcome outcome_of(Run run, int ranks, int samples) {
  RankOutcome outcome;
  outcome.rank_end_s.resize(ranks);
  outcome.rank_waiting_s.resize(ranks);
  for (int sample = 0; sample < samples; ++sample) {
    run.sample(sample);
    run.collect(outcome);
  }
  for (std::vector<double>* sums : {&outcome.rank_end_s, &outcome.rank_waiting_s})
    for (double& sum : *sums) sum /= samples;
  return outcome;
}

}  // namespace moe::rank_loops
