// Lina's training speedups (section 7.2). None of its coefficients, batches or sequence lengths is printed: what print
// alone allows is how far its AlltoAll's speedup goes (Table 1's shares), and that an expert takes a third of the
// AlltoAlls beside it (Figure 2 and Table 3 agree); the steps themselves need assumptions.
#include <algorithm>
#include <array>
#include <map>

#include "moe/base/check.h"
#include "reproduce/lina_findings.h"
#include "reproduce/printed_rows.h"
#include "reproduce/study.h"

namespace moe::reproduce {
namespace {

const std::array<int, 4> kExperts{2, 4, 8, 16};
const std::array<std::string, 6> kTrained{"lina-baseline",  "lina-fixed", "lina-priority",
                                          "lina-partition", "lina",       "lina-packed"};
constexpr std::array<int, 6> kPartitionMb{10, 20, 30, 50, 70, 100};

// Returns all steps; none where nothing is assumed, or a row is missing.
LinaSteps all_steps(const Assumptions* assumed, std::set<std::string>& missing) {
  LinaSteps steps;
  if (assumed == nullptr) return steps;
  for (const std::string& model : kLinaModels)
    for (const int experts : kExperts)
      for (const std::string& schedule : kTrained)
        if (const auto step = lina_step({model, experts, schedule}, *assumed, missing))
          steps[{model, experts, schedule}] = *step;
  if (!missing.empty()) steps.clear();
  return steps;
}

double seconds_of(std::string_view metric, const LinaStep& step) {
  if (metric == "forward_moe_layer") return step.moe_forward_s;
  if (metric == "backward_moe_layer") return step.moe_backward_s;
  if (metric == "alltoall_backward") return step.alltoall_backward_s;
  return step.step_s;
}

std::string schedule_of(std::string_view metric) {
  if (metric == "priority_only_mean") return "lina-priority";
  return metric == "priority_and_partition" ? "lina-partition" : "lina-packed";
}

// Returns the mean over the models, as the paper's is; nothing where one exchanges nothing any more.
std::optional<double> ours(const PrintedLina& row, const LinaSteps& steps) {
  double sum = 0;
  int count = 0;
  for (const std::string& model : kLinaModels)
    for (const int experts : kExperts) {
      if (steps.empty() || (row.experts != 0 && row.experts != experts)) continue;
      const double lina = seconds_of(row.metric, steps.at({model, experts, schedule_of(row.metric)}));
      if (lina == 0) return std::nullopt;
      sum += seconds_of(row.metric, steps.at({model, experts, "lina-baseline"})) / lina;
      ++count;
    }
  if (count == 0) return std::nullopt;
  return sum / count;
}

Comparison speedups(const std::vector<PrintedLina>& printed, const LinaSteps& steps) {
  Comparison c{.caption = "", .label_names = {"metric", "experts"}};
  for (const PrintedLina& row : printed)
    c.figures.push_back(
        {{row.metric, row.experts == 0 ? "all" : fmt::format("{}", row.experts)}, "", row.speedup, ours(row, steps)});
  return c;
}

// Compares the step's speedup if all AlltoAlls were as much faster as the backward's are printed to be, and nothing
// else: by Table 1's share of the step, averaged over its models of that many experts.
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

// Compares what is printed without packing with Figure 2's share, and with the replay.
Comparison pipelining(const LinaSteps& steps) {
  Comparison c{.caption = "pipelining efficiency with 16 experts (Table 3), by Figure 2's share and replayed",
               .label_names = {"model", "experts a device"},
               .quantity = kShare};
  const double by_share = efficiency_by_share(printed_lina_text("layer_share"));
  for (const PrintedPipelining& row : printed_lina_table3()) {
    const auto add = [&](const std::string& schedule, int experts, double printed, std::optional<double> share) {
      const std::vector<std::string> labels{row.model, fmt::format("{}", experts)};
      std::optional<double> forward, both;
      if (!steps.empty()) {
        const LinaStep& step = steps.at({row.model, 16, schedule});
        forward = step.efficiency_forward, both = step.efficiency;
      }
      c.figures.push_back({labels, "Figure 2", printed, share});
      c.figures.push_back({labels, "forward", printed, forward});
      c.figures.push_back({labels, "both phases", printed, both});
    };
    add("lina", 1, row.without, by_share);
    add("lina-packed", row.experts_a_device, row.with, std::nullopt);
  }
  return c;
}

// Compares the baseline's shares: of Table 1's model by its layers, and of all three by Figure 4's ends.
Comparison alltoall_shares(const LinaSteps& steps, const Assumptions* assumed, std::set<std::string>& missing) {
  Comparison c{
      .caption = "AlltoAll's share of a baseline's step", .label_names = {"of", "experts"}, .quantity = kShare};
  const auto share = [](const LinaStep& step) { return step.alltoall_s / step.step_s; };
  for (const PrintedLinaShare& row : printed_lina_table1()) {
    std::optional<double> found;
    if (assumed != nullptr)
      if (const auto step =
              lina_step({.model = kLinaModels[0], .experts = row.experts, .layers = row.layers}, *assumed, missing))
        found = share(*step);
    c.figures.push_back(
        {{fmt::format("Table 1, {} layers", row.layers), fmt::format("{}", row.experts)}, "", row.share, found});
  }
  for (const int experts : kExperts) {
    double sum = 0;
    for (const std::string& model : kLinaModels)
      if (!steps.empty()) sum += share(steps.at({model, experts, "lina-baseline"})) / kLinaModels.size();
    std::optional<double> printed, found;
    if (experts == 2 || experts == 16) printed = printed_lina_text(fmt::format("step_share_{}", experts));
    if (!steps.empty()) found = sum;
    c.figures.push_back({{"Figure 4, mean of the models", fmt::format("{}", experts)}, "", printed, found});
  }
  return c;
}

// Tabulates section 7.2.2: each design choice in turn, without packing but for the last.
TextTable ablation(const LinaSteps& steps) {
  TextTable table{"speedup of a step over lina-baseline, one design choice after the other", {"model", "experts"}, {}};
  for (size_t i = 1; i < kTrained.size(); ++i) table.header.push_back(kTrained[i]);
  table.header.push_back("experts a device");
  for (const std::string& model : kLinaModels)
    for (const int experts : kExperts) {
      std::vector<std::string> row{model, fmt::format("{}", experts)};
      const double baseline = steps.at({model, experts, kTrained[0]}).step_s;
      for (size_t i = 1; i < kTrained.size(); ++i)
        row.push_back(fmt::format("{:.3f}", baseline / steps.at({model, experts, kTrained[i]}).step_s));
      row.push_back(fmt::format("{}", steps.at({model, experts, "lina-packed"}).packing));
      table.rows.push_back(row);
    }
  return table;
}

// Tabulates section 7.2.2's partition sizes, 16 experts, without packing.
TextTable partition_sizes(const Assumptions& assumed, std::set<std::string>& missing) {
  TextTable table{"milliseconds of lina's step with 16 experts, by partition size", {"model"}, {}};
  for (const int megabytes : kPartitionMb) table.header.push_back(fmt::format("{} MB", megabytes));
  for (const std::string& model : kLinaModels) {
    table.rows.push_back({model});
    for (const int megabytes : kPartitionMb) {
      const auto step = lina_step({model, 16, "lina", megabytes * int64_t{1'000'000}}, assumed, missing);
      table.rows.back().push_back(step ? fmt::format("{:.1f}", 1e3 * step->step_s) : "-");
    }
  }
  return table;
}

}  // namespace

Report lina_training(Study& study) {
  Report report{.key = "lina-training",
                .title = "training speedups over DeepSpeed-MoE",
                .source = "Lina (ATC'23), section 7.2 as stated in the text, Tables 1 and 3: 16 A100 in 4 nodes."};
  const auto printed = printed_lina_training();
  std::set<std::string> missing;
  const LinaSteps steps = all_steps(study.assumed, missing);
  const Assumptions* assumed = steps.empty() ? nullptr : study.assumed;
  report.comparisons = {speedups(printed, steps), alltoall_alone(printed), pipelining(steps),
                        alltoall_shares(steps, assumed, missing)};
  report.shows = lina_from_print();
  report.unexplained = lina_unexplained(printed);
  if (assumed != nullptr) {
    report.tables = {ablation(steps), partition_sizes(*assumed, missing)};
    report.shows.push_back(lina_slowdowns(steps, *assumed));
    report.shows.push_back(lina_packings(steps, *assumed));
  }
  report.not_computable.assign(missing.begin(), missing.end());
  if (study.assumed == nullptr)
    report.not_computable = {"AlltoAll, AllReduce: alpha, beta; the time of a dense part",
                             "B and L of the models, M and H but of Table 1's",
                             "memory offloading (section 7.2.1), which two of the models use"};
  for (const Figure& f : report.comparisons.front().figures)
    if (assumed != nullptr && !f.ours)
      report.not_computable.push_back(
          fmt::format("{}, {} experts: packed, nothing is exchanged any more", f.labels[0], f.labels[1]));
  const auto open = [](const Figure& f) { return !f.ours; };
  if (assumed != nullptr && std::ranges::any_of(report.comparisons[2].figures, open))
    report.not_computable.push_back("efficiency with packed experts by Figure 2's share: it is of one expert a GPU");
  report.conventions = lina_conventions();
  return report;
}

}  // namespace moe::reproduce
