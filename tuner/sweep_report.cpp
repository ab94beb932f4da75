#include "tuner/sweep_report.h"

#include <algorithm>

#include "moe/base/table.h"
#include "moe/base/units.h"
#include "verbs/printed.h"

namespace moe::tuner {
namespace {

std::string times(double speedup) { return speedup > 0 ? fmt::format("{:.3f}x", speedup) : "-"; }

constexpr size_t kShownNotes = 3;  // of a kind

// Says what prices were taken from where the profile has no row.
std::string notes_text(const std::vector<verbs::SweepRow>& rows) {
  std::string text;
  for (const auto& [kind, noted] : verbs::noted_layers(rows)) {
    text += fmt::format("  prices of {}: {}\n", counted(noted.layers, "layer"), kind);
    size_t shown = 0;
    for (const std::string& what : noted.what)
      if (shown++ < kShownNotes) text += fmt::format("    {}\n", what);
    if (shown > kShownNotes) text += fmt::format("    and {} more\n", shown - kShownNotes);
  }
  return text;
}

}  // namespace

std::string fastest_text(const std::vector<verbs::ScheduleSummary>& summaries) {
  constexpr double kShown = 5e-4;  // closer means are printed alike, and the first of them is named
  double best = 0;
  int most = 0;
  for (const verbs::ScheduleSummary& s : summaries) best = std::max(best, s.speedup), most = std::max(most, s.compared);
  for (const verbs::ScheduleSummary& s : summaries)
    if (s.layers > 0 && s.compared < most) return "";
  for (const verbs::ScheduleSummary& s : summaries)
    if (best > 0 && s.speedup >= best - kShown)
      return fmt::format("  fastest in the mean: {}, {} over tutel, simulated\n", s.schedule, times(s.speedup));
  return "";
}

std::string simulated_speedup(const verbs::ScheduleSummary& summary) {
  const bool fewer = summary.compared > 0 && summary.compared < summary.layers;
  return times(summary.speedup) + (fewer ? fmt::format(" ({})", summary.compared) : "");
}

std::string sweep_report(const std::vector<verbs::SweepRow>& rows, const verbs::SweepRequest& request) {
  const auto summaries = verbs::summarise(rows, request.schedules);
  Table table({"schedule", "layers", "over tutel", "paper", "of the bound", "of its own", "r_f", "r_b", "r_f != r_b"});
  for (const verbs::ScheduleSummary& s : summaries)
    table.add({std::string(s.schedule), fmt::format("{}", s.layers), simulated_speedup(s),
               times(verbs::printed_speedup(request.grid, request.profile, request.degrees, s.schedule)),
               percent(s.of_bound), percent(s.of_own), verbs::degree_range(s.degrees_forward),
               verbs::degree_range(s.degrees_backward), fmt::format("{}", s.apart)});
  std::string text = table.text() + fastest_text(summaries);
  std::map<std::string, int> reasons;
  for (const verbs::SweepRow& row : rows) {
    if (!row.reason.empty()) ++reasons[row.reason.substr(0, row.reason.find(": needs"))];  // sizes differ by layer
    if (row.reason.empty())
      for (const auto& [schedule, reason] : row.refused)
        ++reasons[fmt::format("{}: {}", schedule, reason.substr(0, reason.find(": needs")))];
  }
  for (const auto& [reason, count] : reasons)
    text += fmt::format("  unsupported, {}: {}\n", counted(count, "layer"), reason);
  return text + notes_text(rows);
}

}  // namespace moe::tuner
