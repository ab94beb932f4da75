// Parm's Tables IV and V. Of its coefficients the MP AllGather's alone are printed: the rest is assumed, or left open.
#include <algorithm>
#include <array>
#include <map>

#include "moe/base/check.h"
#include "moe/plan/grid.h"
#include "moe/plan/memory.h"
#include "moe/plan/model_file.h"
#include "tuner/reproduce/priced.h"
#include "tuner/reproduce/printed.h"
#include "tuner/reproduce/study.h"

namespace moe {
namespace {

constexpr std::string_view kBaseline = "ds-moe-replicated";
constexpr std::array<std::string_view, 4> kSchedules{kBaseline, "parm-s1", "parm-s2", "parm"};
constexpr double kFourTimes = 4;  // Figure 7's threshold

const std::vector<std::string> kUnprinted{
    "AlltoAll over EP and over EP and ESP, and its overlap with the AllGather: alpha, beta",
    "AllReduce and ReduceScatter of ESP: alpha, beta", "GEMM: alpha, beta", "k, E and the kind of expert of the layers",
    "B, L, k and f of the models"};

// The cluster as Table II has it, with the coefficients that section VI-B prints; MP groups of 2 and 4.
Profile printed_cluster(std::string_view testbed) {
  const bool a = testbed == "testbed-a";
  Profile profile;
  profile.name = a ? "parm-a" : "parm-b";
  profile.nodes = a ? 1 : 8;
  profile.ranks_per_node = a ? 8 : 4;
  for (const PrintedCoefficient& row : printed_parm_coefficients())
    for (const int ranks : {2, 4}) {
      if (row.testbed != testbed) continue;
      CommRow gather;
      gather.op = "allgather";
      gather.network = Network::intra;
      gather.ranks = ranks;
      gather.alpha_s = row.alpha_s;
      gather.beta_s_per_byte = row.beta_s_per_element / bytes_of(DType::float32);
      profile.comm.push_back(gather);
    }
  return profile;
}

// Whether the layer fits its GPUs as the baseline runs it, which had to run too.
bool fits(const Case& shape, double capacity_bytes) {
  MemoryRequest request;
  request.shape = shape;
  request.dense_part = false;
  request.replicated = true;
  return !misfit(estimate_memory(request), capacity_bytes);
}

// By ranks, N_MP and N_ESP: each schedule's speedups over the baseline, layer by layer.
struct Group {
  int ranks = 0, mp = 0, esp = 0;
  auto operator<=>(const Group&) const = default;
};
using Speedups = std::map<Group, std::map<std::string_view, std::vector<double>>>;

// The layers alone: no attention, no gradients (section VI-A).
const std::vector<TaskKind> kLeftOut{TaskKind::attention, TaskKind::mp_allreduce, TaskKind::gradient};

std::map<std::string_view, double> layer_seconds(LayerSearch& search, const Profile& profile, const Case& shape,
                                                 const Assumptions* assumed, std::set<std::string>& missing) {
  std::map<std::string_view, double> seconds;
  for (const std::string_view schedule : kSchedules) {
    const auto tuned = tuned_from_print(search, schedule, profile, shape, assumed, missing);
    if (!tuned) return {};
    seconds[schedule] = seconds_without(kLeftOut, schedule, profile, shape, *tuned);
  }
  return seconds;
}

Speedups grid_speedups(std::string_view testbed, const Assumptions* assumed, std::set<std::string>& missing) {
  const Profile profile = with_assumed(printed_cluster(testbed), assumed);
  const Grid grid = find_grid(profile.name);
  Speedups speedups;
  LayerSearch search;
  for (const GridLayer& layer : grid.layers) {
    const ParallelShape& p = *layer.parallel;
    if (std::min(p.mp, p.esp) < 2) continue;  // Table IV has no such rows
    const Case shape = complete(layer.shape, p, grid.rounding);
    if (!fits(shape, grid.memory_bytes.value_or(0))) continue;
    const auto seconds = layer_seconds(search, profile, shape, assumed, missing);
    if (seconds.empty()) return {};
    for (const auto& [schedule, value] : seconds)
      speedups[{p.ranks(), p.mp, p.esp}][schedule].push_back(seconds.at(kBaseline) / value);
  }
  return speedups;
}

std::optional<double> mean(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Comparison figure7(const Speedups& on_b) {
  Comparison c{.caption = "parm over the baseline on 32 GPUs, N_MP = N_ESP = 4 (Figure 7)", .label_names = {"what"}};
  const auto group = on_b.find({32, 4, 4});
  for (const PrintedStatistic& row : printed_parm_fig7()) {
    std::optional<double> ours;
    if (group != on_b.end()) {
      const auto& values = group->second.at("parm");
      const auto over = std::ranges::count_if(values, [](double value) { return value > kFourTimes; });
      ours = row.what == "mean" ? mean(values) : static_cast<double>(over) / static_cast<double>(values.size());
    }
    c.figures.push_back({{row.what}, "", row.value, ours});
  }
  return c;
}

Comparison table4(const std::map<std::string, Speedups>& ours) {
  Comparison c{.caption = "", .label_names = {"testbed", "schedule", "N_MP", "N_ESP"}};
  for (const PrintedParmLayer& row : printed_parm_table4()) {
    const bool a = row.testbed == "testbed-a";
    for (const int ranks : {8, 16, 32}) {
      if (a && ranks != 8) continue;
      Figure figure{{row.testbed, row.schedule, fmt::format("{}", row.n_mp), fmt::format("{}", row.n_esp)},
                    fmt::format("P = {}", ranks),
                    row.speedup,
                    std::nullopt};
      const Speedups& speedups = ours.at(a ? "testbed-a" : "testbed-b");
      const auto group = speedups.find({ranks, row.n_mp, row.n_esp});
      if (group != speedups.end()) figure.ours = mean(group->second.at(find_schedule(row.schedule).name));
      c.figures.push_back(std::move(figure));
    }
  }
  return c;
}

// Where parm's choice is the faster of both, and by how much it beats the slower one.
std::string choice_finding(const std::map<std::string, Speedups>& ours) {
  std::string text;
  for (const auto& [testbed, speedups] : ours) {
    double layers = 0, best = 0, gain = 0;
    for (const auto& [group, by_schedule] : speedups)
      for (size_t i = 0; i < by_schedule.at("parm").size(); ++i) {
        const double s1 = by_schedule.at("parm-s1")[i], s2 = by_schedule.at("parm-s2")[i];
        const double chosen = by_schedule.at("parm")[i];
        ++layers;
        best += chosen >= std::max(s1, s2) * (1 - 1e-12);
        gain += chosen / std::min(s1, s2) - 1;
      }
    text +=
        fmt::format("{}{}: the faster in {:.1f} % of {:.0f} layers, {:.1f} % faster than the slower of both on average",
                    text.empty() ? "" : "; ", testbed, 100 * best / layers, layers, 100 * gain / layers);
  }
  return "parm's choice by its cost model (forward alone, as the paper's). " + text +
         ". The paper: 8 % and 10.5 % over the slower.";
}

// Least and most of ours / paper by testbed.
std::string closeness_finding(const Comparison& c) {
  std::string text;
  for (const std::string_view testbed : {"testbed-a", "testbed-b-first", "testbed-b-second"}) {
    double least = 1e99, most = 0;
    for (const Figure& f : c.figures) {
      if (f.labels[0] != testbed || !f.ours) continue;
      least = std::min(least, *f.ours / *f.paper), most = std::max(most, *f.ours / *f.paper);
    }
    text += fmt::format("{}{:.2f} to {:.2f} of the printed on {}", text.empty() ? "" : ", ", least, most, testbed);
  }
  return "Speedups are " + text +
         ". They grow with N_MP and N_ESP as printed; what the groups' sizes and the "
         "AlltoAll's overlap cost beside their bytes is not in the assumed rows.";
}

Case model_shape(const Model& model, const Profile& profile) {
  ParallelShape parallel = model.parallel;
  parallel.nodes = profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  LayerShape layer = model.layer;
  return complete(layer, parallel, Rounding::ragged);
}

}  // namespace

Report parm_table4(Study& study) {
  Report report{.key = "parm-table4",
                .title = "mean speedups over DeepSpeed-MoE on configured layers",
                .source = "Parm (INFOCOM'24), Tables III and IV, Figure 7."};
  std::map<std::string, Speedups> ours{{"testbed-a", {}}, {"testbed-b", {}}};
  std::set<std::string> missing;
  if (study.assumed != nullptr)
    for (auto& [testbed, speedups] : ours) speedups = grid_speedups(testbed, study.assumed, missing);
  report.comparisons = {table4(ours), figure7(ours.at("testbed-b"))};
  if (study.assumed == nullptr) {
    report.not_computable = kUnprinted;
    report.not_computable.pop_back();
  } else if (missing.empty()) {
    report.shows = {closeness_finding(report.comparisons.front()), choice_finding(ours)};
  }
  report.not_computable.insert(report.not_computable.end(), missing.begin(), missing.end());
  report.conventions = {
      "Layers of configs/grids/parm-a and parm-b (Table III) with N_MP and N_ESP of 2 and 4 that fit the GPUs' memory "
      "as "
      "the baseline runs them: counted activations, Adam, float32. The paper ran 1296; `moetune memory --parm` counts.",
      "Baseline: ds-moe-replicated. Forward and backward of the MoE layer alone: attention and the AllReduce of "
      "gradients "
      "are left out, as the paper leaves them.",
      "Printed of the cluster: alpha and beta of the MP AllGather (section VI-B, per float32 element), used for "
      "AllGathers "
      "over 2 and 4 GPUs of a node.",
      "testbed-b-first and -second: two of P = 8, 16 and 32, as the text keeps them; ours has all three."};
  return report;
}

Report parm_table5(Study& study) {
  Report report{.key = "parm-table5",
                .title = "iteration time of BERT-Base and GPT-2",
                .source = "Parm (INFOCOM'24), Table V: N_MP = N_ESP = 4, 2 experts on testbed A, 8 on testbed B."};
  Comparison c{.caption = "parm over the baseline", .label_names = {"model", "testbed"}};
  std::set<std::string> missing;
  LayerSearch search;
  for (const PrintedParmModel& row : printed_parm_table5()) {
    Figure figure{{row.model, row.testbed}, "", row.deepspeed_moe_ms / row.parm_ms, std::nullopt};
    if (study.assumed != nullptr) {
      const Profile profile = with_assumed(printed_cluster(row.testbed), study.assumed);
      const Model model = on_cluster(find_model(row.model), profile.name);
      const Case shape = model_shape(model, profile);
      const auto baseline = tuned_from_print(search, kBaseline, profile, shape, study.assumed, missing);
      const auto parm = tuned_from_print(search, "parm", profile, shape, study.assumed, missing);
      if (baseline && parm) figure.ours = baseline->total_s() / parm->total_s();
    }
    c.figures.push_back(std::move(figure));
  }
  report.comparisons = {c};
  if (study.assumed == nullptr) report.not_computable = kUnprinted;
  report.not_computable.insert(report.not_computable.end(), missing.begin(), missing.end());
  report.conventions = {
      "Models of configs/models: B = 4, L = 512 (BERT-Base) and 1024 (GPT-2), k = 2 and f = 1.2 are assumed there; the "
      "paper prints none of them, so that its milliseconds have no counterpart, and ours are speedups alone.",
      "Whole layers, attention and gradients included; embedding, output and optimizer left out."};
  return report;
}

}  // namespace moe
