#include "commands/reproduce/training.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "commands/reproduce/study.h"
#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"

namespace moe::reproduce {
namespace {

constexpr Quantity kSeconds{"step_s", "s", 1, 2};

constexpr int64_t kFewTokens = 4096, kManyTokens = 16384;

// Returns the tokens of a GPU in one pass of a layer over a micro-batch.
int64_t tokens_of_pass(const PublishedRun& run) { return int64_t{run.micro_batch} * run.seq / (run.tp * run.cp); }

struct RunComparison {
  PublishedRun run;
  PredictedStep step;
  double error() const { return *step.step_s / run.step_s - 1; }
};

// Returns the layout as text: "TP 2 PP 8 VP 4 EP 32, 2048 of 1".
std::string layout_of(const PublishedRun& r) {
  std::string text;
  const auto add = [&](std::string_view name, int size) {
    if (size > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, size);
  };
  add("TP", r.tp);
  add("PP", r.pp);
  add("VP", r.vp);
  add("CP", r.cp);
  add("EP", r.ep);
  add("ETP", r.etp);
  add("FSDP", r.fsdp);
  return fmt::format("{}{}{} of {}, {}", text, text.empty() ? "" : ", ", r.global_batch, r.micro_batch, r.dispatcher) +
         (r.recompute == "none" ? "" : ", " + r.recompute) + (r.overlap == "none" ? "" : ", " + r.overlap);
}

std::string gpus_of(const PublishedRun& run) { return fmt::format("{} {}", run.gpus, run.gpu); }

TextTable layouts_table(const std::vector<RunComparison>& all) {
  TextTable t{
      "layouts: sizes of groups, samples of a global batch and of a micro-batch, dispatcher, recomputation, overlap",
      {"", "model", "GPUs", "layout"},
      {}};
  for (const RunComparison& c : all) t.rows.push_back({c.run.source, c.run.model, gpus_of(c.run), layout_of(c.run)});
  return t;
}

TextTable steps_table(const std::vector<RunComparison>& all) {
  TextTable t{"steps, in the order of their layouts",
              {"", "model", "GPUs", "measured s", "predicted s", "error", "tokens/s/GPU", "predicted tokens/s/GPU"},
              {}};
  for (const RunComparison& c : all) {
    const bool known = c.step.step_s.has_value();
    t.rows.push_back({c.run.source, c.run.model, gpus_of(c.run), fmt::format("{:.2f}", c.run.step_s),
                      known ? fmt::format("{:.2f}", *c.step.step_s) : "-",
                      known ? difference(c.step.step_s, c.run.step_s) : "-",
                      fmt::format("{:.0f}", tokens_per_gpu(c.run, c.run.step_s)),
                      known ? fmt::format("{:.0f}", tokens_per_gpu(c.run, *c.step.step_s)) : "-"});
  }
  return t;
}

TextTable costs_table(const std::vector<RunComparison>& all) {
  TextTable t{"what the predicted steps are made of: seconds of the stage that works longest", {"model"}, {}};
  for (const std::string_view cost : kStepCosts) t.header.emplace_back(cost);
  t.header.emplace_back("hidden");
  for (const RunComparison& c : all) {
    if (!c.step.step_s) continue;
    std::vector<std::string> row{fmt::format("{} {}", c.run.model, c.run.gpus)};
    for (const std::string_view cost : kStepCosts) row.push_back(fmt::format("{:.2f}", c.step.costs.at(cost)));
    row.push_back(fmt::format("{:.2f}", c.step.hidden_s));
    t.rows.push_back(std::move(row));
  }
  return t;
}

// Returns the cost that explains most of a step's error, as far as the rows show (report_open_questions()).
std::string unexplained_cost(const RunComparison& c) {
  const PublishedRun& r = c.run;
  const auto largest = std::ranges::max_element(c.step.costs, {}, [](const auto& cost) { return cost.second; });
  if (c.error() > 0) return fmt::format("{}, priced too high", largest->first);
  if (r.dispatcher == "alltoall" && r.ep * r.etp > kNodeRanks) return "exchanges between nodes, priced by a bound";
  if (tokens_of_pass(r) < kFewTokens) return "launches and waits of the host";
  return "kernels that differ from those measured";
}

TextTable gaps_table(const std::vector<RunComparison>& all) {
  TextTable t{"what no price explains: measured minus predicted, and that for each pass of a layer over a micro-batch",
              {"", "model", "tokens a pass", "s", "ms a pass", "largest unexplained cost"},
              {}};
  for (const RunComparison& c : all) {
    if (!c.step.step_s) continue;
    const double gap_s = c.run.step_s - *c.step.step_s;
    t.rows.push_back({c.run.source, fmt::format("{} {}", c.run.model, c.run.gpus),
                      fmt::format("{}", tokens_of_pass(c.run)), fmt::format("{:+.2f}", gap_s),
                      fmt::format("{:+.2f}", gap_s / c.step.passes * 1e3), unexplained_cost(c)});
  }
  return t;
}

// Returns Kendall's tau of the rankings by tokens per second and GPU: a line for each model and number of GPUs.
std::vector<std::string> rankings(const std::vector<RunComparison>& all) {
  std::map<std::pair<std::string, int>, std::pair<std::vector<double>, std::vector<double>>> groups;
  for (const RunComparison& c : all) {
    if (!c.step.step_s) continue;
    auto& [measured, predicted] = groups[{c.run.model, c.run.gpus}];
    measured.push_back(tokens_per_gpu(c.run, c.run.step_s));
    predicted.push_back(tokens_per_gpu(c.run, *c.step.step_s));
  }
  std::vector<std::string> lines;
  for (const auto& [group, values] : groups)
    if (const auto tau = kendall_tau(values.first, values.second))
      lines.push_back(
          fmt::format("{} runs of {} on {} GPUs are ranked with Kendall's tau {:.2f} (pairs within {:.0f} % "
                      "do not count).",
                      values.first.size(), group.first, group.second, *tau, 100 * kTie));
  return lines;
}

void summarise(Report& report, const std::vector<RunComparison>& all) {
  std::vector<double> errors, sizes;
  for (const RunComparison& c : all) {
    if (!c.step.step_s) continue;
    errors.push_back(c.error());
    sizes.push_back(std::abs(c.error()));
  }
  if (!errors.empty())
    report.shows.push_back(fmt::format(
        "{} of {} steps are predicted: the error is {:.0f} % in the median and {:.0f} % at worst; with its sign, "
        "{:+.0f} % in the median.",
        errors.size(), all.size(), 100 * median(sizes), 100 * *std::ranges::max_element(sizes), 100 * median(errors)));
  for (std::string& line : rankings(all)) report.shows.push_back(std::move(line));
}

// Returns the median error of steps with [least, below) tokens per GPU and micro-batch; "-" if there are none.
std::string median_error(const std::vector<RunComparison>& all, int64_t least, int64_t below) {
  std::vector<double> errors;
  for (const RunComparison& c : all) {
    const int64_t tokens = tokens_of_pass(c.run);
    if (c.step.step_s && tokens >= least && tokens < below) errors.push_back(c.error());
  }
  return errors.empty() ? "-" : fmt::format("{:+.0f} %", 100 * median(errors));
}

// Returns the median time in ms that predictions of short passes lack, for steps with this dispatcher and no overlap.
std::string median_gap(const std::vector<RunComparison>& all, std::string_view dispatcher) {
  std::vector<double> gaps;
  for (const RunComparison& c : all)
    if (c.step.step_s && c.run.dispatcher == dispatcher && c.run.overlap == "none" &&
        tokens_of_pass(c.run) < kFewTokens)
      gaps.push_back((c.run.step_s - *c.step.step_s) / c.step.passes * 1e3);
  return gaps.empty() ? "-" : fmt::format("{:.1f}", median(gaps));
}

// What others published of the host's time in steps of Megatron-Core on H100, none of them a compared step.
constexpr std::string_view kPublishedHostTimes[] = {
    "The host's time, from below: CUDA graphs of attention, gate and counts made a step of GPT-OSS-20B (16 H100, TP 2 "
    "PP 4 EP 4, 4 samples) take 391 to 399 ms in place of 467 to 520, 2.3 to 4.3 ms less for each of the 30 passes "
    "that follow one another (Megatron-Bridge at 067f987df, skills/nemo-mbridge-perf-cuda-graphs). Qwen3-30B-A3B with "
    "TP 2 PP 2 EP 4 took 484 ms in place of 623, but with EP 16 and 1024 samples 42.00 s in place of 41.36, which is "
    "13.5 ms a pass.",
    "The host's time, from above: two steps of Qwen3-235B-A22B in the same sources, not compared here, have TP 4 and "
    "1024 tokens a GPU. They take 9.4 ms a pass in all with DeepEP (H100, 29.0 s) and 11.6 ms with AlltoAll (H800, "
    "35.48 s).",
    "The host's time, alone: an MoE layer of Qwen3-30B-A3B's shapes on 8 H100, EP 8, takes 35.0, 33.8 and 35.3 ms "
    "with AlltoAll for 4096, 8192 and 16384 tokens a GPU, forward and backward, and 12.4, 12.4 and 18.1 ms with "
    "DeepEP. With 32 and 64 experts in place of 128, AlltoAll takes 16.1 and 25.4 ms (CoreWeave, Megatron-Core at "
    "f8becec65f; github.com/marin-community/marin, issue 3666). On NVIDIA's own H100, layers of 8 and 32 experts take "
    "what their kernels take (`reproduce published`).",
    "These times reach from 2.3 to 35 ms a pass, by host, release and number of experts. What the kernels of a pass "
    "of 2048 tokens are priced at lies between, so that a price chosen among them would be fitted to the steps above. "
    "There is none.",
    "Megatron-Core's dispatchers let the host wait once a layer, in the forward: before the AlltoAll of tokens, or in "
    "DeepEP's dispatch (token_dispatcher.py and fused_a2a.py at d98e8a64dd). AlltoAll also gathers counts, exchanges "
    "gate weights apart, and sorts rows once more both ways."};

void report_open_questions(Report& report, const std::vector<RunComparison>& all) {
  report.unexplained.push_back(fmt::format(
      "The host's time to launch kernels and to wait for row counts has no price. Passes of fewer than {} tokens a GPU "
      "are {} off in the median, those of {} or more {}, as a time that does not grow with tokens would make them.",
      kFewTokens, median_error(all, 0, kFewTokens), kManyTokens,
      median_error(all, kManyTokens, std::numeric_limits<int64_t>::max())));
  report.unexplained.emplace_back(
      "Passes of many tokens keep the GPU busy longer than the host needs to launch them. What they take more is in "
      "kernels: experts and attention are priced by TensorRT-LLM's and cuDNN's, alone on a GPU at its highest clock.");
  report.unexplained.emplace_back(
      "DeepEP over 64 ranks is priced by its README, 51 GB/s a GPU between nodes. AIConfigurator's table has half of "
      "that over 8 nodes, but the README's rates over 2 and 4, so that its 8 nodes differ from the others.");
  report.unexplained.push_back(
      fmt::format("By what a pass lacks, NCCL's AlltoAll with fewer than {} tokens a GPU lacks {} ms in the median and "
                  "DeepEP {}.",
                  kFewTokens, median_gap(all, "alltoall"), median_gap(all, "deepep")));
  for (const std::string_view figures : kPublishedHostTimes) report.unexplained.emplace_back(figures);
  report.unexplained.emplace_back(
      "Exchanges between nodes by NCCL are priced at the 50 GB/s of a GPU's network card, a bound. NVIDIA expects 48 "
      "to 49 at best (nccl-tests, issue 267); a user has 24 for 8 MiB between 8 nodes of H800 (nccl, issue 1531). "
      "XTuner's step of 35.39 s takes 25.73 s with DeepEP in place of NCCL.");
}

void report_rows(Report& report, const std::vector<RunComparison>& all) {
  std::map<std::string, std::vector<std::string>> notes;  // by text of the note: the rows that have it
  for (size_t i = 0; i < all.size(); ++i) {
    for (const std::string& note : all[i].step.notes) notes[note].push_back(fmt::format("{}", i + 1));
    if (!all[i].step.step_s) report.not_computable.push_back(fmt::format("row {}: {}", i + 1, all[i].step.reason));
  }
  for (const auto& [note, rows] : notes)
    report.conventions.push_back(fmt::format(
        "{} ({})", note, rows.size() == all.size() ? "all rows" : fmt::format("rows {}", fmt::join(rows, ", "))));
}

Json json_of(const RunComparison& c) {
  const PublishedRun& r = c.run;
  Json run{{"source", r.source},
           {"model", r.model},
           {"gpu", r.gpu},
           {"gpus", r.gpus},
           {"layout", layout_of(r)},
           {"measured_s", r.step_s},
           {"measured_tokens_s_gpu", tokens_per_gpu(r, r.step_s)}};
  if (c.step.step_s) {
    run["predicted_s"] = *c.step.step_s;
    run["predicted_tokens_s_gpu"] = tokens_per_gpu(r, *c.step.step_s);
    run["error"] = c.error();
    for (const std::string_view cost : kStepCosts) run["costs"][std::string(cost)] = c.step.costs.at(cost);
    run["hidden_s"] = c.step.hidden_s;
  } else {
    run["reason"] = c.step.reason;
  }
  run["notes"] = c.step.notes;
  return run;
}

}  // namespace

Report training(Study& study) {
  Report report{.key = "training",
                .title = "steps of training on real clusters",
                .source =
                    "NVIDIA NeMo Automodel, Megatron-MoE-ModelZoo and XTuner, as configs/published/training-runs.csv "
                    "says. No price is fitted to them."};
  if (!study.runs.empty()) report.source = study.runs;
  std::vector<RunComparison> all;
  for (PublishedRun& run : published_runs(study.runs)) {
    PredictedStep step = predicted_step(run);
    all.push_back({std::move(run), std::move(step)});
  }
  Comparison steps{
      .caption = "steps", .label_names = {"run", "model", "layout"}, .quantity = kSeconds, .comparison_table = false};
  report.runs = Json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    const RunComparison& c = all[i];
    steps.figures.push_back(
        {{fmt::format("{}", i + 1), c.run.model, layout_of(c.run)}, "", c.run.step_s, c.step.step_s});
    report.runs.push_back(json_of(c));
  }
  report.comparisons = {std::move(steps)};
  report.tables = {layouts_table(all), steps_table(all), costs_table(all), gaps_table(all)};
  summarise(report, all);
  report_open_questions(report, all);
  report_rows(report, all);
  return report;
}

}  // namespace moe::reproduce
