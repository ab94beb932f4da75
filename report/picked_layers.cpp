#include "report/picked_layers.h"

#include <algorithm>

namespace moe::report {
namespace {

constexpr size_t kFastest = 3;

}  // namespace

std::vector<size_t> picked_layers(const Tables& tables, size_t count) {
  std::vector<bool> planned(tables.layers().size());
  for (const LayerRow& row : tables.rows())
    if (row.ok) planned[row.layer] = true;
  const bool any_measured = std::ranges::any_of(tables.layers(), &LayerEntry::measured);
  std::vector<size_t> candidates, picked;
  for (size_t layer = 0; layer < planned.size(); ++layer)
    if (planned[layer] && (tables.layers()[layer].measured || !any_measured)) candidates.push_back(layer);
  count = std::min(count, candidates.size());
  for (size_t i = 0; i < count; ++i)
    picked.push_back(candidates[count == 1 ? 0 : i * (candidates.size() - 1) / (count - 1)]);
  return picked;
}

std::vector<size_t> picked_rows(const Tables& tables, size_t layer) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < tables.rows().size(); ++row)
    if (tables.rows()[row].layer == layer && tables.rows()[row].ok) rows.push_back(row);
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
  std::vector<size_t> picked;
  for (const size_t row : rows) {
    const std::string& schedule = tables.rows()[row].schedule;
    if (picked.size() < kFastest || schedule == "tutel" || schedule == "ds-moe") picked.push_back(row);
  }
  return picked;
}

}  // namespace moe::report
