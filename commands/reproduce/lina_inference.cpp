#include "commands/reproduce/lina_inference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "commands/reproduce/lina.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/serve/synthetic_routing.h"
#include "moe/shape/model_file.h"

namespace moe::reproduce {
namespace {

constexpr std::string_view kInferenceCluster = "lina-inference";
constexpr int kServingGpusPerNode = 4, kPathLength = 3;  // section 7.1
const std::array<std::string, 2> kServedModels{"transformer-xl", "bert-large"};

double value_of(const Assumptions& assumed, std::string_view name) {
  const auto value = assumed.value(name);
  require<BadInput>(value.has_value() && *value >= 0, "{}: value: found no {} of at least 0, expected one",
                    assumed.file, name);
  return *value;
}

double p95(const std::vector<double>& values) { return quantile(values, 0.95); }

// All runs of a report, each computed once; none without assumptions.
class Runs {
 public:
  explicit Runs(const Assumptions* assumed) : assumed_(assumed) {}
  bool any() const { return assumed_ != nullptr; }
  const InferenceResult& result(const InferenceRun& run) {
    const auto found = results_.find(run.key());
    if (found != results_.end()) return found->second;
    return results_.emplace(run.key(), served(run, *assumed_)).first->second;
  }
  const ServingResult& result(const InferenceRun& run, std::string_view variant) {
    return result(run).variants.find(variant)->second;
  }

 private:
  const Assumptions* assumed_;
  std::map<std::tuple<std::string, int, int, int>, InferenceResult> results_;
};

using Row = PrintedInference;

// Returns the 95th percentile of the AlltoAll's seconds of one of `layers` layers over all batches.
double p95_of_layer(const ServingResult& result, int layer, int layers) {
  std::vector<double> seconds;
  for (size_t i = static_cast<size_t>(layer); i < result.alltoall_s.size(); i += static_cast<size_t>(layers))
    seconds.push_back(result.alltoall_s[i]);
  return p95(seconds);
}

// Returns a number that the paper prints over both models and the layers from the path's length on: the share of
// batches placed again, or how many times Lina shortens a layer's AlltoAll, in the mean or at most.
double mean_over_models(const Row& row, Runs& runs) {
  double sum = 0, most = 0;
  int count = 0;
  for (const std::string& model : kServedModels) {
    const InferenceRun run{model, row.experts};
    const ServingResult& lina = runs.result(run, "lina-serve");
    if (row.metric == "placed_again") {
      sum += lina.placed_again_share();
      ++count;
      continue;
    }
    const ServingResult& uniform = runs.result(run, "uniform");
    const int layers = runs.result(run).layers;
    for (int layer = run.length; layer < layers; ++layer, ++count) {
      const double reduction = p95_of_layer(uniform, layer, layers) / p95_of_layer(lina, layer, layers);
      sum += reduction;
      most = std::max(most, reduction);
    }
  }
  return row.metric == "alltoall_most" ? most : sum / count;
}

// Returns our number for a printed one, by the definition of its metric; none if it cannot be computed.
std::optional<double> our_value(const Row& row, Runs& runs) {
  if (!runs.any() || row.metric.starts_with("table6_")) return std::nullopt;
  InferenceRun run{row.model, row.experts};
  const auto variant = [&](std::string_view name) -> const ServingResult& { return runs.result(run, name); };
  const auto speedup = [&](double (*of)(const std::vector<double>&), std::vector<double> ServingResult::*seconds) {
    return of(variant("uniform").*seconds) / of(variant("lina-serve").*seconds);
  };
  const auto p50 = [](const std::vector<double>& values) { return median(values); };
  if (row.metric == "median_speedup") return speedup(p50, &ServingResult::batch_s);
  if (row.metric == "p95_speedup") return speedup(p95, &ServingResult::batch_s);
  if (row.metric == "layer_p95_speedup") return speedup(p95, &ServingResult::layer_s);
  if (row.metric == "no_estimation_median")
    return median(variant("no-estimation").batch_s) / median(variant("lina-serve").batch_s) - 1;
  if (row.metric == "no_fine_tuning_p95")
    return p95(variant("no-fine-tuning").batch_s) / p95(variant("lina-serve").batch_s) - 1;
  if (row.metric == "accuracy") return variant("lina-serve").accuracy();
  if (row.metric == "most_over_least") return runs.result(run).routing.most_over_least;
  if (row.metric == "next_expert_share")
    return row.length == 1 ? runs.result(run).routing.pattern_1 : runs.result(run).routing.pattern_2;
  if (row.metric.starts_with("norm_") || row.metric.starts_with("table5_")) {
    run.length = row.length;
    const ServingResult& lina = variant("lina-serve");
    if (row.metric == "norm_median") return median(lina.batch_s) / median(variant("ideal").batch_s);
    if (row.metric == "norm_p95") return p95(lina.batch_s) / p95(variant("ideal").batch_s);
    return row.metric == "table5_accuracy" ? lina.accuracy() : lina.placed_again_share();
  }
  if (row.metric.starts_with("alltoall_ms") || row.metric.starts_with("alltoall_share")) {
    run.layers = row.length;
    const ServingResult& uniform = variant("uniform");
    const double sum = std::accumulate(uniform.alltoall_s.begin(), uniform.alltoall_s.end(), 0.0);
    const double batch = std::accumulate(uniform.batch_s.begin(), uniform.batch_s.end(), 0.0);
    return row.metric == "alltoall_share" ? sum / batch : sum / static_cast<double>(uniform.batch_s.size());
  }
  return mean_over_models(row, runs);
}

struct Metric {
  std::string_view metric, label;
};

// Compares all rows of some metrics.
Comparison compared(std::string caption, Quantity quantity, const std::vector<Metric>& metrics, std::string_view third,
                    Runs& runs) {
  Comparison c{.caption = std::move(caption), .label_names = {"number", "model", "experts"}, .quantity = quantity};
  if (!third.empty()) c.label_names.emplace_back(third);
  const std::vector<Row> rows = printed_lina_inference();
  for (const auto& [metric, label] : metrics)
    for (const Row& row : rows) {
      if (row.metric != metric) continue;
      const double unit = row.metric == "alltoall_ms" ? 1e-3 : 1;
      Figure figure{{std::string(label), row.model, fmt::format("{}", row.experts)}, "", row.value * unit, {}};
      if (!third.empty()) figure.labels.push_back(fmt::format("{}", row.length));
      figure.ours = our_value(row, runs);
      c.figures.push_back(std::move(figure));
    }
  return c;
}

double printed_value(std::string_view metric, std::string_view model, int experts, int length) {
  for (const Row& row : printed_lina_inference())
    if (row.metric == metric && row.model == model && row.experts == experts && row.length == length) return row.value;
  bad_input("lina-inference: found no {} of {}, expected one", metric, model);
}

// Compares a batch in which AlltoAll takes no time with the printed value for placed experts.
Comparison without_alltoall() {
  Comparison c{.caption = "the median batch's speedup, and that of a batch whose AlltoAll took no time (Table 1)",
               .label_names = {"model", "experts"}};
  for (const int experts : {4, 16}) {
    const double share = printed_value("alltoall_share", "transformer-xl", experts, 12);
    c.figures.push_back({{"transformer-xl", fmt::format("{}", experts)},
                         "no AlltoAll at all",
                         printed_value("median_speedup", "transformer-xl", experts, 3),
                         1 / (1 - share)});
  }
  return c;
}

std::vector<std::string> from_print() {
  const double most = printed_value("alltoall_share", "transformer-xl", 4, 12);
  std::vector<std::string> unexplained{fmt::format(
      "With 4 experts, AlltoAll takes {:.1f} % of Transformer-XL's inference (Table 1), so a batch without "
      "any would be {:.2f}x as fast; {:.2f}x is printed in the median. Shorter waits for the slowest expert "
      "must give the rest, and no share of those is printed but the most, 29.4 % of a batch.",
      100 * most, 1 / (1 - most), printed_value("median_speedup", "transformer-xl", 4, 3))};
  for (const std::string& model : kServedModels) {
    const double sum =
        printed_value("table5_accuracy", model, 16, 1) + printed_value("table5_placed_again", model, 16, 1);
    if (sum > 1)
      unexplained.push_back(fmt::format(
          "Table 5, {}, path length 1: accuracy and share of fine-tuning add up to {:.1f} %, though a layer "
          "whose lists are identical needs none.",
          model, 100 * sum));
  }
  return unexplained;
}

// Adds the differences that may come from the synthetic routing.
void add_differences(Runs& runs, std::vector<std::string>& unexplained) {
  InferenceRun run{kServedModels[0]};
  const double cost = p95(runs.result(run, "no-fine-tuning").batch_s) / p95(runs.result(run, "lina-serve").batch_s) - 1;
  unexplained.push_back(
      fmt::format("Without fine-tuning the 95th percentile of Transformer-XL's batches changes by {:+.1f} % here and "
                  "by {:+.1f} % in "
                  "print. Wrong estimates of this source confuse experts of nearly equal popularity, which costs less "
                  "than checking "
                  "every layer; print tells of popular experts that were packed, which a trace would have to show.",
                  100 * cost, 100 * printed_value("no_fine_tuning_p95", kServedModels[0], 16, 3)));
  std::array<double, 2> accuracy{};
  for (size_t i = 0; i < accuracy.size(); ++i) {
    run.length = i == 0 ? 1 : 6;
    accuracy[i] = runs.result(run, "lina-serve").accuracy();
  }
  unexplained.push_back(fmt::format(
      "Longer paths make printed estimates better, from {:.1f} % right at length 1 to {:.1f} at 6 (Transformer-XL). Of "
      "this source they are {:.1f} and {:.1f} %: one layer tells a batch's popularity as well as three, and paths of "
      "six "
      "are too rare in the profile. Real routing must depend on more than a token's class.",
      100 * printed_value("table5_accuracy", kServedModels[0], 16, 1),
      100 * printed_value("table5_accuracy", kServedModels[0], 16, 6), 100 * accuracy[0], 100 * accuracy[1]));
}

// Returns the findings of a run beyond the printed numbers.
std::vector<std::string> findings(Runs& runs, const Assumptions& assumed) {
  const InferenceRun run{kServedModels[0]};
  const ServingResult &uniform = runs.result(run, "uniform"), &lina = runs.result(run, "lina-serve"),
                      &ideal = runs.result(run, "ideal");
  const double alltoall = std::accumulate(uniform.alltoall_s.begin(), uniform.alltoall_s.end(), 0.0) /
                          std::accumulate(uniform.batch_s.begin(), uniform.batch_s.end(), 0.0);
  const double layers = std::accumulate(uniform.layer_s.begin(), uniform.layer_s.end(), 0.0) /
                        std::accumulate(uniform.batch_s.begin(), uniform.batch_s.end(), 0.0);
  std::vector<std::string> shows{
      fmt::format("Transformer-XL with 16 experts spends {:.1f} % of a uniform batch in AlltoAll and {:.1f} % in MoE "
                  "layers altogether. A balanced gate makes it {:.2f}x as fast, which no placement exceeds, and "
                  "lina-serve {:.2f}x. Figure 16's {:.2f}x does not follow from Table 1's share of "
                  "AlltoAll here.",
                  100 * alltoall, 100 * layers, median(uniform.batch_s) / median(ideal.batch_s),
                  median(uniform.batch_s) / median(lina.batch_s),
                  printed_value("median_speedup", kServedModels[0], 16, 3)),
      fmt::format("In this run the mean rank waits {:.1f} % of a uniform batch for others, and the one that waits most "
                  "{:.1f} %; the paper measured 29.4 % of the least popular expert's.",
                  100 * mean(uniform.idle), 100 * mean(uniform.most_idle)),
      fmt::format("Experts that were placed take {:.0f} MB of a GPU, and {:.0f} MB where they stay; every host keeps "
                  "{:.1f} GB of weights.",
                  1e-6 * static_cast<double>(lina.device_bytes), 1e-6 * static_cast<double>(uniform.device_bytes),
                  1e-9 * static_cast<double>(lina.host_bytes))};
  Assumptions late = assumed;
  for (AssumedValue& value : late.values)
    if (value.name == "schedule_s") value.value = value_of(assumed, "reschedule_s");
  const InferenceResult blocked = served(run, late);
  shows.push_back(fmt::format(
      "If a placement before the gate took as long as one behind it, {:.2f} ms beside an expert that takes less, "
      "lina-serve would be {:.2f}x as fast as uniform in the median: how Lina hides it matters more than how well it "
      "places.",
      1e3 * value_of(assumed, "reschedule_s"),
      median(blocked.variants.at("uniform").batch_s) / median(blocked.variants.at("lina-serve").batch_s)));
  return shows;
}

}  // namespace

LayerCase inference_case(const InferenceRun& run, const Assumptions& assumed) {
  LayerShape layer = find_model(run.model).layer;
  layer.batch = std::max<int64_t>(1, std::llround(value_of(assumed, "tokens") / static_cast<double>(layer.seq)));
  layer.capacity_factor = std::nullopt;
  layer.experts = run.experts;
  layer.top_k = 1;
  ParallelShape p;
  p.ranks_per_node = std::min(run.experts, kServingGpusPerNode);
  p.nodes = run.experts / p.ranks_per_node;
  p.mp = p.esp = 1;
  p.ep = p.dp = run.experts;
  return complete(layer, p, Rounding::ragged);
}

Profile inference_profile(const InferenceRun& run, const Assumptions& assumed) {
  Profile profile;
  profile.name = kInferenceCluster;
  profile.nodes = profile.ranks_per_node = kServingGpusPerNode;
  profile = with_assumed_rows(profile, &assumed);
  const LayerCase largest = inference_case({run.model}, assumed);
  const LayerPricer pricer(profile, largest);
  const double rows = static_cast<double>(largest.layer.batch * largest.layer.seq) / largest.parallel.ep;
  ComputeRow gemm;
  gemm.op = Op::gemm;
  gemm.dtype = largest.layer.dtype;
  gemm.beta_s_per_flop = value_of(assumed, "dense_s") / attention_flops(largest);
  ComputeRow expert = gemm;
  expert.op = Op::expert;
  expert.ffn = largest.layer.ffn;
  const double alltoall_s = pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, rows);
  expert.beta_s_per_flop =
      alltoall_s * expert_to_alltoall_ratio(printed_lina_text("layer_share")) / moe_volumes(largest, rows).expert_flops;
  profile.compute = {gemm, expert};
  return profile;
}

InferenceResult served(const InferenceRun& run, const Assumptions& assumed) {
  const LayerCase shape = inference_case(run, assumed);
  const Profile profile = inference_profile(run, assumed);
  const LayerPricer pricer(profile, shape);
  ServingSetup setup;
  setup.costs = {.estimate_s = value_of(assumed, "estimate_s"),
                 .schedule_s = value_of(assumed, "schedule_s"),
                 .reschedule_s = value_of(assumed, "reschedule_s"),
                 .check_s = value_of(assumed, "check_s") / 2,
                 .broadcast_s = value_of(assumed, "check_s") / 2,
                 .swap_bytes_per_s = value_of(assumed, "swap_bytes_per_s")};
  setup.weight = std::max<int64_t>(1, std::llround(value_of(assumed, "alike")));
  Serving serving(pricer, setup);
  const SyntheticRouting source{.layers = run.layers > 0 ? run.layers : find_model(run.model).layers,
                                .experts = run.experts,
                                .skew = value_of(assumed, fmt::format("skew_{}", run.experts)),
                                .correlation = value_of(assumed, "correlation"),
                                .drift = value_of(assumed, "drift")};
  const int64_t tokens = shape.layer.batch * shape.layer.seq * run.experts / setup.weight;
  const auto profiled = std::llround(value_of(assumed, "profiled_batches"));
  const auto batches = std::llround(value_of(assumed, "served_batches"));
  const RoutingTrace trace = generate_routing(source, batches, tokens, profiled);
  InferenceResult result{.routing = statistics_of(trace), .layers = source.layers, .variants = {}};
  std::optional<PathProfile> paths;
  if (run.layers == 0) paths.emplace(generate_routing(source, profiled, tokens), run.length);
  const auto is_needed = [&](const ServingVariant& variant) {
    if (!paths) return variant.name == "uniform";
    return run.length == kPathLength || variant.name == "ideal" || variant.name == "lina-serve";
  };
  for (const ServingVariant& variant : serving_variants())
    if (is_needed(variant))
      result.variants.emplace(variant.name, serving.run(variant, trace, paths ? &*paths : nullptr));
  return result;
}

Report lina_inference(Study& study) {
  Report report{.key = "lina-inference",
                .title = "inference with experts placed by popularity",
                .source = "Lina (ATC'23), sections 2.2, 5.2 and 7.3, Tables 1, 5 and 6: up to 16 A100 in 4 nodes."};
  Runs runs(study.assumed);
  report.comparisons = {
      compared("speedup over the uniform baseline (Figures 16 and 19)", kSpeedup,
               {{"median_speedup", "batch, median"},
                {"p95_speedup", "batch, p95"},
                {"layer_p95_speedup", "MoE layer, p95"},
                {"alltoall_mean", "AlltoAll, p95, mean of layers"},
                {"alltoall_most", "AlltoAll, p95, most"}},
               "", runs),
      without_alltoall(),
      compared("what a batch takes longer without a part of it (Figure 16)", kShare,
               {{"no_estimation_median", "no-estimation, median"}, {"no_fine_tuning_p95", "no-fine-tuning, p95"}}, "",
               runs),
      compared("estimates that were right, and layers placed again", kShare,
               {{"accuracy", "accuracy"}, {"placed_again", "placed again"}}, "", runs),
      compared("over the ideal's time (Tables 5 and 6)", kSpeedup,
               {{"norm_median", "median"}, {"norm_p95", "p95"}, {"table6_norm_p95", "p95, Table 6"}}, "path length",
               runs),
      compared("estimates by path length (Tables 5 and 6)", kShare,
               {{"table5_accuracy", "accuracy"},
                {"table5_placed_again", "placed again"},
                {"table6_accuracy", "accuracy, Table 6"}},
               "path length", runs),
      compared("AlltoAll of an inference (Table 1)", kMilliseconds, {{"alltoall_ms", "AlltoAll"}}, "layers", runs),
      compared("AlltoAll's share of an inference (Table 1)", kShare, {{"alltoall_share", "AlltoAll"}}, "layers", runs),
      compared("tokens of the most popular expert over the least popular's (Figure 6), calibrated", kSpeedup,
               {{"most_over_least", "most over least"}}, "", runs),
      compared("tokens that follow one of their group's most popular experts (Figure 9), calibrated by the first",
               kShare, {{"next_expert_share", "in the list"}}, "list length", runs)};
  report.unexplained = from_print();
  report.not_computable = {"Table 6: its tasks differ by their data, and no trace of them is published"};
  if (study.assumed != nullptr) {
    report.shows = findings(runs, *study.assumed);
    add_differences(runs, report.unexplained);
  } else {
    report.not_computable.insert(
        report.not_computable.begin(),
        {"routing: traces of tokens, of which print has shares alone",
         "AlltoAll: alpha, beta; the time of a dense part",
         "tokens of a batch; time to copy an expert's weights; how scheduling before the gate is overlapped"});
  }
  report.shows.push_back(
      "Table 2 lists the four most popular experts of some layers: no two layers of a model have the same first one "
      "but "
      "two of Transformer-XL (9). Synthetic routing orders the experts of each layer anew.");
  report.conventions = {
      "Experts = GPUs, 4 a node, one expert a token; Transformer-XL: 12 layers of M = 512, H = 2048; BERT-Large: 24 of "
      "1024, 4096. Batches are forward passes of all layers; embedding and output projection are left out.",
      "Baseline: uniform. Ideal: the same with a balanced gate. Lina: lina-serve with paths of 3 layers and at most 4 "
      "experts a GPU. A layer is placed from the path's length on (the fourth layer).",
      "An AlltoAll takes as long as the rank that sends or receives most; an expert's rows as long as they are, "
      "experts "
      "of a rank one after another. AlltoAll times leave out the waiting for the last rank.",
      "An estimate is right if its two most popular experts are the gate's in the same order; a layer is placed again "
      "if they are others. By one criterion for both, the printed 58.41 % right and 23 % placed again could not be: "
      "the paper says \"identical lists\" of both.",
      "Eq. 1 is lost in print: an expert's share of the GPUs is its share of the sum, over tokens, of the likeliest "
      "expert's probability given the token's path."};
  return report;
}

}  // namespace moe::reproduce
