#pragma once
// Differences between ranks: jitter of every task, slow ranks, uneven routing. Each stretches a task's modelled seconds
// by factors; a draw depends only on (seed, task, rank, sample).
#include <cstdint>
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// The distribution, with mean 1, of a task's factor on a rank: always 1; uniform; lognormal (skewed to the slow side,
/// as timings are).
enum class Jitter : uint8_t { none, uniform, lognormal };

/// A rank on which all tasks take `factor` times as long.
struct Straggler {
  int rank = 0;
  double factor = 1;
};

/// Returns the tasks that take longer if the gate sends more rows to a rank's experts: the experts, the exchanges over
/// EP, and what moves the same rows over ESP.
std::vector<TaskKind> routed_kinds();

struct RankNoise {
  Jitter jitter = Jitter::none;
  double coefficient = 0;  // coefficient of variation: standard deviation / mean of a task's seconds
  std::vector<Straggler> stragglers;
  // Each rank's rows / the mean over ranks: a number a rank, or those of layer 0, layer 1 ..; empty: routing is even.
  std::vector<double> load;
  std::vector<TaskKind> loaded = routed_kinds();  // the tasks whose seconds grow with a rank's rows
  uint64_t seed = 1;
  bool jitters() const { return jitter != Jitter::none && coefficient > 0; }
};

/// Throws BadInput naming the field: a coefficient < 0 (uniform: above 1 / sqrt(3), with which seconds would be
/// negative), a rank that does not exist or is listed twice, a factor <= 0, a load < 0, or a number of loads that is
/// neither the number of ranks nor that of ranks times layers.
void check_noise(const RankNoise& noise, int ranks, int layers = 1);

/// Draws the jitter of a noise. Quantiles of its distribution are tabulated, denser towards the tails, and
/// interpolated, with an error of 1e-4 of the coefficient; draws reach tails of probability 2^-33.
class JitterDraws {
 public:
  explicit JitterDraws(const RankNoise& noise);

  /// Returns a task's factor on a rank in a sample.
  double factor(int task, int sample, int rank) const;
  /// Draws factors in two steps for ranks from `first_rank` on: the quantile, (bits + 1/2) / 2^32, and then its factor.
  /// Factors grow with the bits, so the slowest rank is found without computing factors.
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
