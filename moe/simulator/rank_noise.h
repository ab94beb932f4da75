#pragma once
// Differences between ranks: jitter of every task, slow ranks, uneven routing. Each is a factor on a task's modelled
// seconds. A random draw depends only on (seed, task, rank, sample).
#include <cstdint>
#include <span>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// The distribution of a task's factor on a rank; its mean is 1. none: always 1; lognormal: skewed to the slow side, as
/// measured times are.
enum class Jitter : uint8_t { none, uniform, lognormal };

/// A rank on which all tasks take `factor` times as long.
struct Straggler {
  int rank = 0;
  double factor = 1;
};

/// Returns the kinds of tasks that take longer if the gate sends more rows to a rank's experts: the experts, the
/// exchanges over EP, and the collectives of the same rows over ESP.
std::vector<TaskKind> routed_kinds();

struct RankNoise {
  Jitter jitter = Jitter::none;
  double coefficient = 0;  // coefficient of variation of a task's seconds: standard deviation / mean
  std::vector<Straggler> stragglers;
  // Each rank's rows divided by the mean over ranks: one number per rank for all layers, or those of layer 0, of layer
  // 1 and so on. Empty: routing is even.
  std::vector<double> load;
  std::vector<TaskKind> loaded = routed_kinds();  // kinds of tasks whose seconds are proportional to a rank's rows
  uint64_t seed = 1;
  bool jitters() const { return jitter != Jitter::none && coefficient > 0; }
};

/// Throws BadInput naming the field for a coefficient < 0 (or, if uniform, above 1 / sqrt(3), which would make seconds
/// negative), a rank that does not exist or is listed twice, a factor <= 0 or too large, a load < 0, or a number of
/// loads other than 0, `ranks` or `ranks` x `layers`.
void check_noise(const RankNoise& noise, int ranks, int layers = 1);

/// Draws jitter factors. Quantiles of the distribution are interpolated in a table that is denser towards the tails;
/// the error is 1e-4 of the coefficient, and draws reach tails of probability 2^-33.
class JitterDraws {
 public:
  explicit JitterDraws(const RankNoise& noise);

  /// Returns a task's factor on a rank in a sample.
  double factor(int task, int sample, int rank) const;
  /// These draw factors in two steps: draw() gives the bits of ranks from `first_rank` on, and quantile() the factor at
  /// probability (bits + 1/2) / 2^32. A factor grows with its bits, so the slowest rank is found without computing
  /// factors.
  void draw(int task, int sample, int first_rank, std::span<uint32_t> bits) const;
  double quantile(uint32_t bits) const;
  void quantiles(std::span<const uint32_t> bits, double* factors) const;

 private:
  struct QuantileLine {
    double at_zero, slope;  // a line over v, the signed distance to the nearer end of the distribution
  };
  uint64_t seed_;
  std::vector<QuantileLine> lines_;
};

}  // namespace moe
