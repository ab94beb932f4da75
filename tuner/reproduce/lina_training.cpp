// Lina's training speedups (section 7.2). None of its coefficients, batches or sequence lengths is printed: what print
// alone allows is how far its AlltoAll's speedup goes (Table 1's shares); the schedules themselves need assumptions.
#include <algorithm>
#include <array>
#include <map>

#include "moe/base/check.h"
#include "moe/cost/fluid_replay.h"
#include "moe/plan/model_file.h"
#include "tuner/reproduce/priced.h"
#include "tuner/reproduce/printed.h"
#include "tuner/reproduce/study.h"

namespace moe {
namespace {

constexpr int kGpusPerNode = 4;  // section 7.1
constexpr std::string_view kCluster = "lina", kModel = "gpt-2";
constexpr std::array<std::string_view, 4> kSchedules{"lina-baseline", "lina-priority", "lina-partition", "lina-packed"};

struct Result {
  LayerResult layer;
  double alltoall_backward_s = 0;
};
using Results = std::map<std::string_view, Result>;

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

// Busy seconds of the backward's AlltoAlls, slowed as they were where gradients share their network.
double alltoall_backward_seconds(std::string_view schedule, const Profile& profile, const Case& shape,
                                 Decision decision) {
  const Case decided = decided_case(shape, decision);
  decision.packing = 1;  // the case has it
  const LayerPricer pricer(profile, decided);
  const Plan plan = build_plan(find_schedule(schedule), decided, decision);
  const Timeline timeline =
      fluid_timeline(*plan.structure, networks_of(plan.groups), profile.contention, price(pricer, plan));
  double seconds = 0;
  for (const Task& task : plan.tasks()) {
    const size_t id = static_cast<size_t>(task.id);
    if (task.phase == Phase::backward && (task.kind == TaskKind::dispatch || task.kind == TaskKind::combine))
      seconds += timeline.end_s[id] - timeline.start_s[id];
  }
  return seconds;
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
    results[schedule] = {*result, alltoall_backward_seconds(schedule, profile, shape, result->decision)};
  }
  return results;
}

double seconds_of(std::string_view metric, const Result& r) {
  if (metric == "forward_moe_layer") return r.layer.moe_forward_s;
  if (metric == "backward_moe_layer") return r.layer.moe_backward_s;
  if (metric == "alltoall_backward") return r.alltoall_backward_s;
  return r.layer.total_s();
}

std::string_view schedule_of(std::string_view metric) {
  if (metric == "priority_only_mean") return "lina-priority";
  return metric == "priority_and_partition" ? "lina-partition" : "lina-packed";
}

std::optional<double> ours(const PrintedLina& row, const std::map<int, Results>& by_experts) {
  double sum = 0;
  int count = 0;
  for (const auto& [experts, results] : by_experts) {
    if (row.experts != 0 && row.experts != experts) continue;
    if (results.empty()) return std::nullopt;
    const double lina = seconds_of(row.metric, results.at(schedule_of(row.metric)));
    if (lina == 0) return std::nullopt;  // packed until nothing is exchanged
    sum += seconds_of(row.metric, results.at("lina-baseline")) / lina;
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
    c.figures.push_back({labels, "AlltoAll as printed", row.speedup, 1 / (1 - share + share / alltoall)});
    c.figures.push_back({labels, "no AlltoAll at all", row.speedup, 1 / (1 - share)});
  }
  return c;
}

// Experts a device that lina-packed settles on; the paper's: 2, for one of its three models with 16 experts 4.
std::string packing_finding(const std::map<int, Results>& by_experts) {
  std::string text;
  for (const auto& [experts, results] : by_experts)
    if (!results.empty())
      text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", results.at("lina-packed").layer.decision.packing,
                          experts);
  return "Experts that lina-packed puts on a device: " + text +
         ". The paper settles on 2 (4 in one case), with models of its own. Where packing brings the AlltoAll into a "
         "node, all that follows hangs on how much faster that is, which is assumed.";
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
  if (study.assumed != nullptr && missing.empty()) report.shows.push_back(packing_finding(by_experts));
  report.not_computable.assign(missing.begin(), missing.end());
  if (study.assumed == nullptr)
    report.not_computable = {"AlltoAll, AllReduce, GEMM: alpha, beta", "B and L of the models, M and H of its layers",
                             "memory offloading (section 7.2.1), which two of the models use"};
  for (const Figure& f : c.figures)
    if (study.assumed != nullptr && missing.empty() && !f.ours)
      report.not_computable.push_back(
          fmt::format("{}, {} experts: packed, nothing is exchanged any more", f.labels[0], f.labels[1]));

  report.conventions = {
      "One layer in the steady state; experts = GPUs, 4 a node, top-2, no MP. Baseline: lina-baseline, whose gradients "
      "share the network with the AlltoAll, each at half speed while both run. Lina: lina-packed; priority and "
      "partition: lina-partition; priority only: lina-priority.",
      "alltoall_backward: busy time of the backward's AlltoAlls. MoE layers: from the start of the first AlltoAll to "
      "the end of the last.",
      "Printed speedups are means over three models, ours are of GPT-2's layer (M = 768, H = 3072, L = 1024)."};
  return report;
}

}  // namespace moe
