// Compares whole iterations in one order (`wave`) with the best schedule that orders one pass after the other. No paper
// prints these numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "commands/reproduce/study.h"
#include "moe/base/random.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/search/model_search.h"
#include "moe/search/wave.h"
#include "moe/shape/model_file.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::reproduce {
namespace {

constexpr std::array kMicroBatches{1, 2, 4, 8};

struct BeyondCase {
  std::string cluster, name;  // of all stages together; of the layer or model
  const Profile* profile;
  ModelShape model;
};

struct TestbedLayer {
  int64_t batch, seq, model_dim, hidden_scale, heads;
  double capacity_factor;
  Ffn ffn;
};

// Six of FSMoE's 1458 layers on a testbed: each batch size twice, with a small and a large layer.
constexpr std::array<TestbedLayer, 6> kTestbedLayers{{{1, 512, 2048, 3, 16, 1.2, Ffn::gpt},
                                                      {1, 2048, 4096, 2, 32, 2.4, Ffn::mixtral},
                                                      {2, 1024, 1024, 4, 16, 1.2, Ffn::gpt},
                                                      {2, 512, 2048, 2, 8, 2.4, Ffn::gpt},
                                                      {4, 1024, 4096, 4, 16, 1.2, Ffn::mixtral},
                                                      {4, 2048, 1024, 3, 32, 1.2, Ffn::mixtral}}};
constexpr int kTestbedDepth = 12, kModelDepth = 8;
constexpr std::array<std::string_view, 4> kModels{"qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "mixtral-7b"};
constexpr std::array<std::string_view, 2> kStagedModels{"qwen3-235b-a22b", "deepseek-v3"};
constexpr std::array kMicroBatchesOfStages{4, 8, 16};

void add_testbed(const Profile& profile, std::vector<BeyondCase>& cases) {
  for (const TestbedLayer& row : kTestbedLayers) {
    LayerShape layer;
    layer.batch = row.batch;
    layer.seq = profile.name == "testbed-b" ? row.seq / 2 : row.seq;  // as in the grids
    layer.model_dim = row.model_dim;
    layer.hidden = row.hidden_scale * row.model_dim;
    layer.heads = layer.kv_heads = row.heads;
    layer.experts = profile.nodes;
    layer.top_k = 1;
    layer.capacity_factor = row.capacity_factor;
    layer.ffn = row.ffn;
    const ParallelShape ranks{.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node};
    cases.push_back(
        {profile.name,
         fmt::format("B{} L{} M{} H{} {}", layer.batch, layer.seq, layer.model_dim, layer.hidden, name_of(layer.ffn)),
         &profile,
         {complete(layer, ranks, Rounding::exact), kTestbedDepth, 1}});
  }
}

// Adds models whose stages each span all nodes of the profile. Experts are spread over all ranks; if a model has fewer
// experts, each one is sharded over the GPUs of a node.
void add_models(const Profile& profile, int stages, std::span<const std::string_view> names,
                std::vector<BeyondCase>& cases) {
  for (const std::string_view name : names) {
    LayerShape layer = model_on_cluster(find_model(std::string(name)), profile.name).layer;
    layer.dtype = DType::bfloat16;
    ParallelShape ranks{.nodes = profile.nodes * stages, .ranks_per_node = profile.ranks_per_node};
    ranks.pp = stages;
    if (layer.experts >= ranks.ranks() / stages) {
      ranks.ep = ranks.ranks() / stages;
      ranks.mp = ranks.esp = 1;
    }
    cases.push_back({stages == 1 ? profile.name : fmt::format("{} stages of {}", stages, profile.name),
                     std::string(name),
                     &profile,
                     {complete(layer, ranks, Rounding::ragged), kModelDepth, 1}});
  }
}

// The resources of wave: activations of one layer more than a micro-batch has (or, under 1F1B, the first stage), or of
// more micro-batches; and whether it may also cut samples.
struct Allowance {
  std::string_view name;
  int micro_batches = 0, sample_parts = 1;

  WaveChoice choice(const ModelShape& model) const {
    return {.keep = raised_kept_layers(model, micro_batches), .cuts_batches = true, .sample_parts = sample_parts};
  }
};
constexpr std::array<Allowance, 3> kAllowances{{{"own"}, {"two", 1}, {"own, parts", 0, 2}}};

struct WaveGain {
  std::string_view schedule;  // the best other schedule
  WaveResult other;
  std::array<WaveResult, kAllowances.size()> waves;
  double bound = 0;  // upper bound on the speedup of any order

  double gain(size_t allowance) const { return other.seconds / waves.at(allowance).seconds; }
};

// Schedules without a price or a meaning here are left out. Lina's packing is excluded, because it changes the layout.
WaveGain gain_of_wave(ModelSearch& search, const Profile& profile, ModelShape model) {
  if (model.micro_batches > 1) model.order = PipelineOrder::one_f_one_b;
  const LayerPricer pricer(profile, model.shape);
  DegreeChoice choice;
  choice.fits = [&](const LayerCase& c, Flow) { return c.parallel == model.shape.parallel; };
  WaveGain gain;
  gain.other.seconds = std::numeric_limits<double>::infinity();
  double bound_s = std::numeric_limits<double>::infinity();
  for (const Allowance& allowance : kAllowances)
    bound_s = std::min(bound_s, wave_bound(pricer, model, allowance.choice(model)));
  for (const Schedule& schedule : schedules()) {
    try {
      const ModelResult found = search.tune(schedule, pricer, model, choice);
      bound_s = std::min(bound_s, found.bound_s);
      if (!search::is_better(found.total_s(), gain.other.seconds)) continue;
      gain.other = {found.plan, found.total_s(), {}};
      gain.schedule = schedule.name;
    } catch (const Unsupported&) {
    }
  }
  for (size_t i = 0; i < kAllowances.size(); ++i)
    gain.waves[i] = search_wave(pricer, model, kAllowances[i].choice(model), gain.other);
  gain.bound = gain.other.seconds / bound_s;
  return gain;
}

// Disturbances: deviations from the prices with which an order was found. Both plans stay unchanged.
constexpr int kDraws = 200, kDisturbedMicroBatches = 4;
constexpr double kPriceError = 0.1, kSlowdown = 1.15, kLaunchSeconds = 10e-6;
struct DisturbedSeconds {
  double median = 0, worst = 0;  // over kDraws, with the price of every kind of task too high or too low
  double slowed = 0;             // with lanes that slow each other
  double launched = 0;           // with a launch added to every task
};

using SecondsOf = std::function<double(const Task&, double)>;

double disturbed_s(const Plan& plan, const std::vector<double>& priced, const Contention& contention,
                   const SecondsOf& seconds_of) {
  std::vector<double> seconds = priced;
  for (const Task& task : plan.tasks()) {
    seconds[task.id] = seconds_of(task, priced[task.id]);
  }
  return timeline_of(plan, seconds, contention).makespan_s;
}

DisturbedSeconds disturbed(const Profile& profile, const Plan& other, const Plan& wave) {
  const std::vector<double> other_s = price(LayerPricer(profile, other.shape), other);
  const std::vector<double> wave_s = price(LayerPricer(profile, wave.shape), wave);
  const auto gain = [&](const Contention& contention, const SecondsOf& seconds_of) {
    return disturbed_s(other, other_s, contention, seconds_of) / disturbed_s(wave, wave_s, contention, seconds_of);
  };
  const auto as_priced = [](const Task&, double seconds) { return seconds; };
  std::vector<double> draws;
  for (uint64_t draw = 0; draw < kDraws; ++draw)
    draws.push_back(gain({}, [draw](const Task& task, double seconds) {
      const auto kind = static_cast<uint64_t>(task.kind) * kPhases + static_cast<uint64_t>(task.phase);
      return seconds * (1 + kPriceError * (2 * random_uniform(draw, random_stream_id("prices"), kind) - 1));
    }));
  Contention contention;
  for (const ContentionPair& pair : contention_pairs()) contention.*pair.factor = kSlowdown;
  const auto launched = [](const Task& task, double seconds) {
    return task.kind == TaskKind::optimizer ? seconds : seconds + kLaunchSeconds;
  };
  return {median(draws), *std::ranges::min_element(draws), gain(contention, as_priced), gain({}, launched)};
}

std::string factor(double value) { return fmt::format("{:.3f}", value); }

// Logarithms of gains by cluster, memory and number of micro-batches.
using Gains = std::map<std::string, std::map<std::pair<std::string, int>, std::vector<double>>>;

double mean_gain(const std::vector<double>& logarithms) {
  double sum = 0;
  for (const double value : logarithms) sum += value;
  return std::exp(sum / static_cast<double>(logarithms.size()));
}

// Returns a table with a row for each cluster and memory, and a column for each of `columns`.
TextTable gains_table(std::string caption, const Gains& gains,
                      const std::vector<std::pair<int, std::string>>& columns) {
  TextTable table{std::move(caption), {"cluster", "memory"}, {}};
  for (const auto& [column, title] : columns) table.header.push_back(title);
  for (const auto& [cluster, by_memory] : gains)
    for (const Allowance& allowance : kAllowances) {
      const std::string memory(allowance.name);
      table.rows.push_back({cluster, memory});
      for (const auto& [column, title] : columns)
        table.rows.back().push_back(factor(mean_gain(by_memory.at({memory, column}))));
    }
  return table;
}

TextTable means_table(std::string_view of, const Gains& gains, std::span<const int> micro_batches) {
  std::vector<std::pair<int, std::string>> columns;
  for (const int m : micro_batches) columns.emplace_back(m, fmt::format("m = {}", m));
  return gains_table(
      fmt::format("{}: how many times as fast as the best other schedule, geometric means of a cluster's cases", of),
      gains, columns);
}

TextTable disturbed_table(const Gains& gains) {
  return gains_table(
      fmt::format("the same two plans at m = {} if tasks take other times than they were planned with",
                  kDisturbedMicroBatches),
      gains, {{0, "as priced"}, {1, "prices +-10 %"}, {2, "worst draw"}, {3, "contention 1.15"}, {4, "10 us a task"}});
}

TextTable cases_table(std::string_view of) {
  return {fmt::format("{}, each case: iteration under the best other schedule, how many times as fast wave is, and the "
                      "bound",
                      of),
          {"cluster", "case", "m", "best other", "ms", "own", "two", "own, parts", "bound"},
          {}};
}

// The gains of all cases.
class GainTables {
 public:
  // Adds the gains of a case for several numbers of micro-batches.
  void add(BeyondCase c, std::span<const int> micro_batches, Gains& gains, TextTable& table) {
    c.model.step.planned = true;
    for (const int m : micro_batches) {
      c.model.micro_batches = m;
      const WaveGain found = gain_of_wave(search_, *c.profile, c.model);
      table.rows.push_back({c.cluster, c.name, fmt::format("{}", m), std::string(found.schedule),
                            fmt::format("{:.1f}", found.other.seconds * 1e3), factor(found.gain(0)),
                            factor(found.gain(1)), factor(found.gain(2)), factor(found.bound)});
      for (size_t i = 0; i < kAllowances.size(); ++i) {
        const std::string memory(kAllowances[i].name);
        const double gain = found.gain(i);
        all.figures.push_back({{c.cluster, c.name, fmt::format("{}", m), memory}, "", std::nullopt, gain});
        gains[c.cluster][{memory, m}].push_back(std::log(gain));
        least = std::min(least, gain);
        most = std::max(most, gain);
        if (m != kDisturbedMicroBatches) continue;
        const DisturbedSeconds off = disturbed(*c.profile, found.other.plan, found.waves[i].plan);
        int column = 0;
        for (const double value : {gain, off.median, off.worst, off.slowed, off.launched})
          others[c.cluster][{memory, column++}].push_back(std::log(value));
      }
    }
  }

  Comparison all{.caption = "cases", .label_names = {"cluster", "case", "m", "memory"}, .comparison_table = false};
  Gains others;  // gains of the same plans if tasks take other times
  double least = std::numeric_limits<double>::infinity(), most = 0;

 private:
  ModelSearch search_{false};
};

}  // namespace

Report beyond(Study&) {
  Report report{.key = "beyond",
                .title = "whole iterations in one order (wave), replayed",
                .source =
                    "No paper. `wave` orders the tasks of all layers and micro-batches at once. These are replays of "
                    "plans, and nothing of it is measured."};
  std::map<std::string, Profile> profiles;
  const auto profile = [&](std::string_view name) -> const Profile& {
    return profiles.emplace(name, find_profile(std::string(name))).first->second;
  };
  const auto of_nodes = [&](int nodes) -> const Profile& {
    return profile(fmt::format("h100-deepep-{}-nodes", nodes));
  };
  std::vector<BeyondCase> cases, staged;
  for (const std::string_view name : {"testbed-a", "testbed-b"}) add_testbed(profile(name), cases);
  for (const int nodes : {2, 4, 8}) add_models(of_nodes(nodes), 1, kModels, cases);
  for (const int nodes : {2, 4})
    for (const int stages : {2, 4}) add_models(of_nodes(nodes), stages, kStagedModels, staged);

  GainTables gathered;
  constexpr std::string_view kOne = "one stage", kSeveral = "several stages";
  Gains gains, gains_of_stages;
  TextTable each = cases_table(kOne), each_of_stages = cases_table(kSeveral);
  for (const BeyondCase& c : cases) gathered.add(c, kMicroBatches, gains, each);
  for (const BeyondCase& c : staged) gathered.add(c, kMicroBatchesOfStages, gains_of_stages, each_of_stages);
  Comparison means{.caption = "geometric means", .label_names = {"cluster", "memory", "m"}, .comparison_table = false};
  for (const Gains* of : {&gains, &gains_of_stages})
    for (const auto& [cluster, by_memory] : *of)
      for (const auto& [key, logarithms] : by_memory)
        means.figures.push_back(
            {{cluster, key.first, fmt::format("{}", key.second)}, "", std::nullopt, mean_gain(logarithms)});
  report.tables = {means_table(kOne, gains, kMicroBatches),
                   means_table(kSeveral, gains_of_stages, kMicroBatchesOfStages), disturbed_table(gathered.others),
                   std::move(each), std::move(each_of_stages)};
  report.comparisons = {std::move(means), std::move(gathered.all)};
  report.shows = {
      fmt::format("Of {} cases none is slower than under the best other schedule, whose plan is a "
                  "candidate; {:.3f} is the least, {:.3f} the most.",
                  report.comparisons.back().figures.size() / kAllowances.size(), gathered.least, gathered.most)};
  report.unexplained = {
      "No plan of these has run. What lanes lose side by side is unknown on these clusters, and prices differ from "
      "those of a run: both change what an order gains."};
  report.conventions = {
      fmt::format(
          "{} layers on the testbeds, six of FSMoE's 1458 each (B, L, M, H); {} layers of the models elsewhere, "
          "all with experts, B = 1, L = 4096, bfloat16; m micro-batches",
          kTestbedDepth, kModelDepth),
      "several stages: each on the nodes named, 8 layers in all, neither embedding nor output projection",
      "experts over all ranks of a stage; of mixtral-7b, which has fewer than ranks, each sharded over the GPUs of a "
      "node, attention too; on the testbeds as FSMoE's grids have it",
      "own, parts: the memory of own, and samples may be cut into two parts (--parts 2), whose attention keeps "
      "gradients of keys and values, too; in a layer that drops tokens that changes which ones",
      "memory: activations of one layer more than one micro-batch has (own), of two micro-batches (two); with stages "
      "of one layer, or one micro-batch, more than the first stage has in flight under 1F1B, on each of them",
      "best other: the fastest of all schedules with exact degrees and partition, 1F1B, its micro-batches whole; all "
      "on the same layout, which lina-packed may not change",
      "an iteration sums all gradients, those of experts over EDP and of gates and norms too; the optimizer's update "
      "is left out",
      fmt::format(
          "wave: r_f and r_b from 1 to {}, others for the first forward and the last backward; a micro-batch of "
          "several samples is cut into up to {} smaller ones in all, which in a layer that drops tokens changes "
          "which ones",
          kMaxWaveDegree, kMaxCutMicroBatches),
      fmt::format("other times: each kind of task in each phase by {} draws within 10 % (the median and the worst), "
                  "every lane slowed by every other while both are busy, and every task longer by a launch",
                  kDraws),
      "bound: the busiest lane's work with what leads to it and follows it, or tasks in sequence, whatever the order; "
      "of the best other schedules' own bounds and this one, the least"};
  return report;
}

}  // namespace moe::reproduce
