// Lina's training speedups (section 7.2). None of its coefficients, batches or sequence lengths is printed: what print
// alone allows is how far its AlltoAll's speedup goes (Table 1's shares); the schedules themselves need assumptions.
#include <algorithm>
#include <array>
#include <map>

#include "moe/base/check.h"
#include "moe/plan/model_file.h"
#include "tuner/reproduce/priced.h"
#include "tuner/reproduce/printed.h"
#include "tuner/reproduce/study.h"

namespace moe {
namespace {

constexpr int kGpusPerNode = 4;  // section 7.1
constexpr std::string_view kCluster = "lina", kModel = "gpt-2";
constexpr std::array<std::string_view, 4> kSchedules{"lina-baseline", "lina-priority", "lina-partition", "lina-packed"};

using Results = std::map<std::string_view, LayerResult>;

Case lina_case(int experts, double batch) {
  LayerShape layer = find_model(std::string(kModel)).layer;
  layer.batch = static_cast<int64_t>(batch);
  layer.experts = experts;
  layer.top_k = 2;
  ParallelShape p;
  p.ranks_per_node = std::min(experts, kGpusPerNode);
  p.nodes = experts / p.ranks_per_node;
  p.mp = p.esp = 1;
  p.ep = p.dp = experts;
  return complete(layer, p, Rounding::ragged);
}

// Of as many GPUs as experts; empty where nothing is assumed, or a row lacks.
Results results_of(int experts, const Assumptions* assumed, std::set<std::string>& missing) {
  if (assumed == nullptr) return {};
  const auto batch = assumed->value("batch");
  require<BadInput>(batch.has_value() && *batch >= 1, "{}: value: found no batch of at least 1, expected one",
                    assumed->file);
  Profile profile;
  profile.name = kCluster;
  profile.nodes = profile.ranks_per_node = kGpusPerNode;
  profile = with_assumed(profile, assumed);
  const Case shape = lina_case(experts, *batch);
  LayerSearch search;
  Results results;
  for (const std::string_view schedule : kSchedules) {
    const auto result = tuned_from_print(search, schedule, profile, shape, assumed, missing);
    if (!result) return {};
    results[schedule] = *result;
  }
  return results;
}

double seconds_of(std::string_view metric, const LayerResult& r) {
  if (metric == "forward_moe_layer") return r.moe_forward_s;
  if (metric == "backward_moe_layer") return r.moe_backward_s;
  return r.total_s();
}

std::string_view schedule_of(std::string_view metric) {
  if (metric == "priority_only_mean") return "lina-priority";
  return metric == "priority_and_partition" ? "lina-partition" : "lina-packed";
}

std::optional<double> ours(const PrintedLina& row, const std::map<int, Results>& by_experts) {
  if (row.metric == "alltoall_backward") return std::nullopt;
  double sum = 0;
  int count = 0;
  for (const auto& [experts, results] : by_experts) {
    if (row.experts != 0 && row.experts != experts) continue;
    if (results.empty()) return std::nullopt;
    sum += seconds_of(row.metric, results.at("lina-baseline")) /
           seconds_of(row.metric, results.at(schedule_of(row.metric)));
    ++count;
  }
  return sum / count;
}

// The step's speedup if all AlltoAlls were as much faster as the backward's are printed to be, and nothing else: by
// Table 1's share of the step, averaged over its models of that many experts.
Comparison alltoall_alone(const std::vector<PrintedLina>& printed) {
  Comparison c{.caption = "the step's speedup from the AlltoAll's alone", .label_names = {"experts"}};
  for (const PrintedLina& row : printed) {
    if (row.metric != "step_time") continue;
    double share = 0, alltoall = 0;
    int models = 0;
    for (const PrintedLinaShare& s : printed_lina_table1())
      if (s.experts == row.experts) share += s.share, ++models;
    for (const PrintedLina& other : printed)
      if (other.metric == "alltoall_backward" && other.experts == row.experts) alltoall = other.speedup;
    if (models == 0 || alltoall == 0) continue;
    share /= models;
    const std::vector<std::string> labels{fmt::format("{}", row.experts)};
    c.figures.push_back({labels, "as printed of it", row.speedup, 1 / (1 - share + share / alltoall)});
    c.figures.push_back({labels, "no AlltoAll at all", row.speedup, 1 / (1 - share)});
  }
  return c;
}

}  // namespace

Report lina_training(Study& study) {
  Report report{.key = "lina-training",
                .title = "training speedups over DeepSpeed-MoE",
                .source = "Lina (ATC'23), section 7.2 as stated in the text, and Table 1: 16 A100 in 4 nodes."};
  const auto printed = printed_lina_training();
  std::set<std::string> missing;
  std::map<int, Results> by_experts;
  for (const int experts : {2, 4, 8, 16}) by_experts[experts] = results_of(experts, study.assumed, missing);
  Comparison c{.caption = "", .label_names = {"metric", "experts"}};
  for (const PrintedLina& row : printed)
    c.figures.push_back({{row.metric, row.experts == 0 ? "all" : fmt::format("{}", row.experts)},
                         "",
                         row.speedup,
                         ours(row, by_experts)});
  report.comparisons = {c, alltoall_alone(printed)};
  report.shows = {
      "The step's printed speedups lie between what its AlltoAll's own speedup would give and what a step without "
      "AlltoAll would: pipelining the experts under what is left of it must do the rest, as the paper says."};
  report.not_computable.assign(missing.begin(), missing.end());
  if (study.assumed == nullptr)
    report.not_computable = {"AlltoAll, AllReduce, GEMM: alpha, beta", "B and L of the models, M and H of its layers",
                             "memory offloading (section 7.2.1), which two of the models use"};
  report.not_computable.emplace_back(
      "the AlltoAll's own speedup in the backward: printed over models of unknown shape");
  report.conventions = {
      "One layer in the steady state; experts = GPUs, 4 a node, top-2, no MP. Baseline: lina-baseline, whose gradients "
      "share the network with the AlltoAll, each at half speed while both run. Lina: lina-packed; priority and "
      "partition: lina-partition; priority only: lina-priority.",
      "MoE layers: from the start of the first AlltoAll to the end of the last.",
      "Printed speedups are means over three models, ours are of GPT-2's layer (M = 768, H = 3072, L = 1024)."};
  return report;
}

}  // namespace moe
