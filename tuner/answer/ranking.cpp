#include "tuner/answer/ranking.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "moe/base/check.h"
#include "moe/search/degrees.h"
#include "moe/search/model_search.h"
#include "moe/shape/volumes.h"
#include "moe/simulator/fluid_replay.h"
#include "moe/simulator/simulator.h"

namespace moe::tuner {
namespace {

constexpr double kTie = 1e-9;  // relative difference below which times count as equal

std::map<LaneKind, double> busiest(const Plan& plan, const Timeline& timeline) {
  std::map<LaneKind, double> busy;
  for (size_t lane = 0; lane < plan.structure->lanes.size(); ++lane) {
    double& most = busy[plan.structure->lanes[lane].kind];
    most = std::max(most, timeline.lane_busy_s[lane]);
  }
  return busy;
}

// Returns the seconds in which both lanes are busy. A lane runs its tasks one at a time, in the order of its queue.
double overlap_s(const std::vector<int>& lane, const std::vector<int>& other, const Timeline& t) {
  double overlap = 0;
  for (size_t i = 0, j = 0; i < lane.size() && j < other.size();) {
    const auto a = static_cast<size_t>(lane[i]), b = static_cast<size_t>(other[j]);
    overlap += std::max(0.0, std::min(t.end_s[a], t.end_s[b]) - std::max(t.start_s[a], t.start_s[b]));
    t.end_s[a] < t.end_s[b] ? ++i : ++j;
  }
  return overlap;
}

double hidden_share(const Plan& plan, const Timeline& timeline) {
  double busy = 0, hidden = 0;
  const std::vector<Lane>& lanes = plan.structure->lanes;
  for (size_t i = 0; i < lanes.size(); ++i) {
    constexpr std::array kNoNetwork{LaneKind::compute, LaneKind::copy, LaneKind::host, LaneKind::host_link};
    if (std::ranges::find(kNoNetwork, lanes[i].kind) != kNoNetwork.end()) continue;
    busy += timeline.lane_busy_s[i];
    for (const Lane& lane : lanes)
      if (lane.kind == LaneKind::compute && lane.stage == lanes[i].stage)
        hidden += overlap_s(lanes[i].queue, lane.queue, timeline);
  }
  return busy > 0 ? hidden / busy : 0;
}

// Refuses a plan that exceeds a rank's memory.
void check_memory(const MemoryEstimate& memory, const Profile& profile, RankedSchedule& row) {
  row.memory_bytes = memory.total();
  if (profile.memory_bytes) row.refusal = memory_refusal(memory, *profile.memory_bytes);
}

// Returns a lower bound on the memory of the schedule's plans, by the fewest micro-batches that its order can hold.
MemoryEstimate min_memory(const commands::ChosenModel& chosen, const Schedule& schedule) {
  const auto with = [&](Flow flow) {
    return commands::memory_of(chosen, memory_request(chosen.model, chosen.model.shape, flow));
  };
  MemoryEstimate least = with(schedule.variants.empty() ? schedule.flow : schedule.variants.front()->flow);
  for (const Schedule* variant : schedule.variants)
    if (const MemoryEstimate other = with(variant->flow); other.total() < least.total()) least = other;
  return least;
}

std::vector<std::pair<std::string, double>> critical_kinds(const Plan& plan, const Timeline& timeline) {
  const CriticalPath path = critical_path(*plan.structure, timeline.start_s, timeline.end_s);
  std::map<std::string, double> shares;
  for (const Task& task : plan.tasks()) {
    if (path.on_path[task.id])
      shares[std::string(name_of(task.kind))] +=
          (timeline.end_s[task.id] - timeline.start_s[task.id]) / timeline.makespan_s;
  }
  std::vector<std::pair<std::string, double>> sorted(shares.begin(), shares.end());
  std::ranges::stable_sort(sorted, std::greater{}, [](const auto& kind) { return kind.second; });
  return sorted;
}

PlannedTimeline rank_layer(const RankingRequest& request, const LayerPricer& pricer, RankedSchedule& row) {
  LayerSearch search;
  const LayerResult result =
      search.tune(*row.schedule, pricer, within_memory(request.degrees, request.profile.memory_bytes));
  Plan plan = build_plan(*row.schedule, pricer.shape(), result.decision);
  row.variant = result.decision.variant;
  row.degree_forward = result.decision.degree_forward;
  row.degrees_backward = {result.decision.degree_backward, result.decision.degree_backward};
  row.gar_in_moe_bytes = result.decision.gar_in_moe_bytes;
  row.gar_after_bytes = result.decision.gar_after_bytes;
  row.forward_s = result.forward_s;
  row.backward_s = result.backward_s;
  row.bound_s = result.bound.total_s();
  row.gap = result.gap;
  check_memory(estimate_memory(memory_request(plan)), request.profile, row);
  Timeline timeline = timeline_of(plan, price(pricer, plan), request.profile.contention);
  return {std::move(plan), std::move(timeline)};
}

PlannedTimeline rank_model(const RankingRequest& request, const LayerPricer& pricer, RankedSchedule& row) {
  const commands::ChosenModel& chosen = request.chosen;
  const Profile& profile = request.profile;
  ModelSearch search(request.checked);
  ModelResult result = search.tune(*row.schedule, pricer, chosen.model,
                                   commands::within_memory(request.degrees, profile.memory_bytes, chosen));
  row.variant = result.variant;
  row.degree_forward = result.decision.degree_forward;
  row.degrees_backward = backward_degrees(chosen.model, result.decision);
  row.forward_s = result.last_forward_s;
  row.backward_s = result.total_s() - result.last_forward_s;
  row.bound_s = result.bound_s;
  row.gap = result.gap();
  check_memory(commands::memory_of(chosen, memory_request(result.plan)), profile, row);
  return {std::move(result.plan), std::move(result.timeline)};
}

void add_head(const commands::ChosenModel& chosen, const LayerPricer& pricer, RankedSchedule& row) {
  try {
    const double head_s = head_seconds(row.planned_as(), pricer, chosen.model, chosen.vocabulary);
    row.head_s = all_heads_seconds(chosen.model, head_s, row.pass_s());
    row.bound_s += all_heads_seconds(chosen.model, head_s, {});
  } catch (const Unpriced& error) {
    row.notes.insert({PriceNote::Kind::not_priced, "the output projection", fmt::format(" ({})", error.what())});
  }
}

}  // namespace

bool is_one_layer(const commands::ChosenModel& chosen) {
  return !chosen.stack && chosen.model.micro_batches == 1 && chosen.model.shape.parallel.pp == 1;
}

bool is_equally_fast(double a_s, double b_s) { return std::abs(a_s - b_s) <= kTie * std::max(a_s, b_s); }

PlanCost cost_of(const RankedSchedule& row) {
  return {row.total_s(), row.memory_bytes, row.degree_forward + row.degrees_backward.second};
}

size_t preferred(const std::vector<PlanCost>& plans) {
  const double max_s = std::ranges::min(plans, {}, &PlanCost::total_s).total_s * (1 + kEquallyFast);
  const auto is_better = [](const PlanCost& a, const PlanCost& b) {
    if (a.memory_bytes != b.memory_bytes) return a.memory_bytes < b.memory_bytes;
    if (a.chunks != b.chunks) return a.chunks < b.chunks;
    return a.total_s < b.total_s && !is_equally_fast(a.total_s, b.total_s);
  };
  size_t best = plans.size();
  for (size_t i = 0; i < plans.size(); ++i)
    if (plans[i].total_s <= max_s && (best == plans.size() || is_better(plans[i], plans[best]))) best = i;
  return best;
}

double expert_sums_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  if (p.edp == 1 || schedule.packs_experts || model.step.planned) return 0;
  const double layers = static_cast<double>((model.layers + p.pp - 1) / p.pp);  // on the stage with most layers
  return layers * pricer.gradient_seconds(expert_gradient_bytes(model.shape), TaskKind::expert_gradient);
}

double head_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int64_t vocabulary) {
  if (vocabulary == 0) return 0;
  const Flow flow = schedule.variants.empty() ? schedule.flow : schedule.variants.front()->flow;
  using enum TaskKind;
  double seconds = 0;
  const auto add = [&](TaskKind kind, Phase phase) {
    seconds += pricer.end_seconds(kind, phase, end_work(kind, phase, model.shape, flow, vocabulary));
  };
  for (const Phase phase : {Phase::forward, Phase::backward}) add(head, phase);
  if (!pricer.has(GroupKind::mp)) return seconds;
  const bool apart = traits_of(flow).holds == Tokens::own;
  if (apart) add(end_allgather, Phase::forward);
  add(softmax_sums, Phase::forward);
  add(apart ? end_reducescatter : end_allreduce, Phase::backward);
  return seconds;
}

double all_heads_seconds(const ModelShape& model, double head_s, std::optional<double> pass_s) {
  const StageSplit split = model.split();
  const int most = max_layers(split), fewer = most - layers_in(split, split.stages - 1),
            others = model.micro_batches - 1;
  if (fewer == 0) return model.micro_batches * head_s;
  if (!pass_s) return head_s;
  const double layer_s = *pass_s / (others * most + model.layers);
  return head_s + others * std::max(0.0, head_s - fewer * layer_s);
}

RankedSchedule ranked(const RankingRequest& request, const Schedule& schedule, PlannedTimeline* planned) {
  RankedSchedule row;
  row.schedule = &schedule;
  check_memory(min_memory(request.chosen, schedule), request.profile, row);
  if (row.refusal) return row;
  const LayerPricer pricer(request.profile, request.chosen.model.shape, request.pricing);
  try {
    PlannedTimeline found = (is_one_layer(request.chosen) ? rank_layer : rank_model)(request, pricer, row);
    row.expert_sums_s = expert_sums_s(row.planned_as(), pricer, request.chosen.model);
    row.bound_s += row.expert_sums_s;
    add_head(request.chosen, pricer, row);
    row.busy_s = busiest(found.plan, found.timeline);
    row.hidden = hidden_share(found.plan, found.timeline);
    row.critical = critical_kinds(found.plan, found.timeline);
    if (planned != nullptr) *planned = std::move(found);
  } catch (const Unsupported& error) {
    row.refusal = error.refusal();
  }
  row.notes.merge(PriceNotes(pricer.notes()));
  return row;
}

std::vector<RankedSchedule> rank(const RankingRequest& request, const std::vector<const Schedule*>& schedules) {
  std::vector<RankedSchedule> rows;
  std::chrono::steady_clock::duration longest{};
  RankingRequest asked = request;
  bool usable = request.known != nullptr && request.known->is_usable();
  for (const Schedule* schedule : schedules) {
    const auto start = std::chrono::steady_clock::now();
    if (request.known != nullptr && request.known->schedule == schedule) {
      rows.push_back(*request.known);
    } else if (usable && request.deadline && start + longest > *request.deadline) {
      rows.emplace_back().schedule = schedule;
      rows.back().refusal = {.kind = Refusal::Kind::not_in_time,
                             .reason = "not planned within the time limit (--schedule NAME plans it)"};
    } else {
      rows.push_back(ranked(asked, *schedule));
      if (rows.back().is_usable()) asked.degrees.known_s[schedule] = rows.back().pass_s();
      longest = std::max(longest, std::chrono::steady_clock::now() - start);
      usable |= rows.back().is_usable();
    }
  }
  const auto refused = std::ranges::stable_partition(rows, &RankedSchedule::is_usable);
  // Insertion keeps ties in order. A sort needs a strict weak order, which "within kTie" is not.
  for (auto row = rows.begin(); row != refused.begin(); ++row) {
    const auto place =
        std::find_if(rows.begin(), row, [&](const auto& r) { return row->total_s() < r.total_s() * (1 - kTie); });
    std::rotate(place, row, row + 1);
  }
  if (refused.begin() == rows.begin()) return rows;
  std::vector<PlanCost> costs;
  for (auto row = rows.begin(); row != refused.begin(); ++row) costs.push_back(cost_of(*row));
  auto first = rows.begin() + static_cast<std::ptrdiff_t>(preferred(costs));
  if (request.known != nullptr && request.known->total_s() <= rows.front().total_s() * (1 + kEquallyFast))
    first = std::ranges::find(rows, request.known->schedule, &RankedSchedule::schedule);
  std::rotate(rows.begin(), first, first + 1);
  return rows;
}

namespace {

// Returns the time of the winner's schedule with the degree of a phase (none: of both phases) changed by `step`; none
// if that degree is invalid.
std::optional<Neighbour> neighbour(const RankingRequest& request, const Schedule& schedule,
                                   const RankedSchedule& winner, std::optional<Phase> phase, int step) {
  const auto [least, most] = winner.degrees_backward;
  const int degree = step + (phase != Phase::backward ? winner.degree_forward : step < 0 ? least : most);
  if (degree < 1) return std::nullopt;
  RankingRequest moved = request;
  moved.degrees.considers_rivals = false;
  if (phase != Phase::backward) moved.degrees.forward = degree;
  if (phase != Phase::forward) moved.degrees.backward = degree;
  const RankedSchedule row = ranked(moved, schedule);
  if (row.refusal) return std::nullopt;
  // Omits a degree that the schedule rounded to another one because chunks would have less than a row.
  const int cut = phase == Phase::backward ? row.degrees_backward.first : row.degree_forward;
  if (cut != degree) return std::nullopt;
  return Neighbour{phase, degree, row.total_s() / winner.total_s() - 1};
}

}  // namespace

std::vector<Neighbour> neighbours(const RankingRequest& request, const RankedSchedule& winner) {
  const Schedule& schedule = winner.schedule->orders_iterations() ? winner.planned_as() : *winner.schedule;
  std::vector<std::optional<Phase>> moved{std::nullopt};
  if (schedule.degrees == DegreePolicy::apart) moved = {Phase::forward, Phase::backward};
  std::vector<Neighbour> found;
  std::chrono::steady_clock::duration longest{};
  for (const std::optional<Phase> phase : moved)
    for (const int step : {-1, 1}) {
      const auto start = std::chrono::steady_clock::now();
      if (request.deadline && start + longest > *request.deadline) return found;
      if (const auto moved_to = neighbour(request, schedule, winner, phase, step)) found.push_back(*moved_to);
      longest = std::max(longest, std::chrono::steady_clock::now() - start);
    }
  return found;
}

std::optional<StepRates> rates_of(const commands::ChosenModel& chosen, const Profile& profile, double step_s) {
  if (chosen.name.empty()) return std::nullopt;
  const ModelShape& model = chosen.model;
  const LayerShape& layer = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  const double rank_s = step_s * p.ranks();
  const double planned =
      step_flops(model.shape, {model.layers, model.micro_batches, chosen.vocabulary, model.dense, model.whole});
  StepRates rates{static_cast<double>(layer.batch * layer.seq) * p.dp * model.whole_micro_batches() / rank_s,
                  chosen.flops_share * planned / rank_s};
  if (const GpuModel* gpu = profile.gpu_of(layer.dtype))
    rates.utilisation = rates.flops_per_s / gpu->tensor_flops_per_s;
  return rates;
}

double megatron_flops(const commands::ChosenModel& chosen, bool counts_masked) {
  const ModelShape& model = chosen.model;
  const LayerShape& l = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  const auto width = static_cast<double>(l.model_dim), gemms = static_cast<double>(gemms_of(l.ffn));
  double attention = static_cast<double>(l.q_lora_rank + l.kv_lora_rank);  // norms of latents
  for (const Projection& of : projections(l, {l.heads, l.kv_heads})) attention += static_cast<double>(of.elements());
  attention +=
      (counts_masked ? 1 : 0.5) * static_cast<double>(l.seq * (attention_width(l) + attention_output_width(l)));
  const int dense = model.dense.count(0, model.layers);
  const double experts = gemms * width * static_cast<double>(l.top_k * l.hidden + l.shared_hidden);
  double macs = model.layers * attention + (model.layers - dense) * experts;
  if (dense > 0) macs += dense * gemms * width * static_cast<double>(model.dense.hidden);
  const int64_t words = 128 * int64_t{p.mp};
  macs += width * static_cast<double>((chosen.vocabulary + words - 1) / words * words);
  const double tokens = static_cast<double>(l.batch * l.seq) * p.dp * model.whole_micro_batches();
  return 3 * 2 * macs * tokens;
}

}  // namespace moe::tuner
