#include "tests/prices/random_curve.h"

#include <cmath>

#include "moe/base/random.h"

namespace moe {

Points random_knots(uint64_t seed) {
  const uint64_t stream = random_stream_id("knots of a curve");
  const auto drawn = [&](uint64_t draw) { return random_uniform(seed, stream, draw); };
  const int inner = static_cast<int>(seed % 4);
  double slope = 1e-12, seconds = 1e-5 * (1 + drawn(0));
  Points knots{{512, seconds}};
  for (int i = 1; i <= inner + 1; ++i) {
    const double size = i > inner ? std::ldexp(512, 20) : std::ldexp(512, 20 * i / (inner + 1));
    const double change = 1.5 + 2 * drawn(static_cast<uint64_t>(2 * i));
    slope = drawn(static_cast<uint64_t>(2 * i + 1)) < 0.7 ? slope * change : slope / change;
    const double least = i == 1 ? slope : seconds / knots.back()[0] * 0.3;  // seen beside what came before
    slope = std::max(slope, least);
    seconds += slope * (size - knots.back()[0]);
    knots.push_back({size, seconds});
  }
  return knots;
}

Points random_samples(uint64_t seed) {
  const uint64_t stream = random_stream_id("samples of no curve");
  const uint64_t count = 2 + random_bits(seed, stream, 0) % 15;
  Points samples;
  for (uint64_t i = 0; i < count; ++i) {
    const auto drawn = [&](uint64_t draw) { return random_uniform(seed, stream, 1 + 4 * i + draw); };
    const double size = i < 2 ? 100.0 * static_cast<double>(1 + i) : std::round(std::pow(10, 2 + 6 * drawn(0)));
    const double jump = drawn(1) < 0.1 ? 5 : 1;
    samples.push_back({drawn(2) < 0.2 && i > 2 ? samples.back()[0] : size,
                       jump * (1e-5 + 1e-10 * size) * std::exp(0.5 * (drawn(3) - 0.5))});
  }
  return samples;
}

}  // namespace moe
