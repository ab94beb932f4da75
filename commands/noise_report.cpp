#include "commands/noise_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/search/layer_search.h"
#include "moe/simulator/rank_fluid_replay.h"

namespace moe::commands {
namespace {

constexpr uint64_t kPopularityStream = 77;  // the stream of the first layer; each further layer uses the next one

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

// Returns each expert's share by Zipf's law, in a random order for each layer.
std::vector<double> popularity(int64_t experts, double exponent, uint64_t seed, int layer) {
  std::vector<double> all(experts);
  const uint64_t stream = kPopularityStream + static_cast<uint64_t>(layer);
  for (size_t e = 0; e < all.size(); ++e) all[e] = std::pow(static_cast<double>(e + 1), -exponent);
  for (size_t e = all.size(); e-- > 1;) std::swap(all[e], all[random_bits(seed, stream, e) % (e + 1)]);
  return all;
}

// Returns the probability that fewer than k of the experts other than e have arrived, for each e; arrived: the
// probability of each.
std::vector<double> fewer_before(const std::vector<double>& arrived, size_t k) {
  const size_t n = arrived.size();
  // Distributions of the number of arrivals among the experts before e, and among those from e on, as far as k - 1.
  std::vector<std::vector<double>> before(n + 1, std::vector<double>(k)), from(before);
  before[0][0] = from[n][0] = 1;
  for (size_t e = 0; e < n; ++e)
    for (size_t m = 0; m < k; ++m)
      before[e + 1][m] = before[e][m] * (1 - arrived[e]) + (m > 0 ? before[e][m - 1] * arrived[e] : 0);
  for (size_t e = n; e-- > 0;)
    for (size_t m = 0; m < k; ++m)
      from[e][m] = from[e + 1][m] * (1 - arrived[e]) + (m > 0 ? from[e + 1][m - 1] * arrived[e] : 0);
  std::vector<double> fewer(n);
  for (size_t e = 0; e < n; ++e) {
    double others = 0;  // probability of at most k - 1 - m arrivals behind e
    for (size_t m = k; m-- > 0;) {
      others += from[e + 1][k - 1 - m];
      fewer[e] += before[e][m] * others;
    }
  }
  return fewer;
}

// Returns each expert's probability to be among the k experts of a token, drawn one after the other by their weights
// among those not drawn yet. Experts that arrive after exponential times at rates of their weights arrive in the order
// of such draws, so expert e is chosen if it arrives at a time t with fewer than k others before it. The integral over
// t is taken over log t, where a sum over equal steps converges exponentially.
std::vector<double> chosen_shares(const std::vector<double>& weights, size_t k) {
  constexpr double kStep = 0.05, kEarly = 1e-14, kLate = 45;  // e^-45 is below a double's precision
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double first = std::log(kEarly / sum), last = std::log(kLate / std::ranges::min(weights));
  std::vector<double> shares(weights.size()), arrived(weights.size());
  for (double log_t = first; log_t < last; log_t += kStep) {
    const double t = std::exp(log_t);
    for (size_t e = 0; e < weights.size(); ++e) arrived[e] = -std::expm1(-weights[e] * t);
    const std::vector<double> fewer = fewer_before(arrived, k);
    for (size_t e = 0; e < weights.size(); ++e) shares[e] += kStep * weights[e] * t * (1 - arrived[e]) * fewer[e];
  }
  return shares;
}

// Returns the expected rows of each rank's experts over the mean. With padding, every expert has as many as the most
// popular one.
std::vector<double> loads(const LayerCase& shape, int ranks, const std::vector<double>& popularity) {
  const ParallelShape& p = shape.parallel;
  std::vector<double> rows = chosen_shares(popularity, static_cast<size_t>(shape.layer.top_k));
  const double mean = std::accumulate(rows.begin(), rows.end(), 0.0) / p.ep;
  const auto on_a_rank = static_cast<std::ptrdiff_t>(rows.size()) / p.ep;
  if (pads_to_largest_load(shape)) std::ranges::fill(rows, *std::ranges::max_element(rows));
  std::vector<double> by_rank;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto first = rows.begin() + index_in_group(p, GroupKind::ep, rank) * on_a_rank;
    by_rank.push_back(std::accumulate(first, first + on_a_rank, 0.0) / mean);
  }
  return by_rank;
}

}  // namespace

void check_flags(const NoiseFlags& flags) {
  require<BadInput>(
      !flags.samples || flags.jitter > 0.0,
      "--samples: found it without --jitter, expected both, because all samples are equal without jitter");
  require<BadInput>(!flags.seed || flags.jitter > 0.0 || flags.zipf,
                    "--seed: found it without --jitter or --zipf, expected one of them");
}

RankNoise noise_of(const NoiseFlags& flags, const LayerCase& shape, int stages, int layers) {
  const int ranks = shape.parallel.ranks() / shape.parallel.pp * stages;
  RankNoise noise;
  noise.seed = flags.seed.value_or(1);
  noise.coefficient = flags.jitter.value_or(0);
  if (noise.coefficient > 0) noise.jitter = Jitter::lognormal;
  for (const std::string& text : flags.stragglers) noise.stragglers.push_back(straggler_of(text));
  if (flags.zipf) {
    require<BadInput>(!shape.layer.capacity_factor,
                      "--zipf: found a capacity factor, with which every rank always sends its full capacity, "
                      "expected --capacity-factor none");
    const GatePart& gate = gate_of(shape.layer);
    require<BadInput>(!gate.fills_evenly(), "--zipf: found --gate {}, which fills every expert alike", gate.name);
    for (int layer = 0; layer < layers; ++layer)
      std::ranges::copy(loads(shape, ranks, popularity(shape.layer.experts, *flags.zipf, noise.seed, layer)),
                        std::back_inserter(noise.load));
  }
  try {
    check_noise(noise, ranks, layers);
  } catch (const BadInput& error) {
    bad_input("--{}", error.what());  // the error begins with the flag's name
  }
  return noise;
}

NoiseRow replay_with_noise(const NoiseFlags& flags, const LayerPricer& pricer, const Plan& plan, double even_s) {
  int stages = 1;  // all stages of a model; a single one for a layer
  for (const Lane& lane : plan.structure->lanes) stages = std::max(stages, lane.stage + 1);
  const RankNoise noise = noise_of(flags, plan.shape, stages, plan.layers);
  const int samples = noise.jitters() ? flags.samples.value_or(kNoiseSamples) : 1;
  return {plan.schedule, even_s, replay_ranks(plan, price(pricer, plan), pricer.profile().contention, noise, samples)};
}

std::string noise_text(const std::vector<NoiseRow>& rows) {
  if (rows.empty()) return {};
  Table table({"schedule", "even ms", "median ms", "p95 ms", "most ms", "median / even", "waiting of a rank"});
  for (const NoiseRow& row : rows) {
    const RankOutcome& o = row.outcome;
    table.add({row.schedule, fmt::format("{:.4f}", 1e3 * row.even_s), fmt::format("{:.4f}", 1e3 * o.median_s()),
               fmt::format("{:.4f}", 1e3 * o.p95_s()), fmt::format("{:.4f}", 1e3 * o.max_s()),
               fmt::format("{:.3f}", o.median_s() / row.even_s), human_seconds(o.mean_waiting_s())});
  }
  const RankOutcome& any = rows.front().outcome;
  return fmt::format("\n{}, {}\n{}", counted(any.rank_end_s.size(), "rank"), counted(any.makespan_s.size(), "sample"),
                     table.text());
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

namespace {

CaseRecord record_of(std::string key, const LayerResult& result, const Fields& parameters) {
  CaseRecord record = commands::planned_record(std::move(key), result);
  record.parameters = parameters;
  return record;
}

constexpr int kSweptDegrees = 64;  // largest degree of the sweep, which has a record for each

int max_degree(const Schedule& schedule, const LayerPricer& pricer) {
  return schedule.degrees == DegreePolicy::one ? 1 : std::min(kSweptDegrees, largest_degree(pricer));
}

}  // namespace

std::vector<TaskTimes> task_times(const Plan& plan, const Timeline& timeline) {
  std::vector<TaskTimes> rows;
  for (const Task& task : plan.tasks()) {
    const LaneKind lane = plan.structure->lanes[task.lane].kind;
    rows.push_back({task.name(), std::string(name_of(task.kind)), std::string(name_of(task.execution_phase())),
                    std::string(name_of(lane)), task.layer, task.chunk, task.chunks, timeline.start_s[task.id],
                    timeline.end_s[task.id]});
  }
  return rows;
}

CaseRecord timeline_record(const LayerResult& result, const Plan& plan, const Timeline& timeline,
                           const Fields& parameters) {
  CaseRecord record = record_of(fmt::format("simulate/{}", result.schedule), result, parameters);
  const auto& lanes = plan.structure->lanes;
  for (size_t i = 0; i < lanes.size(); ++i)
    record.prediction.set(fmt::format("{}_busy_s", name_of(lanes[i].kind)), timeline.lane_busy_s[i]);
  record.timeline = task_times(plan, timeline);
  return record;
}

std::vector<CaseRecord> degree_records(const Schedule& schedule, const LayerPricer& pricer, const Fields& parameters) {
  std::vector<CaseRecord> records;
  LayerSearch search;
  for (int r = 1; r <= max_degree(schedule, pricer); ++r) {
    const LayerResult result = search.tune(schedule, pricer, {r, r});
    const std::string key = fmt::format("degrees/{}/{}", schedule.name, r);
    CaseRecord& record = records.emplace_back(record_of(key, result, parameters));
    record.prediction.set("degree_bound_forward_s", result.degree_bound.forward_s);
    record.prediction.set("degree_bound_backward_s", result.degree_bound.backward_s);
    record.prediction.set("free_bound_forward_s", result.bound.forward_s);
    record.prediction.set("free_bound_backward_s", result.bound.backward_s);
  }
  return records;
}

}  // namespace moe::commands
