#include "commands/shared/sweep.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/search/degrees.h"
#include "moe/search/layer_search.h"

namespace moe::commands {
namespace {

// Returns a key of all values that determine a layer's prices. The number of heads is not one of them, if the ranks can
// share the heads evenly.
std::string pricing_key(const LayerCase& c) {
  const ParallelShape& p = c.parallel;
  return fmt::format("{} {} {} {} {} {} {} {} {}", describe(c.layer), gradient_bytes(c), attention_flops(c),
                     name_of(c.rounding), p.nodes, p.mp, p.ep, p.esp, p.edp);
}

std::optional<double> capacity_of(const SweepRequest& request) {
  return request.grid.memory_bytes ? request.grid.memory_bytes : request.profile.memory_bytes;
}

SweepRow row_of(const SweepRequest& request, const GridLayer& layer) {
  SweepRow row;
  row.layer = layer.name;
  try {
    row.shape = shaped(layer, request.grid, request.profile);
    const MemoryEstimate memory = layer_memory(row.shape);
    row.memory_bytes = memory.total();
    const auto capacity = capacity_of(request);
    if (capacity) row.refusal = memory_refusal(memory, *capacity);
  } catch (const BadInput& error) {
    row.refusal = refusal_of(error);
  }
  return row;
}

// Returns a key of the numbers of experts that fit on a device. Layers with equal prices may differ in heads, and
// therefore in memory.
std::string packing_key(const SweepRequest& request, const LayerCase& shape) {
  const auto packed = std::ranges::find_if(request.schedules, &Schedule::packs_experts);
  const auto capacity = capacity_of(request);
  std::string key;
  if (packed == request.schedules.end() || !capacity) return key;
  for (Decision decision; shape.parallel.ep % decision.packing == 0; decision.packing *= 2)
    key += memory_refusal(layer_memory(decided_case(shape, decision), (*packed)->flow), *capacity) ? '-' : '+';
  return key;
}

void tune_row(const SweepRequest& request, const LayerCase& shape, LayerSearch& search, SweepRow& row) {
  const LayerPricer pricer(request.profile, shape, request.pricing);
  const DegreeChoice choice = within_memory(request.degrees, capacity_of(request));
  for (const Schedule* schedule : request.schedules) {
    try {
      row.results.push_back(search.tune(*schedule, pricer, choice));
    } catch (const Unsupported& error) {
      row.refusals[schedule->name] = error.refusal();
    }
  }
  row.notes = pricer.notes();
}

// Computes the memory of this row's own shape, and refuses results that do not fit.
void settle(const SweepRequest& request, SweepRow& row) {
  const auto capacity = capacity_of(request);
  for (LayerResult& result : row.results) {
    const Decision& decision = result.decision;
    const Schedule& planned = decision.variant ? *decision.variant : find_schedule(result.schedule);
    result.memory = layer_memory(decided_case(row.shape, decision), planned.flow);
    if (const auto reason = capacity ? memory_refusal(result.memory, *capacity) : std::nullopt)
      row.refusals[result.schedule] = *reason;
  }
  std::erase_if(row.results, [&](const LayerResult& result) { return row.refusals.contains(result.schedule); });
  if (!row.results.empty() || row.refusals.empty()) return;
  row.refusal = row.refusals.begin()->second;
}

}  // namespace

const LayerResult* SweepRow::find(std::string_view schedule) const {
  for (const LayerResult& result : results)
    if (result.schedule == schedule) return &result;
  return nullptr;
}

LayerCase shaped(const GridLayer& layer, const Grid& grid, const Profile& cluster) {
  const ParallelShape whole{.nodes = cluster.nodes, .ranks_per_node = cluster.ranks_per_node};
  return complete(layer.shape, layer.parallel.value_or(whole), grid.rounding);
}

std::vector<SweepRow> sweep(const SweepRequest& request) {
  LayerSearch search;
  std::map<std::string, SweepRow> known;
  std::vector<SweepRow> rows;
  rows.reserve(request.grid.layers.size());
  for (const GridLayer& layer : request.grid.layers) {
    SweepRow& row = rows.emplace_back(row_of(request, layer));
    if (!row.is_planned()) continue;
    const auto [it, fresh] = known.try_emplace(pricing_key(row.shape) + packing_key(request, row.shape));
    if (fresh) tune_row(request, row.shape, search, it->second);
    row.results = it->second.results;
    row.refusals = it->second.refusals;
    row.notes = it->second.notes;
    settle(request, row);
  }
  return rows;
}

bool priced_by_weak_rows(const std::vector<SweepRow>& rows) {
  return std::ranges::any_of(rows, [](const SweepRow& row) { return !weak_rows(row.notes).empty(); });
}

std::map<std::string, NotedLayers> noted_layers(const std::vector<SweepRow>& rows) {
  std::map<std::string, NotedLayers> noted;
  for (const SweepRow& row : rows) {
    std::set<std::string> labels;  // a set, because a layer with several notes of one label counts once
    for (const PriceNote& note : row.notes) {
      labels.insert(note.label());
      noted[note.label()].about.insert(note.about());
    }
    for (const std::string& label : labels) ++noted[label].layers;
  }
  return noted;
}

std::map<std::string, int> layers_by_weak_row(const std::vector<SweepRow>& rows) {
  std::map<std::string, int> layers;
  for (const SweepRow& row : rows)
    for (const PriceNote& note : row.notes)
      if (note.kind == PriceNote::Kind::weak) ++layers[note.about()];
  return layers;
}

namespace {

// Returns the least lower bound in seconds of the row's schedules.
double min_bound_s(const SweepRow& row) {
  const auto bound_s = [](const LayerResult& result) { return result.bound.total_s(); };
  return bound_s(*std::ranges::min_element(row.results, {}, bound_s));
}

}  // namespace

std::vector<ScheduleSummary> summarise(const std::vector<SweepRow>& rows,
                                       const std::vector<const Schedule*>& schedules) {
  std::vector<ScheduleSummary> summaries;
  for (const Schedule* schedule : schedules) {
    ScheduleSummary& s = summaries.emplace_back();
    s.schedule = schedule->name;
    for (const SweepRow& row : rows) {
      const LayerResult* result = row.find(schedule->name);
      if (result == nullptr) continue;
      ++s.layers;
      if (const LayerResult* tutel = row.find("tutel")) ++s.compared, s.speedup += tutel->total_s() / result->total_s();
      s.bound_ratio += min_bound_s(row) / result->total_s();
      s.own_bound_ratio += result->bound.total_s() / result->total_s();
      s.differing_degrees += result->decision.degree_forward != result->decision.degree_backward;
      ++s.degrees_forward[result->decision.degree_forward];
      ++s.degrees_backward[result->decision.degree_backward];
    }
    if (s.compared > 0) s.speedup /= s.compared;
    if (s.layers > 0) s.bound_ratio /= s.layers, s.own_bound_ratio /= s.layers;
  }
  return summaries;
}

std::string degree_range(int least, int most) {
  return least == most ? fmt::format("{}", least) : fmt::format("{}-{}", least, most);
}

std::string degree_range(const std::map<int, int>& degrees) {
  if (degrees.empty()) return "-";
  std::vector<double> all;
  for (const auto& [degree, count] : degrees) all.insert(all.end(), static_cast<size_t>(count), degree);
  const std::string range = degree_range(degrees.begin()->first, degrees.rbegin()->first);
  return degrees.size() == 1 ? range : fmt::format("{}, median {}", range, median(std::move(all)));
}

namespace {

std::string key_of(const SweepRow& row, std::string_view schedule) {
  return fmt::format("plan/{}/{}", row.layer, schedule);
}

CaseRecord record_of(const SweepRow& row, const LayerResult& r) {
  CaseRecord record = planned_record(key_of(row, r.schedule), r);
  record.prediction.set("degree_bound_s", r.degree_bound.total_s());
  record.prediction.set("memory_bytes", r.memory.total());
  if (const std::string weak = weak_rows(row.notes); !weak.empty()) record.prediction.set("weak_rows", weak);
  return record;
}

CaseRecord unsupported_record(const SweepRow& row, std::string_view schedule) {
  CaseRecord record;
  record.key = key_of(row, schedule);
  record.schedule = schedule;
  record.backend = "none";
  const auto refused = row.refusals.find(schedule);
  record.status = CaseStatus::unsupported;
  if (const std::optional<Refusal> why = refused == row.refusals.end() ? row.refusal : refused->second)
    record.reason = why->text();
  return record;
}

}  // namespace

CaseRecord planned_record(std::string key, const LayerResult& r) {
  CaseRecord record;
  record.key = std::move(key);
  record.schedule = r.schedule;
  record.degree_forward = r.decision.degree_forward;
  record.degree_backward = r.decision.degree_backward;
  record.backend = "none";
  record.prediction = {{"forward_s", r.forward_s},         {"backward_s", r.backward_s},
                       {"moe_forward_s", r.moe_forward_s}, {"moe_backward_s", r.moe_backward_s},
                       {"total_s", r.total_s()},           {"gar_in_moe_bytes", r.decision.gar_in_moe_bytes}};
  if (const int64_t after = r.decision.gar_after_bytes; after > 0) record.prediction.set("gar_after_bytes", after);
  record.bound_s = r.bound.total_s();
  return record;
}

std::string records_path(const std::string& out, const std::string& verb, const std::string& cluster) {
  return out.empty() ? fmt::format("results/{}-{}.jsonl", verb, cluster) : out;
}

void append_rows(RecordWriter& writer, const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                 const std::string& cluster, const DegreeChoice& degrees) {
  for (const SweepRow& row : rows) {
    CaseGroup group{parameters_of(row.shape, cluster, row.layer, degrees), {}};
    for (const LayerResult& result : row.results) group.cases.push_back(record_of(row, result));
    for (const Schedule* schedule : schedules)
      if (row.find(schedule->name) == nullptr) group.cases.push_back(unsupported_record(row, schedule->name));
    std::erase_if(group.cases, [&](const CaseRecord& record) { return writer.find(record.key) != nullptr; });
    writer.append(group);
  }
}

}  // namespace moe::commands
