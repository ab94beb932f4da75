#include "tuner/verify/grid_report.h"

#include "moe/base/table.h"
#include "tuner/verify/agreement.h"
#include "verbs/printed.h"

namespace moe::tuner {
namespace {

constexpr std::string_view kPrintedApartSchedule = "fsmoe";

std::string times(double speedup) { return speedup > 0 ? fmt::format("{:.3f}x", speedup) : "-"; }

bool printed_apart(const VerifiedResults& results) {
  return verbs::printed_apart(results.grid, results.cluster, results.degrees);
}

std::string speedup_table(const VerifiedResults& results) {
  Table table({"schedule", "layers", "measured", "simulated", "apart", "paper", "r_f != r_b", "paper's"});
  for (const Schedule* schedule : results.verified) {
    const MeasuredSchedule m = measured_schedule(results.outcomes, schedule->name);
    const bool counted = printed_apart(results) && schedule->name == kPrintedApartSchedule;
    const double printed = verbs::printed_speedup(results.grid, results.cluster, results.degrees, schedule->name);
    table.add({std::string(schedule->name), fmt::format("{}", m.layers), times(m.measured), times(m.predicted),
               m.layers > 0 ? fmt::format("{:+.2f} %", 100 * (m.measured / m.predicted - 1)) : "-", times(printed),
               fmt::format("{}", m.apart), counted ? fmt::format("{}", verbs::kPrintedApart) : "-"});
  }
  return table.text();
}

std::string degrees_text(const VerifiedResults& results, const RunFigures& figures) {
  const BestDegrees &measured = figures.best_measured, &predicted = figures.best_predicted;
  if (measured.layers == 0) return {};
  const auto share = [](double count, double of) { return fmt::format("{} ({:.0f} %)", count, 100 * count / of); };
  Table table({"fsmoe, best of r = 1 2 4 8", "layers", "r_f != r_b", "by more than 1 %"});
  for (const auto& [name, best] : {std::pair{"by measured times", measured}, {"by simulated times", predicted}})
    table.add({name, fmt::format("{}", best.layers), share(best.apart, best.layers),
               share(best.apart_by_1_percent, best.layers)});
  if (printed_apart(results))
    table.add(
        {"paper", fmt::format("{}", verbs::kPrintedLayers), share(verbs::kPrintedApart, verbs::kPrintedLayers), "-"});
  return table.text() + "\n";
}

}  // namespace

std::string grid_text(const VerifiedResults& results, const RunFigures& figures) {
  std::string text = fmt::format(
      "{} layers of {}: mean speedup over tutel of forward + backward, and layers run with r_f != r_b\n"
      "(simulated: the same plans of the same layers, by the fit; degrees are the tuner's, ran as such)\n\n{}\n",
      figures.layers, results.grid.name, speedup_table(results));
  text += degrees_text(results, figures);
  return figures.left_out.empty() ? text + "every run of every layer is in these means\n" : text;
}

}  // namespace moe::tuner
