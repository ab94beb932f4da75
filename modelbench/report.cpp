#include "modelbench/report.h"

#include <algorithm>

#include "moe/base/json.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/measure/layers/proxy.h"
#include "moe/record/pass_times.h"
#include "verbs/results_json.h"
#include "verbs/run/layer_records.h"
#include "verbs/run/run_report.h"

namespace moe::modelbench {
namespace {

double summary(const CaseRecord& r, std::string_view name) { return r.summary.number(name, r.key); }
bool checked(const CaseRecord& r) { return r.summary.has("worst_error"); }
bool timed(const CaseRecord& r) { return r.summary.has("total_s"); }
std::string ms(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

/// Returns a baseline's step time over this one's; "-" where either was not timed.
std::string speedup(const std::vector<verbs::ScheduleRun>& runs, std::string_view baseline, const CaseRecord& r) {
  for (const verbs::ScheduleRun& run : runs)
    if (run.record.schedule == baseline && timed(run.record))
      return fmt::format("{:.3f}x", summary(run.record, "total_s") / summary(r, "total_s"));
  return "-";
}

std::string times_of(const ModelbenchResults& results) {
  Table table({"schedule", "r", "model ms", "step ms", "error", "spread", "tokens/s", "over tutel", "over ds-moe",
               "exposed ms", "status"});
  for (const verbs::ScheduleRun& run : results.outcome.runs) {
    const CaseRecord& r = run.record;
    if (!timed(r)) continue;
    const double total = summary(r, "total_s");
    table.add(
        {r.schedule, fmt::format("{}/{}", r.degree_forward, r.degree_backward),
         ms(r.prediction.number("total_s", r.key)), ms(total),
         fmt::format("{:+.2f} %", 100 * (verbs::measured_over_predicted(r) - 1)),
         spread_text(summary(r, "least_total_s"), summary(r, "most_total_s"), total, median_interval(passes_s(r))),
         fmt::format("{:.0f}", static_cast<double>(results.tokens) / total), speedup(results.outcome.runs, "tutel", r),
         speedup(results.outcome.runs, "ds-moe", r), ms(summary(r, "exposed_s")), std::string(name_of(r.status))});
  }
  return "Step (medians of the slowest rank; r: degrees forward/backward)\n\n" + table.text() + '\n';
}

std::string losses_of(const ModelbenchResults& results) {
  Table table({"schedule", "steps", "first loss", "last loss", "held-out", "gradients off by", "in", "status"});
  for (const verbs::ScheduleRun& run : results.outcome.runs) {
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
  for (const verbs::ScheduleRun& run : results.outcome.runs)
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
  if (is_post(layer.norm)) add("post-norm");
  if (layer.bias) add("biases");
  if (tied) add("tied embedding");
  if (!layer.causal) entropy_rate = order_1_entropy = std::nullopt;
}

std::string text_of(const ModelbenchResults& results) {
  const std::vector<verbs::ScheduleRun>& runs = results.outcome.runs;
  std::string text = fmt::format(
      "{}{}, {}{} layer{}{}, {} tokens a step\non {}{}\n\n", results.model,
      results.kind.empty() ? "" : fmt::format(" ({})", results.kind), results.layers,
      results.layers < results.of_layers ? fmt::format(" of its {}", results.of_layers) : "",
      results.of_layers == 1 ? "" : "s",
      results.dense.none(results.layers)
          ? ""
          : fmt::format(", {} MoE", results.layers - results.dense.in(0, results.layers)),
      results.tokens, results.place,
      results.emulated ? fmt::format(" (emulated by {}, {})", measure::proxy_ranks(), verbs::dilation_text(runs)) : "");
  if (results.cut) text += "a rank has no memory for more layers\n\n";
  if (std::ranges::any_of(runs, timed, &verbs::ScheduleRun::record))
    text += times_of(results) + utilisation_text(results.use, results.outcome, most_process_bytes());
  if (std::ranges::any_of(runs, checked, &verbs::ScheduleRun::record))
    text += results.check_only ? gradients_of(results) : losses_of(results);
  if (results.tasks) text += verbs::tasks_text(results.outcome);
  return text + verbs::reasons_text(results.outcome) + "records: " + results.records_path;
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
                {"process_peak_bytes", most_process_bytes()}};
  if (!results.kind.empty()) document["kind"] = results.kind;
  verbs::add_dense(document, results.dense, results.layers);
  if (results.use.peak_flops) document["peak_flops"] = *results.use.peak_flops;
  if (results.use.peak_flops) document["peak_by"] = results.use.peak_by;
  if (results.entropy_rate) document["entropy_rate"] = *results.entropy_rate;
  if (results.order_1_entropy) document["order_1_entropy"] = *results.order_1_entropy;
  document["schedules"] = verbs::schedules_json(results.outcome);
  for (size_t i = 0; i < results.outcome.runs.size(); ++i)
    for (const Samples& samples : results.outcome.runs[i].record.samples)
      if (samples.name == "loss")
        for (const auto& of_step : samples.values) document["schedules"][i]["loss"].push_back(of_step.front());
  return document_text(document);
}

}  // namespace moe::modelbench
