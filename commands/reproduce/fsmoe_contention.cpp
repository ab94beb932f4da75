#include "commands/reproduce/fsmoe_contention.h"

#include <array>
#include <cmath>

#include "commands/shared/printed.h"
#include "moe/base/check.h"

namespace moe::reproduce {
namespace {

constexpr double kTolerance = 1e-3;  // relative tolerance of a speedup
constexpr int kMaxSteps = 20;

// The search for the contention factor with which a reading has the printed speedup: false position, Illinois variant.
struct Fit {
  Reading reading;
  double printed = 0;
  double low = 1, high = kMaxContention;  // bracket of the contention factor
  double above = 0, below = 0;            // speedup minus the printed one at either end
  double at = 1, off = 0;                 // the last factor tried, and its speedup minus the printed one
  int side = 0;                           // the end that moved last
  bool done = false;

  void step() {
    at = low + (high - low) * above / (above - below);
    reading.contention = at;
  }
  void take(double speedup) {
    off = speedup - printed;
    done = std::abs(off) <= kTolerance * printed;
    if (off > 0) {
      low = at;
      above = off;
      if (side == 1) below /= 2;
      side = 1;
    } else {
      high = at;
      below = off;
      if (side == -1) above /= 2;
      side = -1;
    }
  }
};

constexpr std::array<std::string_view, 3> kContended{"tutel-improved", "fsmoe-no-iio", "fsmoe"};

// The last row of either testbed is the closest reading for the schedules that contention does not affect.
std::string fitted_finding(const TextTable& table) {
  const std::vector<std::string>*a = nullptr, *b = nullptr;
  for (const auto& row : table.rows) (row[0] == "testbed-a" ? a : b) = &row;
  return fmt::format(
      "One slowdown of the two networks closes what is left. Fitted to fsmoe's number alone, on each testbed by "
      "itself, "
      "it comes out as {} on A and {} on B in the last reading of each (betas in the order and unit that Table 2 "
      "confirms); tutel-improved and fsmoe-no-iio, which it does not touch, then are {} and {} on A (printed 1.09, "
      "1.12), {} and {} on B (1.08, 1.16), and {} layers have r_f != r_b on B (912). It is a fit to what it explains: "
      "no paper prints it.",
      (*a)[4], (*b)[4], (*a)[5], (*a)[6], (*b)[5], (*b)[6], (*b)[8]);
}

// Sweeps all unfinished fits together, so that every core has one.
void sweep_all(SweepStore& sweeps, std::vector<Fit>& fits) {
  std::vector<Reading> readings;
  for (const Fit& fit : fits)
    if (!fit.done) readings.push_back(fit.reading);
  sweeps.prepare(readings);
}

double speedup_at(SweepStore& sweeps, Fit& fit, double contention) {
  fit.reading.contention = contention;
  return sweeps.sweep(fit.reading).find("fsmoe").speedup - fit.printed;
}

}  // namespace

std::vector<Reading> with_fitted_contention(SweepStore& sweeps, const std::vector<Reading>& readings) {
  std::vector<Fit> fits;
  std::vector<Reading> ends;
  for (Reading reading : readings) {
    const std::string grid(printed_grid(reading.testbed)), cluster(name_of(reading.testbed));
    fits.push_back({.reading = reading, .printed = commands::printed_speedup(grid, cluster, "fsmoe")});
    for (const double end : {1.0, kMaxContention}) {
      reading.contention = end;
      ends.push_back(reading);
    }
  }
  sweeps.prepare(ends);
  for (Fit& fit : fits) {
    fit.below = speedup_at(sweeps, fit, kMaxContention);
    fit.above = speedup_at(sweeps, fit, 1);  // computed without contention
    fit.done = fit.above <= 0;
    if (fit.below < 0) continue;
    fit.reading.contention = kMaxContention;
    fit.done = true;
  }
  for (int i = 0; i < kMaxSteps; ++i) {
    bool all = true;
    for (Fit& fit : fits)
      if (!fit.done) fit.step(), all = false;
    if (all) break;
    sweep_all(sweeps, fits);
    for (Fit& fit : fits)
      if (!fit.done) fit.take(sweeps.sweep(fit.reading).find("fsmoe").speedup);
  }
  std::vector<Reading> fitted;
  for (const Fit& fit : fits) fitted.push_back(fit.reading);
  return fitted;
}

void add_fitted_contention(Report& report, Study& study, const std::vector<Reading>& on_a,
                           const std::vector<Reading>& on_b) {
  TextTable table{
      "CONTENTION, FITTED: the slowdown of either network while the other is busy, chosen for fsmoe's number; "
      "the other columns follow",
      {"testbed", "gemm", "volumes", "attention", "slowdown", "tutel-improved", "fsmoe-no-iio", "fsmoe", "r_f != r_b"},
      {}};
  Comparison c{.caption = "table 5 with fitted contention",
               .label_names = {"testbed", "gemm", "volumes", "attention", "contention", "schedule"}};
  c.comparison_table = false;
  for (const Testbed testbed : {Testbed::a, Testbed::b}) {
    const std::string name(name_of(testbed)), grid(printed_grid(testbed));
    auto& paper = table.rows.emplace_back(std::vector<std::string>{name, "paper", "", "", ""});
    for (const std::string_view schedule : kContended)
      paper.push_back(fmt::format("{:.3f}", commands::printed_speedup(grid, name, schedule)));
    paper.push_back(testbed == Testbed::b ? fmt::format("{:.0f}", commands::kPaperDifferingDegrees) : "-");
    for (const Reading& r : with_fitted_contention(study.sweeps, testbed == Testbed::a ? on_a : on_b)) {
      const SweptReading& swept = study.sweeps.sweep(r);
      std::vector<std::string> row{name, std::string(name_of(r.gemm)), std::string(name_of(r.capacity)),
                                   std::string(name_of(r.attention)), fmt::format("{:.2f}", r.contention)};
      for (const std::string_view schedule : kContended) {
        std::vector<std::string> labels(row.begin(), row.begin() + 5);
        labels.emplace_back(schedule);
        c.figures.push_back(
            {labels, "fitted to fsmoe", commands::printed_speedup(grid, name, schedule), swept.find(schedule).speedup});
      }
      for (const std::string_view schedule : kContended)
        row.push_back(fmt::format("{:.3f}", swept.find(schedule).speedup));
      row.push_back(fmt::format("{}", swept.find("fsmoe").differing_degrees));
      table.rows.push_back(std::move(row));
    }
  }
  report.shows.push_back(fitted_finding(table));
  report.comparisons.push_back(std::move(c));
  report.tables.push_back(std::move(table));
}

}  // namespace moe::reproduce
