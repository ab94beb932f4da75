#include "tuner/answer/ranking.h"

#include <algorithm>
#include <functional>

#include "moe/base/check.h"
#include "moe/cost/critical_path.h"
#include "moe/cost/fluid_replay.h"
#include "moe/search/model_search.h"
#include "moe/search/within_memory.h"

namespace moe::tuner {
namespace {

constexpr double kTie = 1e-9;  // relative: such times are one

std::map<LaneKind, double> busiest(const Plan& plan, const Timeline& timeline) {
  std::map<LaneKind, double> busy;
  for (size_t lane = 0; lane < plan.structure->lanes.size(); ++lane) {
    double& most = busy[plan.structure->lanes[lane].kind];
    most = std::max(most, timeline.lane_busy_s[lane]);
  }
  return busy;
}

std::vector<std::pair<std::string, double>> critical_kinds(const Plan& plan, const Timeline& timeline) {
  const CriticalPath path = critical_path(*plan.structure, timeline.start_s, timeline.end_s);
  std::map<std::string, double> shares;
  for (const Task& task : plan.tasks()) {
    const auto id = static_cast<size_t>(task.id);
    if (path.on_path[id])
      shares[std::string(name_of(task.kind))] += (timeline.end_s[id] - timeline.start_s[id]) / timeline.makespan_s;
  }
  std::vector<std::pair<std::string, double>> sorted(shares.begin(), shares.end());
  std::ranges::stable_sort(sorted, std::greater{}, [](const auto& kind) { return kind.second; });
  return sorted;
}

PlannedTimeline rank_layer(const RankingRequest& request, const LayerPricer& pricer, RankedSchedule& row) {
  LayerSearch search;
  const auto capacity = request.profile.memory_bytes;
  const LayerResult result = search.tune(*row.schedule, pricer, within_memory(request.degrees, capacity));
  Plan plan = build_plan(*row.schedule, pricer.shape(), result.decision);
  row.variant = result.decision.variant;
  row.degree_forward = result.decision.degree_forward;
  row.degrees_backward = {result.decision.degree_backward, result.decision.degree_backward};
  row.gar_in_moe_bytes = result.decision.gar_in_moe_bytes;
  row.forward_s = result.forward_s, row.backward_s = result.backward_s;
  row.bound_s = result.bound.total_s();
  row.gap = result.gap;
  const MemoryEstimate memory = estimate_memory(memory_request(plan));
  row.memory_bytes = memory.total();
  if (const auto reason = capacity ? misfit(memory, *capacity) : std::nullopt) row.refused = *reason;
  Timeline timeline = timeline_of(plan, price(pricer, plan), request.profile.contention);
  return {std::move(plan), std::move(timeline)};
}

PlannedTimeline rank_model(const RankingRequest& request, const LayerPricer& pricer, RankedSchedule& row) {
  const ModelShape& model = request.chosen.model;
  const auto capacity = request.profile.memory_bytes;
  ModelSearch search;
  ModelResult result = search.tune(*row.schedule, pricer, model, partition_strategies().front(),
                                   within_memory(request.degrees, capacity, model));
  const auto [least, most] = std::ranges::minmax(result.decision.backwards, {}, &BackwardDecision::degree);
  row.variant = result.variant;
  row.degree_forward = result.decision.degree_forward;
  row.degrees_backward = {least.degree, most.degree};
  row.forward_s = result.last_forward_s, row.backward_s = result.total_s() - result.last_forward_s;
  row.bound_s = result.bound_s;
  row.gap = result.gap();
  MemoryRequest holds = memory_request(result.plan);
  holds.vocabulary = request.chosen.vocabulary;
  holds.tied_embedding = request.chosen.tied_embedding;
  const MemoryEstimate memory = estimate_memory(holds);
  row.memory_bytes = memory.total();
  if (const auto reason = capacity ? misfit(memory, *capacity) : std::nullopt) row.refused = *reason;
  return {std::move(result.plan), std::move(result.timeline)};
}

}  // namespace

bool one_layer(const ModelShape& model) {
  return model.layers == 1 && model.micro_batches == 1 && model.shape.parallel.pp == 1;
}

RankedSchedule ranked(const RankingRequest& request, const Schedule& schedule, PlannedTimeline* planned) {
  RankedSchedule row;
  row.schedule = &schedule;
  const LayerPricer pricer(request.profile, request.chosen.model.shape, request.pricing);
  try {
    PlannedTimeline found = (one_layer(request.chosen.model) ? rank_layer : rank_model)(request, pricer, row);
    row.busy_s = busiest(found.plan, found.timeline);
    row.critical = critical_kinds(found.plan, found.timeline);
    if (planned != nullptr) *planned = std::move(found);
  } catch (const Unsupported& error) {
    row.refused = error.what();
  }
  row.notes = pricer.notes();
  return row;
}

std::vector<RankedSchedule> rank(const RankingRequest& request, const std::vector<const Schedule*>& schedules) {
  std::vector<RankedSchedule> rows;
  for (const Schedule* schedule : schedules) rows.push_back(ranked(request, *schedule));
  const auto refused = std::ranges::stable_partition(rows, &std::string::empty, &RankedSchedule::refused);
  // Insertion keeps ties in order: "within kTie" is no order that a sort may be given.
  for (auto row = rows.begin(); row != refused.begin(); ++row) {
    const auto place =
        std::find_if(rows.begin(), row, [&](const auto& r) { return row->total_s() < r.total_s() * (1 - kTie); });
    std::rotate(place, row, row + 1);
  }
  return rows;
}

std::vector<Neighbour> neighbours(const RankingRequest& request, const RankedSchedule& winner) {
  std::vector<std::optional<Phase>> moved{std::nullopt};
  if (winner.schedule->degrees == DegreePolicy::apart) moved = {Phase::forward, Phase::backward};
  std::vector<Neighbour> found;
  for (const std::optional<Phase> phase : moved)
    for (const int step : {-1, 1}) {
      RankingRequest asked = request;
      asked.degrees.forward = winner.degree_forward + (phase == Phase::backward ? 0 : step);
      asked.degrees.backward = winner.degrees_backward.first + (phase == Phase::forward ? 0 : step);
      if (std::min(asked.degrees.forward, asked.degrees.backward) < 1) continue;
      const RankedSchedule row = ranked(asked, *winner.schedule);
      const bool cut_so =
          row.degree_forward == asked.degrees.forward &&  // not where a chunk would have less than a row
          row.degrees_backward.first == asked.degrees.backward;
      if (row.refused.empty() && cut_so)
        found.push_back({phase, phase == Phase::backward ? asked.degrees.backward : asked.degrees.forward,
                         row.total_s() / winner.total_s() - 1});
    }
  return found;
}

}  // namespace moe::tuner
