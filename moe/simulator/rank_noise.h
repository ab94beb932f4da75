#pragma once
// What makes ranks differ: jitter of every task, slow ranks, uneven routing. All of it stretches a task's
// modelled seconds by factors; a draw depends on (seed, task, rank, sample) alone.
#include <cstdint>
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// Names how a task's factor on a rank is distributed, with mean 1: always 1; uniform; lognormal (skewed to the slow
/// side, as timings are).
enum class Jitter : uint8_t { none, uniform, lognormal };

/// Names a rank all of whose tasks take `factor` times as long.
struct Straggler {
  int rank = 0;
  double factor = 1;
};

/// Returns dispatch, expert and combine: what takes longer where the gate sends more rows.
std::vector<TaskKind> routed_kinds();

struct RankNoise {
  Jitter jitter = Jitter::none;
  double coefficient = 0;  // of variation: standard deviation / mean of a task's seconds
  std::vector<Straggler> stragglers;
  // Each rank's rows over the mean, one layer's after another's or one layer's for all; empty: routing is even.
  std::vector<double> load;
  std::vector<TaskKind> loaded = routed_kinds();  // the tasks whose seconds grow with a rank's rows
  uint64_t seed = 1;
  bool jitters() const { return jitter != Jitter::none && coefficient > 0; }
};

/// Throws BadInput naming the field: a coefficient < 0 (uniform: above 1 / sqrt(3), where seconds would be negative), a
/// rank that does not exist or is listed twice, a factor <= 0, a load < 0, loads that are not one a rank, or one a rank
/// and layer.
void check_noise(const RankNoise& noise, int ranks, int layers = 1);

/// Draws the jitter of a noise. Quantiles of its distribution are tabulated, denser towards the tails, and
/// interpolated: they are right to 1e-4 of the coefficient; draws reach as far as one in 2^33.
class JitterDraws {
 public:
  explicit JitterDraws(const RankNoise& noise);

  /// Returns a task's factor on a rank in a sample.
  double factor(int task, int sample, int rank) const;
  /// Draws factors in two steps, for ranks from `first_rank` on: which share of the distribution, (bits + 1/2) / 2^32,
  /// lies below, and the factor there. It grows with the bits, so that a slowest rank is found without its factor.
  void draw(int task, int sample, int first_rank, std::span<uint32_t> bits) const;
  double quantile(uint32_t bits) const;
  void quantiles(std::span<const uint32_t> bits, double* factors) const;

 private:
  struct Cell {
    double at_zero, slope;  // a line over the signed distance to the nearer end of the distribution
  };
  uint64_t seed_;
  std::vector<Cell> cells_;
};

}  // namespace moe
