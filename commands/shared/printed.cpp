#include "commands/shared/printed.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "commands/shared/csv_rows.h"
#include "moe/base/config_files.h"
#include "moe/base/statistics.h"

namespace moe::commands {
namespace {

constexpr std::array<std::string_view, 2> kOtherReadingsOfA{"testbed-a-printed", "testbed-a-driver-experts"};

struct PrintedSpeedup {
  std::string grid, cluster, schedule;
  double speedup = 0;
};

std::vector<PrintedSpeedup> printed_speedups() {
  using R = PrintedSpeedup;
  return csv_rows<R>("papers/fsmoe-table5", {"grid", "cluster", "schedule", "speedup"}, &R::grid, &R::cluster,
                     &R::schedule, &R::speedup);
}

struct ErrorRow {
  std::string gpu, model;
  double error = 0;
};

// Returns the measured time relative to the prediction: "25 % more" for an error of -20 %.
std::string measured_against(double error) {
  const double more = 1 / (1 + error) - 1;
  return fmt::format("{:.0f} % {}", 100 * std::abs(more), more < 0 ? "less" : "more");
}

}  // namespace

std::string paper_column_header(const Grid& grid) {
  return grid.sample_of.empty() ? "paper" : fmt::format("paper ({} layers)", kPrintedLayers);
}

double printed_speedup(const std::string& grid, const std::string& cluster, std::string_view schedule) {
  const bool other = std::ranges::find(kOtherReadingsOfA, cluster) != kOtherReadingsOfA.end();
  for (const PrintedSpeedup& row : printed_speedups())
    if (row.grid == grid && row.cluster == (other ? "testbed-a" : cluster) && row.schedule == schedule)
      return row.speedup;
  return 0;
}

double printed_speedup(const Grid& grid, const Profile& cluster, const DegreeChoice& degrees,
                       std::string_view schedule) {
  const bool whole = grid.sample_of.empty();
  const bool chosen = degrees.forward == 0 && degrees.backward == 0;
  const std::string& name = whole ? grid.name : grid.sample_of;
  const bool presets = is_preset("grids", name, whole ? grid.file : grid.sample_of_file) &&
                       is_preset("clusters", cluster.name, cluster.file);
  return chosen && presets ? printed_speedup(name, cluster.name, schedule) : 0;
}

bool paper_differing_degrees_apply(const Grid& grid, const Profile& cluster, const DegreeChoice& degrees) {
  return grid.name == "fsmoe-b" && cluster.name == "testbed-b" && printed_speedup(grid, cluster, degrees, "fsmoe") > 0;
}

std::optional<PublishedErrors> published_errors(const Profile& profile, const std::string& model) {
  if (!profile.gpu) return std::nullopt;
  std::vector<ErrorRow> rows = csv_rows<ErrorRow>("published/training-errors", {"gpu", "model", "error"},
                                                  &ErrorRow::gpu, &ErrorRow::model, &ErrorRow::error);
  const std::string gpu = profile.gpu->name.substr(0, profile.gpu->name.find(' '));
  std::erase_if(rows, [&](const ErrorRow& row) { return row.gpu != gpu; });
  if (rows.empty()) return std::nullopt;
  const auto is_of_model = [&](const ErrorRow& row) { return row.model == model; };
  const bool any = std::ranges::any_of(rows, is_of_model);
  if (any) std::erase_if(rows, [&](const ErrorRow& row) { return !is_of_model(row); });
  std::vector<double> errors;
  for (const ErrorRow& row : rows) errors.push_back(row.error);
  const auto [least, most] = std::ranges::minmax(errors);
  return PublishedErrors{any ? model : "", gpu, static_cast<int>(errors.size()), median(errors), least, most};
}

std::string text_of(const PublishedErrors& e) {
  const std::string of = e.model.empty() ? "" : " of " + e.model;
  if (e.runs == 1)
    return fmt::format("a published step{} on {} took {} than predicted", of, e.gpu, measured_against(e.median));
  return fmt::format("{} published steps{} on {} took {} than predicted in the median ({} to {})", e.runs, of, e.gpu,
                     measured_against(e.median), measured_against(e.max), measured_against(e.min));
}

}  // namespace moe::commands
