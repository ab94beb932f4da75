#include "verbs/printed.h"

#include <algorithm>
#include <array>

#include "moe/base/config_files.h"
#include "verbs/csv_rows.h"

namespace moe::verbs {
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

}  // namespace

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

bool printed_apart(const Grid& grid, const Profile& cluster, const DegreeChoice& degrees) {
  return grid.name == "fsmoe-b" && cluster.name == "testbed-b" && printed_speedup(grid, cluster, degrees, "fsmoe") > 0;
}

}  // namespace moe::verbs
