#include "commands/report/picked_layers.h"

#include <algorithm>

#include "commands/report/model_timelines.h"
#include "commands/shared/frameworks.h"

namespace moe::report {
namespace {

constexpr size_t kFastest = 3;

std::vector<size_t> spread(const std::vector<size_t>& all, size_t count) {
  count = std::min(count, all.size());
  std::vector<size_t> picked;
  for (size_t i = 0; i < count; ++i) picked.push_back(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]);
  return picked;
}

}  // namespace

std::vector<size_t> picked_layers(const RecordTables& tables, const std::vector<bool>& chosen, size_t count) {
  std::vector<bool> replayable(tables.layers().size());
  for (const LayerRow& row : tables.rows())
    if (row.ok && !row.is_from_plan_file) replayable[row.layer] = !is_stack(tables.layers()[row.layer].parameters);
  std::vector<size_t> ran, planned;
  for (size_t layer = 0; layer < replayable.size(); ++layer)
    if (replayable[layer] && chosen[tables.layers()[layer].run])
      (tables.layers()[layer].measured ? ran : planned).push_back(layer);
  std::vector<size_t> picked = spread(ran, count);
  const std::vector<size_t> others = spread(planned, count - picked.size());
  picked.insert(picked.end(), others.begin(), others.end());
  return picked;
}

PickedRows picked_rows(const RecordTables& tables, size_t layer) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < tables.rows().size(); ++row)
    if (const LayerRow& of = tables.rows()[row]; of.layer == layer && of.ok) rows.push_back(row);
  const auto all_have = [&](std::optional<double> LayerRow::*time) {
    return std::ranges::all_of(rows, [&](size_t row) { return (tables.rows()[row].*time).has_value(); });
  };
  const bool measured = all_have(&LayerRow::measured_s), planned = all_have(&LayerRow::planned_s);
  const auto seconds = [&](size_t row) {
    const LayerRow& of = tables.rows()[row];
    if (measured) return *of.measured_s;
    return planned ? *of.planned_s : of.predicted_s;
  };
  std::ranges::stable_sort(rows, {}, seconds);
  PickedRows picked{.rows = {}, .by_plans = !measured && planned};
  for (const size_t row : rows) {
    const LayerRow& of = tables.rows()[row];
    if (of.is_from_plan_file) continue;
    if (picked.rows.size() < kFastest || commands::is_baseline(of.schedule)) picked.rows.push_back(row);
  }
  return picked;
}

}  // namespace moe::report
