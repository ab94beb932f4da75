// Whole iterations in one order, `wave`, beside the best of all schedules that order one pass after the other. No paper
// prints these numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "moe/base/units.h"
#include "moe/plan/model_file.h"
#include "moe/search/model_search.h"
#include "moe/search/wave.h"
#include "reproduce/study.h"

namespace moe::reproduce {
namespace {

constexpr std::array kMicroBatches{1, 2, 4, 8};

struct BeyondCase {
  std::string cluster, name;
  ModelShape model;
};

struct TestbedLayer {
  int64_t batch, seq, model_dim, hidden_scale, heads;
  double capacity_factor;
  Ffn ffn;
};

// Six of FSMoE's 1458 layers on a testbed: each batch size twice, small and large ones.
constexpr std::array<TestbedLayer, 6> kTestbedLayers{{{1, 512, 2048, 3, 16, 1.2, Ffn::gpt},
                                                      {1, 2048, 4096, 2, 32, 2.4, Ffn::mixtral},
                                                      {2, 1024, 1024, 4, 16, 1.2, Ffn::gpt},
                                                      {2, 512, 2048, 2, 8, 2.4, Ffn::gpt},
                                                      {4, 1024, 4096, 4, 16, 1.2, Ffn::mixtral},
                                                      {4, 2048, 1024, 3, 32, 1.2, Ffn::mixtral}}};
constexpr int kTestbedDepth = 12, kModelDepth = 8;
constexpr std::array<std::string_view, 4> kModels{"qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "mixtral-7b"};

void add_testbed(const Profile& profile, std::vector<BeyondCase>& cases) {
  for (const TestbedLayer& row : kTestbedLayers) {
    LayerShape layer;
    layer.batch = row.batch;
    layer.seq = profile.name == "testbed-b" ? row.seq / 2 : row.seq;  // as the grids have it
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
         {complete(layer, ranks, Rounding::exact), kTestbedDepth, 1}});
  }
}

// Experts lie on all ranks; of a model that has fewer, each is sharded over the GPUs of a node.
void add_models(const Profile& profile, std::vector<BeyondCase>& cases) {
  for (const std::string_view name : kModels) {
    LayerShape layer = on_cluster(find_model(std::string(name)), profile.name).layer;
    layer.dtype = DType::bfloat16;
    ParallelShape ranks{.nodes = profile.nodes, .ranks_per_node = profile.ranks_per_node};
    if (layer.experts >= ranks.ranks()) {
      ranks.ep = ranks.ranks();
      ranks.mp = ranks.esp = 1;
    }
    cases.push_back({profile.name, std::string(name), {complete(layer, ranks, Rounding::ragged), kModelDepth, 1}});
  }
}

struct GainOfWave {
  std::string_view schedule;                       // the best other
  double best_s = 0, own = 0, two = 0, bound = 0;  // its iteration; how many times as fast are wave and the bound
};

// What has no price there, or no meaning, is left out. Lina's packing would change the layout.
GainOfWave gain_of_wave(ModelSearch& search, const Profile& profile, ModelShape model) {
  if (model.micro_batches > 1) model.order = PipelineOrder::one_f_one_b;
  const LayerPricer pricer(profile, model.shape);
  DegreeChoice choice;
  choice.fits = [&](const LayerCase& c, Flow) { return c.parallel == model.shape.parallel; };
  WaveResult best{{}, std::numeric_limits<double>::infinity(), {}};
  GainOfWave gain;
  double bound_s = wave_bound(pricer, model);
  for (const Schedule& schedule : schedules()) {
    try {
      const ModelResult found = search.tune(schedule, pricer, model, partition_strategies().front(), choice);
      bound_s = std::min(bound_s, found.bound_s);
      if (!search::better(found.total_s(), best.seconds)) continue;
      best = {found.plan, found.total_s(), {}};
      gain.schedule = schedule.name;
    } catch (const Unsupported&) {
    }
  }
  gain.best_s = best.seconds;
  gain.own = best.seconds / best_wave(pricer, model, model.layers + 1, best).seconds;
  gain.two = best.seconds / best_wave(pricer, model, 2 * model.layers, best).seconds;
  gain.bound = best.seconds / bound_s;
  return gain;
}

std::string factor(double value) { return fmt::format("{:.3f}", value); }

// The logarithms of gains, by cluster, memory and number of micro-batches.
using Gains = std::map<std::string, std::map<std::pair<std::string, int>, std::vector<double>>>;

double mean_gain(const std::vector<double>& logarithms) {
  double sum = 0;
  for (const double value : logarithms) sum += value;
  return std::exp(sum / static_cast<double>(logarithms.size()));
}

TextTable means_table(const Gains& gains) {
  TextTable table{"how many times as fast as the best other schedule: geometric means of a cluster's cases", {}, {}};
  table.header = {"cluster", "memory"};
  for (const int m : kMicroBatches) table.header.push_back(fmt::format("m = {}", m));
  for (const auto& [cluster, by_memory] : gains)
    for (const std::string memory : {"own", "two"}) {
      table.rows.push_back({cluster, memory});
      for (const int m : kMicroBatches) table.rows.back().push_back(factor(mean_gain(by_memory.at({memory, m}))));
    }
  return table;
}

}  // namespace

Report beyond(Study&) {
  Report report{.key = "beyond",
                .title = "whole iterations in one order (wave), planned only",
                .source =
                    "No paper. `wave` orders the tasks of all layers and micro-batches at once, and the executor does "
                    "not run such plans yet: these are replays of plans, and nothing of it is measured."};
  std::vector<BeyondCase> cases;
  std::map<std::string, Profile> profiles;
  const auto profile = [&](std::string_view name) -> const Profile& {
    return profiles.emplace(name, find_profile(std::string(name))).first->second;
  };
  for (const std::string_view name : {"testbed-a", "testbed-b"}) add_testbed(profile(name), cases);
  for (const int nodes : {2, 4, 8}) add_models(profile(fmt::format("h100-deepep-{}-nodes", nodes)), cases);

  Comparison means{.caption = "geometric means", .label_names = {"cluster", "memory", "m"}, .drawn = false};
  Comparison all{.caption = "cases", .label_names = {"cluster", "case", "m", "memory"}, .drawn = false};
  TextTable table{"each case: iteration under the best other schedule, how many times as fast wave is, and the bound",
                  {"cluster", "case", "m", "best other", "ms", "own", "two", "bound"},
                  {}};
  Gains gains;
  ModelSearch search(false);
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (BeyondCase& c : cases)
    for (const int m : kMicroBatches) {
      c.model.micro_batches = m;
      c.model.step.planned = true;
      const GainOfWave found = gain_of_wave(search, profiles.at(c.cluster), c.model);
      const std::string count = fmt::format("{}", m);
      table.rows.push_back({c.cluster, c.name, count, std::string(found.schedule),
                            fmt::format("{:.1f}", found.best_s * 1e3), factor(found.own), factor(found.two),
                            factor(found.bound)});
      for (const auto& [memory, gain] : {std::pair<std::string, double>{"own", found.own}, {"two", found.two}}) {
        all.figures.push_back({{c.cluster, c.name, count, memory}, "", std::nullopt, gain});
        gains[c.cluster][{memory, m}].push_back(std::log(gain));
        least = std::min(least, gain);
        most = std::max(most, gain);
      }
    }
  for (const auto& [cluster, by_memory] : gains)
    for (const auto& [key, logarithms] : by_memory)
      means.figures.push_back(
          {{cluster, key.first, fmt::format("{}", key.second)}, "", std::nullopt, mean_gain(logarithms)});
  report.tables = {means_table(gains), std::move(table)};
  report.comparisons = {std::move(means), std::move(all)};
  report.shows = {
      fmt::format("Of {} cases none is slower than under the best other schedule, whose plan is a "
                  "candidate; {:.3f} is the least, {:.3f} the most.",
                  cases.size() * kMicroBatches.size(), least, most)};
  report.unexplained = {
      "No plan of these has run. What lanes lose side by side is unknown on these clusters, and prices differ from "
      "those of a run: both change what an order gains."};
  report.conventions = {
      fmt::format(
          "{} layers on the testbeds, six of FSMoE's 1458 each (B, L, M, H); {} layers of the models elsewhere, "
          "all with experts, B = 1, L = 4096, bfloat16; m micro-batches on one stage",
          kTestbedDepth, kModelDepth),
      "experts over all ranks; of mixtral-7b, which has fewer than ranks, each sharded over the GPUs of a node, "
      "attention too; on the testbeds as FSMoE's grids have it",
      "memory: activations of one layer more than one micro-batch has (own), of two micro-batches (two)",
      "best other: the fastest of all schedules with exact degrees and partition, 1F1B, its micro-batches whole; all "
      "on the "
      "same layout, which lina-packed may not change",
      "an iteration sums all gradients, those of experts over EDP and of gates and norms too; the optimizer's update "
      "is left out",
      fmt::format(
          "wave: r_f and r_b from 1 to {}, others for the first forward and the last backward; a micro-batch of "
          "several samples is cut into up to {} smaller ones in all, which in a layer that drops tokens changes "
          "which ones",
          kMostWaveDegree, kMostCutMicroBatches),
      "bound: the work of the busiest lane, or one micro-batch's tasks in sequence, whatever the order; of the best "
      "other schedules' own bounds and this one, the least"};
  return report;
}

}  // namespace moe::reproduce
