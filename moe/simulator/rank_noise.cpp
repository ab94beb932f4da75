#include "moe/simulator/rank_noise.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <set>

#include "moe/base/check.h"
#include "moe/base/random.h"

namespace moe {
namespace {

// The table of quantiles has more lines towards the ends of the distribution. A draw of 32 bits is read as a signed
// number x: x >= 0 in the lower half of the distribution, x < 0 in the upper half. So |v|, v = x + 1/2, is the distance
// to the nearer end in units of 2^-32, and the sign of v names the half. The index of a line consists of that sign, the
// exponent of |v| (32 values, because |v| is in [1/2, 2^31)) and kBits of its mantissa.
constexpr int kBits = 5, kOctaves = 32;
constexpr size_t kLines = size_t{kOctaves} << kBits;  // per half

size_t line_of(double v) {
  const uint64_t leading = std::bit_cast<uint64_t>(v) >> (52 - kBits);
  return (leading & (kLines - 1)) + ((leading >> (11 + kBits - 10)) & kLines);
}

// Returns number `index` of the SplitMix64 generator (Steele, Lea, Flood, OOPSLA'14) seeded with `start`. random.h
// provides the seed but not each number, because a call and three times the arithmetic per number would dominate a
// replay of many ranks.
uint64_t mixed(uint64_t start, uint64_t index) {
  uint64_t x = start + 0x9e3779b97f4a7c15ULL * (index + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

double line_begin(size_t line) {
  return std::ldexp(1 + static_cast<double>(line % (1 << kBits)) / (1 << kBits), static_cast<int>(line >> kBits) - 1);
}

// Returns the standard normal quantile of p <= 1/2. `guess` must be above it: there Newton's steps do not overshoot,
// because the distribution function is convex.
double normal_quantile(double p, double guess) {
  for (int step = 0; step < 20; ++step) {
    const double off = 0.5 * std::erfc(-guess / std::numbers::sqrt2) - p;
    const double density = std::exp(-0.5 * guess * guess) / std::sqrt(2 * std::numbers::pi);
    guess -= off / density;
    if (std::abs(off) < 1e-15 * p) break;
  }
  return guess;
}

// Returns the jitter's factor at probability p. `z`: the standard normal quantile of p.
double factor_at(const RankNoise& noise, double p, double z) {
  switch (noise.jitter) {
    case Jitter::uniform:
      return 1 + noise.coefficient * std::numbers::sqrt3 * (2 * p - 1);
    case Jitter::lognormal: {
      const double variance = std::log1p(noise.coefficient * noise.coefficient);
      return std::exp(std::sqrt(variance) * z - variance / 2);
    }
    case Jitter::none:
      break;
  }
  return 1;
}

}  // namespace

std::vector<TaskKind> routed_kinds() {
  using enum TaskKind;
  return {dispatch, allgather, copy, expert, expert_dx, expert_dw, reducescatter, allreduce, combine, exchange};
}

constexpr double kMaxStraggling = 1000;  // larger factors would cost sums of seconds too many digits

void check_noise(const RankNoise& noise, int ranks, int layers) {
  const double most = noise.jitter == Jitter::uniform ? 1 / std::numbers::sqrt3 : 10;
  require<BadInput>(noise.coefficient >= 0 && noise.coefficient <= most,
                    "jitter: found a coefficient of {}, expected one from 0 to {:.3f}", noise.coefficient, most);
  std::set<int> seen;
  for (const Straggler& s : noise.stragglers) {
    require<BadInput>(s.rank >= 0 && s.rank < ranks, "straggler: found rank {}, expected 0 to {}", s.rank, ranks - 1);
    require<BadInput>(seen.insert(s.rank).second, "straggler: found rank {} twice, expected it once", s.rank);
    require<BadInput>(s.factor > 0 && s.factor <= kMaxStraggling,
                      "straggler: found a factor of {}, expected one above 0 and at most {}", s.factor, kMaxStraggling);
  }
  const size_t loads = noise.load.size(), of_a_layer = static_cast<size_t>(ranks);
  require<BadInput>(loads == 0 || loads == of_a_layer || loads == of_a_layer * static_cast<size_t>(layers),
                    "load: found {} ranks, expected none or {}, of {} layers", loads, ranks, layers);
  for (const double load : noise.load)
    require<BadInput>(load >= 0 && std::isfinite(load), "load: found {}, expected a number >= 0", load);
}

JitterDraws::JitterDraws(const RankNoise& noise) : seed_(noise.seed), lines_(2 * kLines, {1, 0}) {
  if (noise.jitter == Jitter::none || noise.coefficient == 0) return;
  constexpr double kUnit = 0x1.0p-32;
  double z = 0;  // the loop goes from the median outwards
  const auto ends = [&](size_t line) {
    const double p = line_begin(line) * kUnit;
    z = normal_quantile(p, z);
    return std::pair(factor_at(noise, p, z), factor_at(noise, 1 - p, -z));
  };
  auto [lower_end, upper_end] = ends(kLines);
  for (size_t line = kLines; line-- > 0;) {
    const double begin = line_begin(line), width = line_begin(line + 1) - begin;
    const auto [lower, upper] = ends(line);
    const double lower_slope = (lower_end - lower) / width, upper_slope = (upper_end - upper) / width;
    lines_[line_of(begin)] = {lower - lower_slope * begin, lower_slope};
    lines_[line_of(-begin)] = {upper - upper_slope * begin, -upper_slope};
    lower_end = lower;
    upper_end = upper;
  }
}

double JitterDraws::quantile(uint32_t bits) const {
  const double v = static_cast<double>(static_cast<int32_t>(bits)) + 0.5;
  const QuantileLine& line = lines_[line_of(v)];
  return line.at_zero + line.slope * v;
}

void JitterDraws::quantiles(std::span<const uint32_t> bits, double* factors) const {
  for (size_t i = 0; i < bits.size(); ++i) factors[i] = quantile(bits[i]);
}

// Each 64-bit number gives the bits of two neighbouring ranks.
void JitterDraws::draw(int task, int sample, int first_rank, std::span<uint32_t> bits) const {
  const uint64_t start =
      random_bits(seed_, random_stream_id("jitter", static_cast<uint64_t>(task)), static_cast<uint64_t>(sample));
  auto rank = static_cast<uint64_t>(first_rank);
  size_t i = 0;
  if (rank % 2 == 1 && !bits.empty()) bits[i++] = static_cast<uint32_t>(mixed(start, rank++ / 2) >> 32);
  for (; i + 1 < bits.size(); i += 2, rank += 2) {
    const uint64_t pair = mixed(start, rank / 2);
    bits[i] = static_cast<uint32_t>(pair);
    bits[i + 1] = static_cast<uint32_t>(pair >> 32);
  }
  if (i < bits.size()) bits[i] = static_cast<uint32_t>(mixed(start, rank / 2));
}

double JitterDraws::factor(int task, int sample, int rank) const {
  uint32_t bits = 0;
  draw(task, sample, rank, {&bits, 1});
  return quantile(bits);
}

}  // namespace moe
