// FSMoE Figures 6 and 7: speedups on whole models, as stated in the text of section 6.4.
#include <algorithm>
#include <array>
#include <functional>

#include "commands/reproduce/fsmoe_reading.h"
#include "commands/reproduce/measured_runs.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"

namespace moe::reproduce {
namespace {

// Readings of DeepSpeed-MoE: in sequence; with tokens gathered over ESP; with duplicates in every AlltoAll.
constexpr std::array<std::string_view, 3> kBaselines{"ds-moe", "ds-moe-replicated", "monta-baseline"};

// Returns the name of a reading's column.
std::string column_of(std::string_view baseline) {
  return baseline == "ds-moe-replicated" ? "replicated" : std::string(baseline);
}

constexpr int kRanksPerNode = 8;  // testbed A

struct FigureRun {
  ModelSetting run;
  StepSeconds steps;
};

std::vector<PrintedFigure> printed_figure(std::string_view figure) {
  auto rows = printed_fsmoe_figures();
  std::erase_if(rows, [&](const PrintedFigure& row) { return row.figure != figure; });
  return rows;
}

std::optional<double> statistic(const std::string& stat, const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  if (stat == "least") return std::ranges::min(values);
  if (stat == "most") return std::ranges::max(values);
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Returns our number for a printed row, with DeepSpeed-MoE read as `baseline`; none unless every run has it.
std::optional<double> our_value(const PrintedFigure& row, const std::vector<FigureRun>& runs,
                                std::string_view baseline) {
  std::vector<double> speedups;
  for (const FigureRun& ran : runs) {
    const auto speedup = speedup_of(ran.steps, row.schedule, row.over == "ds-moe" ? std::string(baseline) : row.over);
    if (!speedup) return std::nullopt;
    speedups.push_back(*speedup);
  }
  return statistic(row.stat, speedups);
}

TextTable run_table(const std::vector<FigureRun>& runs) {
  TextTable table{"speedups over ds-moe, run by run", {"run"}, {}};
  for (const std::string& schedule : figure_schedules())
    if (schedule != "ds-moe") table.header.push_back(schedule);
  for (const FigureRun& ran : runs) {
    auto& cells = table.rows.emplace_back(std::vector{ran.run.name()});
    for (const std::string& schedule : figure_schedules()) {
      if (schedule == "ds-moe") continue;
      const auto speedup = speedup_of(ran.steps, schedule, "ds-moe");
      cells.push_back(speedup ? fmt::format("{:.3f}", *speedup) : "-");
    }
  }
  return table;
}

void list_missing(Report& report, const std::set<std::string>& missing) {
  for (const std::string& name : missing) report.not_computable.push_back(name);
}

std::vector<FigureRun> run_all(const std::vector<ModelSetting>& runs, const Study& study,
                               std::set<std::string>& missing) {
  std::vector<FigureRun> ran;
  for (const ModelSetting& run : runs)
    ran.push_back({run, step_seconds(run, figure_schedules(), study.assumed, missing)});
  return ran;
}

// Adds figures: rows over DeepSpeed-MoE have a column for each reading of it; the others have a single column.
void add_figures(Comparison& c, const PrintedFigure& row, const std::vector<std::string>& labels,
                 const std::vector<FigureRun>& runs) {
  for (const std::string_view baseline : kBaselines) {
    if (row.over != "ds-moe" && baseline != kBaselines.front()) continue;
    c.figures.push_back({labels, column_of(baseline), row.speedup, our_value(row, runs, baseline)});
  }
}

// The least and the largest ours / paper over the figures that `wanted` selects.
struct Ratios {
  double min = 1e99, max = 0;
  bool any() const { return max > 0; }
};
template <class Wanted>
Ratios ratios_of(const Comparison& c, Wanted wanted) {
  Ratios r;
  for (const Figure& f : c.figures) {
    if (!f.ours || !f.paper || !wanted(f)) continue;
    r.min = std::min(r.min, *f.ours / *f.paper);
    r.max = std::max(r.max, *f.ours / *f.paper);
  }
  return r;
}

void find_overlap(Report& report, const Comparison& c, size_t over, const Study& study) {
  const Ratios r = ratios_of(c, [&](const Figure& f) { return f.labels[over] != "ds-moe"; });
  if (!r.any()) return;
  const bool contended = study.assumed != nullptr && assumed_contention(*study.assumed, "testbed-a").has_value();
  report.shows.push_back(fmt::format(
      "Over schedules that also overlap (tutel and its variants), fsmoe's predicted speedups are {:.2f} to {:.2f} "
      "times the paper's. {}",
      r.min, r.max,
      contended ? "The slowdown was fitted to Table 5's 1458 layers and not to these models, so this is a prediction."
                : "This prediction assumes that the two networks do not slow each other, which favours only fsmoe. "
                  "With the contention fitted to Table 5 (example fsmoe-contention) the speedups are smaller."));
}

void find_baseline(Report& report, const Comparison& c, size_t over) {
  const auto of = [&](std::string_view baseline) {
    return ratios_of(
        c, [&](const Figure& f) { return f.labels[over] == "ds-moe" && f.convention == column_of(baseline); });
  };
  const Ratios sequence = of(kBaselines[0]), replicated = of(kBaselines[1]), duplicated = of(kBaselines[2]);
  if (!sequence.any()) return;
  std::string text =
      fmt::format("DeepSpeed-MoE ran {:.1f} to {:.1f} times as long as FSMoE's own layer in sequence (ds-moe) would",
                  1 / sequence.max, 1 / sequence.min);
  if (replicated.any())
    text += fmt::format(", and {:.2f} to {:.2f} times as long as with all tokens replicated over MP",
                        1 / replicated.max, 1 / replicated.min);
  if (!duplicated.any()) {
    report.unexplained.push_back(text + ". The paper does not say with which settings it ran.");
    return;
  }
  report.shows.push_back(
      fmt::format("{}. Its documented behaviour is between them: the MoE layer drops tokens that are the same on all "
                  "MP ranks before "
                  "the AlltoAll, and gathers them after it, only where experts are not sharded (DeepSpeed, pull "
                  "request 2074, August "
                  "2022); FSMoE's are, so every rank's AlltoAll carries all of them, as in monta-baseline. By that "
                  "DeepSpeed-MoE ran "
                  "{:.2f} to {:.2f} times as long as simulated.",
                  text, 1 / duplicated.max, 1 / duplicated.min));
}

// Adds the measured and the predicted times of proxies of those models on emulated testbeds.
void add_measured(Report& report, Comparison& c, const std::vector<FigureRun>& simulated,
                  const commands::FileRun& file) {
  std::vector<FigureRun> predicted, measured;
  for (const FigureRun& ran : simulated) {
    MeasuredSteps steps = measured_steps(file, ran.run, figure_schedules());
    if (steps.layers == 0) continue;
    predicted.push_back({ran.run, std::move(steps.predicted)});
    measured.push_back({ran.run, std::move(steps.measured)});
  }
  require<BadInput>(!measured.empty(), "{}: found none of the figure's models on its testbeds, expected some of them",
                    file.file);
  const std::string kind = kind_of_run(file);
  const bool all = measured.size() == simulated.size();
  for (const PrintedFigure& row : printed_figure("fig6"))
    for (const auto& [of, runs] : {std::pair{"predicted of the " + kind, &predicted}, std::pair{kind, &measured}})
      c.figures.push_back({{row.schedule, row.over, row.stat},
                           of,
                           row.speedup,
                           all ? our_value(row, *runs, kBaselines.front()) : std::nullopt});
  TextTable table = run_table(measured);
  table.caption = fmt::format("the same of the {}", kind);
  report.tables.push_back(std::move(table));
  report.conventions.push_back(describe_runs(file));
  report.conventions.push_back(
      "Runs are whole training steps of as many layers as the model has: rows are whole numbers, and in the runs alone "
      "are the output projection, what MP ranks exchange for it and for the embedding, and the sums of both ends' "
      "gradients; embedding look-ups and the optimizer, which have no price, are in no column.");
}

}  // namespace

Report fsmoe_fig6(Study& study) {
  Report report{.key = "fsmoe-fig6",
                .title = "speedups on GPT2-XL, Mixtral-7B and Mixtral-22B",
                .source = "FSMoE (ASPLOS'25), Figure 6, as stated in section 6.4.",
                .conventions = model_conventions()};
  std::set<std::string> missing;
  const auto runs = run_all({{.cluster = "testbed-a", .model = "gpt2-xl"},
                             {.cluster = "testbed-a", .model = "mixtral-7b"},
                             {.cluster = "testbed-a", .model = "mixtral-22b"},
                             {.cluster = "testbed-b", .model = "gpt2-xl"},
                             {.cluster = "testbed-b", .model = "mixtral-7b"}},
                            study, missing);
  Comparison c{.caption = "over the five runs", .label_names = {"schedule", "over", "statistic"}};
  for (const PrintedFigure& row : printed_figure("fig6")) add_figures(c, row, {row.schedule, row.over, row.stat}, runs);
  find_overlap(report, c, 1, study);
  find_baseline(report, c, 1);
  report.tables = {run_table(runs)};
  if (study.measured != nullptr) add_measured(report, c, runs, *study.measured);
  report.comparisons = {c};
  list_missing(report, missing);
  return report;
}

Report fsmoe_fig8(Study& study) {
  Report report{.key = "fsmoe-fig8",
                .title = "mean speedups on testbed A with two pipeline stages",
                .source = "FSMoE (ASPLOS'25), Figure 8, as stated in section 6.4 (GPipe, N_PP = 2).",
                .conventions = model_conventions()};
  std::set<std::string> missing;
  const auto micro_batches = study.assumed != nullptr ? study.assumed->value("micro_batches") : std::nullopt;
  std::vector<FigureRun> runs;
  if (micro_batches) {
    const int count = static_cast<int>(*micro_batches);
    require<BadInput>(count >= 1, "{}: micro_batches: found {}, expected a whole number of at least 1",
                      study.assumed->file, *micro_batches);
    std::vector<ModelSetting> wanted;
    for (const std::string model : {"gpt2-xl", "mixtral-7b", "mixtral-22b"})
      wanted.push_back({.cluster = "testbed-a", .model = model, .stages = 2, .micro_batches = count});
    runs = run_all(wanted, study, missing);
    report.tables = {run_table(runs)};
  } else {
    missing = {"number of micro-batches", "send and receive between stages: alpha, beta",
               "AlltoAll and AllReduce over the 3 nodes of a stage: alpha, beta", "AllReduce inside a node"};
  }
  Comparison c{.caption = "mean over GPT2-XL, Mixtral-7B and Mixtral-22B", .label_names = {"over"}};
  for (const PrintedFigure& row : printed_figure("fig8")) {
    if (micro_batches)
      add_figures(c, row, {row.over}, runs);
    else
      c.figures.push_back({{row.over}, "ds-moe", row.speedup, std::nullopt});
  }
  find_overlap(report, c, 0, study);
  find_baseline(report, c, 0);
  report.comparisons = {c};
  list_missing(report, missing);
  report.conventions.emplace_back(
      "Each stage has 3 of the 6 nodes and half of the layers; E = 6 over 3 nodes, two experts each (E = nodes is "
      "kept; "
      "the paper does not say what becomes of it). Micro-batches of B = 1. Gradients are placed for each stage's own "
      "backward of its last micro-batch, not for the pipeline's critical path.");
  return report;
}

Report fsmoe_fig7(Study& study) {
  Report report{.key = "fsmoe-fig7",
                .title = "mean speedups on testbed A by sequence length and by number of GPUs",
                .source = "FSMoE (ASPLOS'25), Figure 7, as stated in section 6.4.",
                .conventions = model_conventions()};
  std::set<std::string> missing;
  Comparison c{.caption = "mean over models", .label_names = {"axis", "value", "over", "models"}};
  std::map<ModelSetting, StepSeconds> known;
  for (const PrintedFigure& row : printed_figure("fig7"))
    for (const int models : {2, 3}) {
      std::vector<ModelSetting> wanted;
      for (const std::string model : {"gpt2-xl", "mixtral-7b", "mixtral-22b"}) {
        if (static_cast<int>(wanted.size()) == models) break;
        ModelSetting run{.cluster = "testbed-a", .model = model};
        if (row.axis == "L") run.seq = row.value;
        if (row.axis == "P") run.nodes = row.value / kRanksPerNode;
        wanted.push_back(run);
      }
      std::vector<FigureRun> runs;
      for (const ModelSetting& run : wanted) {
        if (!known.contains(run)) known[run] = step_seconds(run, figure_schedules(), study.assumed, missing);
        runs.push_back({run, known.at(run)});
      }
      add_figures(c, row, {row.axis, fmt::format("{}", row.value), row.over, fmt::format("{}", models)}, runs);
    }
  find_overlap(report, c, 2, study);
  find_baseline(report, c, 2);
  report.comparisons = {c};
  list_missing(report, missing);
  report.conventions.emplace_back(
      "models: 2 is GPT2-XL and Mixtral-7B, 3 has Mixtral-22B too; the text does not say which the means are over. P = "
      "16, 32 and 48 are 2, 4 and 6 nodes and as many experts.");
  return report;
}

}  // namespace moe::reproduce
