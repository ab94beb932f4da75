#include "modelbench/utilisation.h"

#include <algorithm>
#include <sys/resource.h>

#include "moe/base/table.h"
#include "moe/base/units.h"

namespace moe::modelbench {
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

std::optional<double> Utilisation::of_step(double seconds) const {
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

void add_utilisation(const Utilisation& use, verbs::LayerOutcome& outcome) {
  for (verbs::ScheduleRun& run : outcome.runs)
    for (Fields* fields : {&run.record.summary, &run.record.prediction})
      if (fields->has("total_s"))
        if (const auto share = use.of_step(fields->number("total_s", run.record.key))) fields->set(kUsed, *share);
}

std::string utilisation_text(const Utilisation& use, const verbs::LayerOutcome& outcome, double process_bytes) {
  Table table({"schedule", "model FLOPs", "predicted FLOPs", "bubble", "predicted bubble", "memory", "of it states"});
  for (const verbs::ScheduleRun& run : outcome.runs) {
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

double most_process_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace moe::modelbench
