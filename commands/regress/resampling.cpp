#include "commands/regress/resampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "moe/base/random.h"
#include "moe/base/statistics.h"

namespace moe::regress {
namespace {

constexpr size_t kBlock = 4;  // consecutive rounds of a block
constexpr double kFloorShare = 0.99;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double log_seconds(const std::optional<CaseTimes>& times) { return times ? std::log(times->seconds()) : kNone; }

// Draws the rounds of one gate, in blocks of kBlock consecutive rounds.
class Draws {
 public:
  Draws(size_t rounds, uint64_t seed, std::string_view what, uint64_t gate)
      : rounds_(rounds), seed_(seed), stream_(random_stream_id(what, gate)) {}
  size_t next_round() {
    if (left_-- == 0) {
      at_ = draw(rounds_);
      left_ = kBlock - 1;
    } else {
      at_ = (at_ + 1) % rounds_;
    }
    return at_;
  }
  size_t draw(size_t below) { return random_bits(seed_, stream_, index_++) % std::max<size_t>(below, 1); }
  bool draw_bool(double share) { return random_uniform(seed_, stream_, index_++) < share; }

 private:
  size_t rounds_, at_ = 0, left_ = 0;
  uint64_t seed_, stream_, index_ = 0;
};

double slowed_log_seconds(const CaseTimes& times, const Injection& injection, size_t rank, bool slow) {
  if (!slow) return std::log(times.seconds());
  CaseTimes slowed = times;
  for (std::vector<double>& ranks : slowed.samples)
    for (size_t r = 0; r < ranks.size(); ++r)
      if (!injection.one_rank || r == rank % ranks.size()) ranks[r] *= 1 + injection.slowdown;
  return std::log(slowed.seconds());
}

}  // namespace

const std::vector<Injection>& injections() {
  static const std::vector<Injection> kAll{{"none"},
                                           {"+5 % of a case", 0.05},
                                           {"+10 % of a case", 0.10},
                                           {"+10 % of one rank", 0.10, true},
                                           {"a slow mode: +20 % of 1 launch in 4", 0.20, false, 0.25}};
  return kAll;
}

ResampledGates resample(const std::vector<Round>& rounds, const Rule& rule, const Injection& injection, int64_t gates,
                        uint64_t seed) {
  const size_t cases = rounds.front().base.size();
  std::vector<std::vector<Pair>> logs;  // [round][case]
  for (const Round& round : rounds) {
    std::vector<Pair>& of_round = logs.emplace_back();
    for (size_t i = 0; i < cases; ++i) of_round.push_back({log_seconds(round.base[i]), log_seconds(round.head[i])});
  }
  ResampledGates found{gates, 0, 0, 0};
  for (int64_t gate = 0; gate < gates; ++gate) {
    Draws draws(rounds.size(), seed, injection.name, static_cast<uint64_t>(gate));
    const size_t slowed = draws.draw(cases), rank = draws.draw(1 << 16);
    const auto measure = [&](int, const std::vector<bool>&) {
      const size_t r = draws.next_round();
      const bool swapped = draws.draw_bool(0.5), slow = draws.draw_bool(injection.share_of_launches);
      std::vector<Pair> pairs = logs[r];
      if (swapped)
        for (Pair& pair : pairs) std::swap(pair.base, pair.head);
      const std::optional<CaseTimes>& head = (swapped ? rounds[r].base : rounds[r].head)[slowed];
      if (injection.slowdown > 0 && head) pairs[slowed].head = slowed_log_seconds(*head, injection, rank, slow);
      return pairs;
    };
    const GateOutcome outcome = run_gate(cases, rule, measure);
    found.any_slow +=
        std::ranges::any_of(outcome.judged, [](const CaseJudgement& j) { return j.verdict == Verdict::slower; });
    found.found += outcome.judged[slowed].verdict == Verdict::slower;
    found.unsure += outcome.judged[slowed].verdict == Verdict::ambiguous;
  }
  return found;
}

double launch_deviation(const std::vector<Round>& rounds, size_t of_case) {
  std::vector<double> ratios;
  for (const Round& round : rounds)
    if (round.base[of_case] && round.head[of_case])
      ratios.push_back(log_seconds(round.head[of_case]) - log_seconds(round.base[of_case]));
  return trimmed_mean(ratios).deviation / std::sqrt(2.0);
}

double noise_floor_of(const std::vector<Round>& rounds, int pairs, int64_t samples, uint64_t seed) {
  const size_t cases = rounds.front().base.size();
  std::vector<std::vector<double>> ratios(rounds.size());  // [round][case]
  for (size_t r = 0; r < rounds.size(); ++r)
    for (size_t i = 0; i < cases; ++i)
      ratios[r].push_back(log_seconds(rounds[r].head[i]) - log_seconds(rounds[r].base[i]));
  std::vector<double> worst;
  for (int64_t sample = 0; sample < samples; ++sample) {
    Draws draws(rounds.size(), seed, "floor", static_cast<uint64_t>(sample));
    std::vector<std::vector<double>> of_case(cases);
    for (int pair = 0; pair < pairs; ++pair) {
      const size_t r = draws.next_round();
      const double sign = draws.draw_bool(0.5) ? -1 : 1;
      for (size_t i = 0; i < cases; ++i)
        if (std::isfinite(ratios[r][i])) of_case[i].push_back(sign * ratios[r][i]);
    }
    double most = 0;
    for (const std::vector<double>& one : of_case) most = std::max(most, std::abs(trimmed_mean(one).mean));
    worst.push_back(most);
  }
  return quantile(std::move(worst), kFloorShare);
}

}  // namespace moe::regress
