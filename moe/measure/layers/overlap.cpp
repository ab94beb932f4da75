#include "moe/measure/layers/overlap.h"

#include <algorithm>
#include <cmath>

#include "moe/base/statistics.h"

namespace moe {
namespace {

bool communicates(LaneKind kind) { return kind != LaneKind::compute && kind != LaneKind::copy; }

double exposed_seconds(const Plan& plan, std::span<const TaskTime> times) {
  struct Edge {
    double at_s;
    int communicating, computing;  // +1: begins, -1: ends
  };
  std::vector<Edge> edges;
  for (const Task& task : plan.tasks()) {
    const LaneKind lane = plan.structure->lanes[static_cast<size_t>(task.lane)].kind;
    const int communicating = communicates(lane), computing = lane == LaneKind::compute;
    const TaskTime& t = times[static_cast<size_t>(task.id)];
    edges.push_back({t.start_s, communicating, computing});
    edges.push_back({t.end_s, -communicating, -computing});
  }
  std::ranges::sort(edges, {}, &Edge::at_s);
  double exposed = 0, last = 0;
  int communicating = 0, computing = 0;
  for (const Edge& edge : edges) {
    if (communicating > 0 && computing == 0) exposed += edge.at_s - last;
    communicating += edge.communicating, computing += edge.computing;
    last = edge.at_s;
  }
  return exposed;
}

}  // namespace

bool farther_from_1(double a, double b) { return b == 0 || std::abs(std::log(a)) > std::abs(std::log(b)); }

Overlap overlap_of(const Plan& plan, std::span<const TaskTime> times) {
  std::vector<double> busy(plan.structure->lanes.size());
  double begin = 1e300, end = 0, sum = 0;
  for (const Task& task : plan.tasks()) {
    const TaskTime& t = times[static_cast<size_t>(task.id)];
    if (!has_time(t)) continue;
    busy[static_cast<size_t>(task.lane)] += t.end_s - t.start_s;
    begin = std::min(begin, t.start_s), end = std::max(end, t.end_s);
  }
  for (const double lane : busy) sum += lane;
  Overlap overlap{exposed_seconds(plan, times), 1};
  const double could = sum - *std::ranges::max_element(busy);
  if (could > 0) overlap.efficiency = std::clamp((sum - (end - begin)) / could, 0.0, 1.0);
  return overlap;
}

double own_seconds(const Task& task, std::span<const std::vector<TaskTime>> ranks) {
  double least = 1e300, most = 0;
  for (const auto& rank : ranks) {
    const TaskTime& t = rank[static_cast<size_t>(task.id)];
    if (!has_time(t)) continue;
    least = std::min(least, t.end_s - t.start_s);
    most = std::max(most, t.end_s - t.start_s);
  }
  if (most == 0) return 0;  // an instant, or nowhere
  return task.group == GroupKind::none ? most : least;
}

std::vector<TaskComparison> compare_tasks(const Plan& plan, std::span<const double> measured,
                                          std::span<const double> predicted) {
  std::vector<TaskComparison> rows;
  std::vector<std::vector<double>> ratios;
  for (const Task& task : plan.tasks()) {
    const auto same = [&](const TaskComparison& row) { return row.kind == task.kind && row.phase == task.phase; };
    auto row = std::ranges::find_if(rows, same);
    if (row == rows.end()) {
      row = rows.insert(rows.end(), TaskComparison());
      row->kind = task.kind, row->phase = task.phase;
      ratios.emplace_back();
    }
    const auto id = static_cast<size_t>(task.id);
    ++row->tasks;
    row->measured_s += measured[id];
    row->predicted_s += predicted[id];
    if (predicted[id] <= 0) continue;
    const double ratio = measured[id] / predicted[id];
    ratios[static_cast<size_t>(row - rows.begin())].push_back(ratio);
    if (farther_from_1(ratio, row->worst_ratio)) row->worst_ratio = ratio, row->worst_task = task.name();
  }
  for (size_t i = 0; i < rows.size(); ++i)
    if (!ratios[i].empty()) rows[i].median_ratio = median(ratios[i]);
  return rows;
}

}  // namespace moe
