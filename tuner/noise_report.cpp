#include "tuner/noise_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/base/table.h"

namespace moe {
namespace {

constexpr uint64_t kPopularityStream = 77;

Straggler straggler_of(const std::string& text) {
  Straggler straggler;
  const char* const end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, straggler.rank);
  const bool colon = rank.ec == std::errc{} && rank.ptr != end && *rank.ptr == ':';
  const auto factor = colon ? std::from_chars(rank.ptr + 1, end, straggler.factor) : rank;
  require<BadInput>(colon && factor.ec == std::errc{} && factor.ptr == end,
                    "--straggler: found '{}', expected RANK:FACTOR, as 3:1.5", text);
  return straggler;
}

// Rows of each rank's experts over the mean, experts' popularity by Zipf's law in a drawn order.
std::vector<double> loads(const Case& shape, double exponent, uint64_t seed) {
  const ParallelShape& p = shape.parallel;
  const size_t experts = static_cast<size_t>(shape.layer.experts);
  std::vector<double> popularity(experts);
  for (size_t e = 0; e < experts; ++e) popularity[e] = std::pow(static_cast<double>(e + 1), -exponent);
  for (size_t e = experts; e-- > 1;)
    std::swap(popularity[e], popularity[random_bits(seed, kPopularityStream, e) % (e + 1)]);
  const double mean = std::accumulate(popularity.begin(), popularity.end(), 0.0) / p.ep;
  const size_t on_a_rank = experts / static_cast<size_t>(p.ep);
  std::vector<double> by_rank;
  for (int rank = 0; rank < p.ranks(); ++rank) {
    const size_t ep = static_cast<size_t>(rank / p.esp % p.ep);
    const auto first = popularity.begin() + static_cast<std::ptrdiff_t>(ep * on_a_rank);
    by_rank.push_back(std::accumulate(first, first + static_cast<std::ptrdiff_t>(on_a_rank), 0.0) / mean);
  }
  return by_rank;
}

}  // namespace

RankNoise noise_of(const NoiseFlags& flags, const Case& shape) {
  RankNoise noise;
  noise.seed = flags.seed;
  noise.coefficient = flags.jitter;
  if (flags.jitter > 0) noise.jitter = Jitter::lognormal;
  for (const std::string& text : flags.stragglers) noise.stragglers.push_back(straggler_of(text));
  if (flags.zipf) {
    require<BadInput>(!shape.layer.capacity_factor,
                      "--zipf: found a capacity factor, with which every rank sends its full capacity however tokens "
                      "are routed; expected --capacity-factor none");
    noise.load = loads(shape, *flags.zipf, flags.seed);
  }
  check_noise(noise, shape.parallel.ranks());
  return noise;
}

std::string noise_table(const std::vector<NoiseRow>& rows) {
  Table table({"schedule", "even ms", "median ms", "p95 ms", "most ms", "median / even", "waiting of a rank"});
  for (const NoiseRow& row : rows) {
    const RankOutcome& o = row.outcome;
    table.add({row.schedule, fmt::format("{:.4f}", 1e3 * row.even_s), fmt::format("{:.4f}", 1e3 * o.median_s()),
               fmt::format("{:.4f}", 1e3 * o.p95_s()), fmt::format("{:.4f}", 1e3 * o.max_s()),
               fmt::format("{:.3f}", o.median_s() / row.even_s), human_seconds(o.mean_waiting_s())});
  }
  return table.text();
}

Json to_json(const NoiseRow& row) {
  return {{"schedule", row.schedule},
          {"even_s", row.even_s},
          {"median_s", row.outcome.median_s()},
          {"p95_s", row.outcome.p95_s()},
          {"most_s", row.outcome.max_s()},
          {"mean_waiting_s", row.outcome.mean_waiting_s()},
          {"samples", row.outcome.makespan_s.size()}};
}

}  // namespace moe
