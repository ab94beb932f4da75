#include "modelbench/report.h"

#include <algorithm>
#include <sys/resource.h>

#include "commands/shared/results_json.h"
#include "commands/shared/run/layer_records.h"
#include "commands/shared/run/run_report.h"
#include "moe/base/json.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/measure/layers/proxy.h"
#include "moe/record/pass_times.h"

namespace moe::modelbench {
namespace {

double summary(const CaseRecord& r, std::string_view name) { return r.summary.number(name, r.key); }
bool checked(const CaseRecord& r) { return r.summary.has("worst_error"); }
bool timed(const CaseRecord& r) { return r.summary.has("total_s"); }
std::string ms(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

/// Returns the baseline's step time over that of `r`; "-" if either was not timed.
std::string speedup(const std::vector<commands::ScheduleRun>& runs, std::string_view baseline, const CaseRecord& r) {
  for (const commands::ScheduleRun& run : runs)
    if (run.record.schedule == baseline && timed(run.record))
      return fmt::format("{:.3f}x", summary(run.record, "total_s") / summary(r, "total_s"));
  return "-";
}

std::string times_of(const ModelbenchResults& results) {
  Table table({"schedule", "r", "model ms", "step ms", "error", "spread", "tokens/s", "over tutel", "over ds-moe",
               "exposed comm ms", "status"});
  for (const commands::ScheduleRun& run : results.outcome.runs) {
    const CaseRecord& r = run.record;
    if (!timed(r)) continue;
    const double total = summary(r, "total_s");
    table.add(
        {r.schedule, fmt::format("{}/{}", r.degree_forward, r.degree_backward),
         ms(r.prediction.number("total_s", r.key)), ms(total),
         fmt::format("{:+.2f} %", 100 * (commands::measured_over_predicted(r) - 1)),
         spread_text(summary(r, "least_total_s"), summary(r, "most_total_s"), total, median_interval(passes_s(r))),
         fmt::format("{:.0f}", static_cast<double>(results.tokens) / total), speedup(results.outcome.runs, "tutel", r),
         speedup(results.outcome.runs, "ds-moe", r), ms(summary(r, "exposed_s")), std::string(name_of(r.status))});
  }
  return "Step (medians of the slowest rank; r: degrees forward/backward)\n\n" + table.text() + '\n';
}

// Returns a table of the packings of experts and the steps under each; empty if no schedule packed experts online.
std::string packings_of(const ModelbenchResults& results) {
  Table table({"schedule", "steps", "experts a device", "expert ms", "AlltoAll ms", "model ms", "step ms", "memory",
               "planned memory", "moved", "in ms"});
  const auto moved = [](const measure::PackedSteps& steps, const std::string& text) {
    return steps.packing > 1 ? text : "-";
  };
  bool any = false;
  for (const commands::ScheduleRun& run : results.outcome.runs)
    for (const auto& [steps, predicted_s, planned_bytes] : run.packings) {
      any = true;
      table.add({run.record.schedule, fmt::format("{} to {}", steps.first, steps.first + steps.steps - 1),
                 fmt::format("{}", results.experts * steps.packing), fmt::format("{:.3f}", 1e3 * steps.times.expert_s),
                 fmt::format("{:.3f}", 1e3 * steps.times.alltoall_s), ms(predicted_s), ms(steps.step_s),
                 human_bytes(steps.memory_bytes), human_bytes(planned_bytes),
                 moved(steps, human_bytes(steps.moved_bytes)), steps.moving_s > 0 ? ms(steps.moving_s) : "-"});
    }
  if (!any) return "";
  return "Experts packed online (micro-ops of a forward; moved: to the rank that got most)\n\n" + table.text() + '\n';
}

std::string losses_of(const ModelbenchResults& results) {
  Table table({"schedule", "steps", "first loss", "last loss", "held-out", "gradients off by", "in", "status"});
  for (const commands::ScheduleRun& run : results.outcome.runs) {
    const CaseRecord& r = run.record;
    if (!checked(r)) continue;
    const auto loss = [&](std::string_view name) {
      return r.summary.has(name) ? fmt::format("{:.5f}", summary(r, name)) : "-";
    };
    table.add({r.schedule, r.summary.has("steps") ? fmt::format("{:.0f}", summary(r, "steps")) : "-",
               loss("first_loss"), loss("last_loss"), loss("held_out_loss"),
               fmt::format("{:.1e}", summary(r, "worst_error")), r.summary.text("worst_tensor", r.key),
               std::string(name_of(r.status))});
  }
  std::string text =
      fmt::format("Training on {}, {} (losses in nats a token)\n\n{}\n", results.text, results.optimizer, table.text());
  if (results.entropy_rate)
    text += fmt::format("no model is below {:.5f}, none that sees one token below {:.5f}\n\n", *results.entropy_rate,
                        *results.order_1_entropy);
  return text;
}

std::string gradients_of(const ModelbenchResults& results) {
  Table table({"schedule", "gradients off by", "in", "status"});
  for (const commands::ScheduleRun& run : results.outcome.runs)
    if (const CaseRecord& r = run.record; checked(r))
      table.add({r.schedule, fmt::format("{:.1e}", summary(r, "worst_error")), r.summary.text("worst_tensor", r.key),
                 std::string(name_of(r.status))});
  return fmt::format("Gradients of the first step, of {}\n\n{}\n", results.text, table.text());
}

}  // namespace

void ModelbenchResults::describe_text(const TokenSource& source, const std::string& name,
                                      const OptimizerSettings& settings) {
  text = fmt::format("{} ({} tokens)", name, source.vocabulary());
  entropy_rate = source.entropy_rate();
  order_1_entropy = source.order_1_entropy();
  optimizer = fmt::format("{} at {:g}", name_of(settings.kind), settings.learning_rate);
}

void ModelbenchResults::describe_layer(const LayerShape& layer, bool tied) {
  const auto add = [&](std::string_view what) { kind += fmt::format("{}{}", kind.empty() ? "" : ", ", what); };
  if (!layer.causal) add("an encoder that learns masked tokens");
  if (is_post_norm(layer.norm)) add("post-norm");
  if (layer.bias) add("biases");
  if (tied) add("tied embedding");
  if (!layer.causal) entropy_rate = order_1_entropy = std::nullopt;
}

std::string text_of(const ModelbenchResults& results) {
  const std::vector<commands::ScheduleRun>& runs = results.outcome.runs;
  std::string text = fmt::format(
      "{}{}, {}{} layer{}{}, {} tokens a step\non {}{}\n\n", results.model,
      results.kind.empty() ? "" : fmt::format(" ({})", results.kind), results.layers,
      results.layers < results.of_layers ? fmt::format(" of its {}", results.of_layers) : "",
      results.of_layers == 1 ? "" : "s",
      results.dense.has_none(results.layers)
          ? ""
          : fmt::format(", {} MoE", results.layers - results.dense.count(0, results.layers)),
      results.tokens, results.place,
      results.emulated ? fmt::format(" (emulated by {}, {})", measure::proxy_ranks(), commands::dilation_text(runs))
                       : "");
  if (results.cut) text += "a rank has no memory for more layers\n\n";
  if (std::ranges::any_of(runs, timed, &commands::ScheduleRun::record))
    text +=
        times_of(results) + packings_of(results) + utilisation_text(results.use, results.outcome, max_process_bytes());
  if (std::ranges::any_of(runs, checked, &commands::ScheduleRun::record))
    text += results.check_only ? gradients_of(results) : losses_of(results);
  if (results.tasks) text += commands::tasks_text(results.outcome);
  return text + commands::reasons_text(results.outcome) + "records: " + results.records_path;
}

std::string json_of(const ModelbenchResults& results) {
  Json document{{"model", results.model},
                {"cluster", results.cluster},
                {"layers", results.layers},
                {"of_layers", results.of_layers},
                {"tokens", results.tokens},
                {"text", results.text},
                {"optimizer", results.optimizer},
                {"records", results.records_path},
                {"step_flops", results.use.step_flops},
                {"process_peak_bytes", max_process_bytes()}};
  if (!results.kind.empty()) document["kind"] = results.kind;
  commands::add_layer_kinds(document, results.dense, results.whole, results.layers);
  if (results.use.peak_flops) document["peak_flops"] = *results.use.peak_flops;
  if (results.use.peak_flops) document["peak_by"] = results.use.peak_by;
  if (results.entropy_rate) document["entropy_rate"] = *results.entropy_rate;
  if (results.order_1_entropy) document["order_1_entropy"] = *results.order_1_entropy;
  document["schedules"] = commands::schedules_json(results.outcome);
  for (size_t i = 0; i < results.outcome.runs.size(); ++i)
    for (const Samples& samples : results.outcome.runs[i].record.samples)
      if (samples.name == "loss")
        for (const auto& of_step : samples.values) document["schedules"][i]["loss"].push_back(of_step.front());
  return document_text(document);
}

namespace {

constexpr const char* kUsed = "model_flops_utilisation";

std::string percent_of(const Fields& fields, std::string_view name) {
  return fields.has(name) ? percent(fields.number(name, "")) : "-";
}

// Returns "22.6 TFLOP".
std::string human_flops(double flops) {
  constexpr const char* kUnits[] = {"FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < std::size(kUnits); ++unit) flops /= 1000;
  return fmt::format("{:.3g} {}", flops, kUnits[unit]);
}

}  // namespace

std::optional<double> Utilisation::utilisation_of_step(double seconds) const {
  if (!peak_flops || seconds <= 0) return std::nullopt;
  return step_flops / (ranks * *peak_flops * seconds);
}

Utilisation utilisation_of(const Profile& profile, const LayerCase& shape, const ModelDepth& depth,
                           std::optional<double> asked) {
  Utilisation use{step_flops(shape, depth), shape.parallel.ranks(), asked, asked ? "--peak-flops" : ""};
  if (asked) return use;
  for (const ComputeRow& row : profile.compute) {
    if (row.op != Op::gemm || row.dtype != shape.layer.dtype || row.beta_s_per_flop <= 0) continue;
    use.peak_flops = 1 / row.beta_s_per_flop;
    use.peak_by = fmt::format("{} of {}", row_name(row), profile.name);
  }
  return use;
}

void add_utilisation(const Utilisation& use, commands::LayerOutcome& outcome) {
  for (commands::ScheduleRun& run : outcome.runs)
    for (Fields* fields : {&run.record.summary, &run.record.prediction})
      if (fields->has("total_s"))
        if (const auto share = use.utilisation_of_step(fields->number("total_s", run.record.key)))
          fields->set(kUsed, *share);
}

std::string utilisation_text(const Utilisation& use, const commands::LayerOutcome& outcome, double process_bytes) {
  Table table({"schedule", "model FLOPs", "predicted FLOPs", "bubble", "predicted bubble", "memory", "of it states"});
  for (const commands::ScheduleRun& run : outcome.runs) {
    const CaseRecord& r = run.record;
    if (!r.summary.has("total_s")) continue;
    const double states = r.summary.number("states_bytes", r.key);
    table.add({r.schedule, percent_of(r.summary, kUsed), percent_of(r.prediction, kUsed),
               percent_of(r.summary, "bubble"), percent_of(r.prediction, "bubble"),
               human_bytes(r.summary.number("peak_bytes", r.key) + states), human_bytes(states)});
  }
  const std::string of = use.peak_flops ? fmt::format("{}/s of each of {} ranks ({})", human_flops(*use.peak_flops),
                                                      use.ranks, use.peak_by)
                                        : "a peak that nobody gave (--peak-flops)";
  return fmt::format("What a step uses (model FLOPs: {} of {})\n\n{}\nthis process had at most {} of memory\n\n",
                     human_flops(use.step_flops), of, table.text(), human_bytes(process_bytes));
}

double max_process_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace moe::modelbench
