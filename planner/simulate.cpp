#include "planner/simulate.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <ranges>

#include "moe/base/config_files.h"
#include "moe/base/log.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/cost/fluid_replay.h"
#include "moe/export/text_gantt.h"
#include "moe/record/writer.h"
#include "moe/search/layer_search.h"
#include "moe/search/within_memory.h"
#include "planner/simulate_model.h"
#include "planner/simulate_plan.h"
#include "planner/timeline_records.h"
#include "verbs/results_json.h"
#include "verbs/sweep_records.h"
#include "verbs/trace_file.h"

namespace moe::planner {
namespace {

struct SimulatedLayer {
  LayerResult result;
  Plan plan;
  Timeline timeline;
};

std::optional<bool> fits(const LayerResult& result, const Profile& profile) {
  if (!profile.memory_bytes) return std::nullopt;
  return !misfit(result.memory, *profile.memory_bytes);
}

SimulatedLayer simulate_one(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& degrees) {
  LayerSearch search;
  SimulatedLayer s{search.tune(schedule, pricer, within_memory(degrees, pricer.profile().memory_bytes)), {}, {}};
  s.plan = build_plan(schedule, pricer.shape(), s.result.decision);
  s.timeline = timeline_of(s.plan, price(pricer, s.plan), pricer.profile().contention);
  return s;
}

std::string table_text(const std::vector<const SimulatedLayer*>& fastest_first, const Profile& profile) {
  const auto bound_s = [](const SimulatedLayer* s) { return s->result.bound.total_s(); };
  const double least_s = std::ranges::min(fastest_first | std::views::transform(bound_s));
  const auto tutel =
      std::ranges::find(fastest_first, "tutel", [](const SimulatedLayer* s) { return s->result.schedule; });
  Table table({"schedule", "r_f", "r_b", "total ms", "over tutel", "fwd ms", "bwd ms", "MoE ms", "of the bound",
               "of its own", "a rank needs"});
  for (const SimulatedLayer* s : fastest_first) {
    const LayerResult& r = s->result;
    const double total_s = r.total_s();
    table.add({std::string(r.schedule), fmt::format("{}", r.decision.degree_forward),
               fmt::format("{}", r.decision.degree_backward), fmt::format("{:.3f}", total_s * 1e3),
               tutel == fastest_first.end() ? "-" : fmt::format("{:.3f}x", (*tutel)->result.total_s() / total_s),
               fmt::format("{:.3f}", r.forward_s * 1e3), fmt::format("{:.3f}", r.backward_s * 1e3),
               fmt::format("{:.3f}", (r.moe_forward_s + r.moe_backward_s) * 1e3), percent(least_s / total_s),
               percent(bound_s(s) / total_s),
               human_bytes(r.memory.total()) + (fits(r, profile).value_or(true) ? "" : ", does not fit")});
  }
  std::vector<PlannedRow> rows;
  for (const SimulatedLayer* s : fastest_first) rows.push_back({s->result.schedule, fits(s->result, profile)});
  return table.text() + fastest_text(rows, profile);
}

// Draws the lanes of the first few schedules that differ, on one scale.
std::string gantts_text(const std::vector<const SimulatedLayer*>& fastest_first, int drawn) {
  std::vector<const SimulatedLayer*> shown;
  for (const SimulatedLayer* s : fastest_first)
    if (static_cast<int>(shown.size()) < drawn &&
        (shown.empty() || shown.back()->timeline.start_s != s->timeline.start_s))
      shown.push_back(s);
  if (shown.empty()) return "";
  std::vector<DrawnTimeline> lanes;
  for (const SimulatedLayer* s : shown) {
    const LayerResult& r = s->result;
    const std::string variant = r.decision.variant ? fmt::format(" = {}", r.decision.variant->name) : "";
    lanes.push_back({fmt::format("{}{} (bound by {} forward, {} backward)", r.schedule, variant, r.bound.forward_term,
                                 r.bound.backward_term),
                     *s->plan.structure, s->timeline});
  }
  std::string text = fmt::format("\n{}", text_gantt(lanes, gantt_columns()));
  if (shown.size() == static_cast<size_t>(drawn) && shown.size() < fastest_first.size())
    text += "\nothers are slower, or the same (--gantt all)\n";
  return text;
}

void print_text(const LayerCase& shape, const Profile& profile, const std::vector<SimulatedLayer>& all,
                const Refused& refused, int drawn) {
  std::vector<const SimulatedLayer*> fastest_first;
  for (const SimulatedLayer& s : all) fastest_first.push_back(&s);
  std::ranges::stable_sort(fastest_first, {}, [](const SimulatedLayer* s) { return s->result.total_s(); });
  const std::string states = describe_states(shape.parallel);
  const std::string what =
      fmt::format("{} on {} ({} x {}), {}, {}{}{}", describe(shape.layer), profile.name, counted(profile.nodes, "node"),
                  profile.ranks_per_node, describe_groups(shape.parallel), name_of(shape.rounding),
                  states.empty() ? "" : ", ", states);
  fmt::print("{}\n\n{}{}", fitted_line(what), table_text(fastest_first, profile), refused.text());
  fmt::print("{}", gantts_text(fastest_first, drawn));
}

void write_records(const SimulateOptions& options, const LayerPricer& pricer, const std::vector<SimulatedLayer>& all) {
  const LayerCase& shape = pricer.shape();
  const std::string& cluster = pricer.profile().name;
  const Fields parameters = verbs::parameters_of(shape, cluster, describe(shape.layer), options.selection.degrees);
  std::vector<CaseRecord> records;
  for (const SimulatedLayer& s : all) records.push_back(timeline_record(s.result, s.plan, s.timeline, parameters));
  for (const SimulatedLayer& s : all)
    if (options.sweep_degrees)
      std::ranges::move(degree_records(find_schedule(s.result.schedule), pricer, parameters),
                        std::back_inserter(records));
  const std::string& layer = options.selection.layer_file;
  RecordWriter writer(options.out,
                      {options.asked, {pricer.profile().file, layer.empty() ? "" : find_config("layers", layer)}, {}});
  for (const CaseRecord& record : records)
    if (writer.find(record.key) == nullptr) writer.append(record);
  writer.end();
}

Json documents_of(const LayerPricer& pricer, const std::vector<SimulatedLayer>& all,
                  const std::vector<NoiseRow>& noisy) {
  Json documents = Json::array();
  for (const SimulatedLayer& s : all) {
    Json json = verbs::to_json(s.result);
    json["status"] = name_of(CaseStatus::ok);
    json["cluster"] = pricer.profile().name;
    json["layer"] = verbs::to_json(pricer.shape());
    json["notes"] = pricer.notes();
    const auto fit = fits(s.result, pricer.profile());
    json["fits"] = fit ? Json(*fit) : Json(nullptr);
    verbs::add_timeline(json, s.plan, s.timeline);
    if (!noisy.empty()) json["noise"] = to_json(noisy[documents.size()]);
    documents.push_back(std::move(json));
  }
  return documents;
}

void check_one_layer(const SimulateOptions& options) {
  require<BadInput>(!options.partition,
                    "--partition: found one layer, once, whose gradients its schedule places; expected --model, "
                    "--layers or --micro-batches with it");
  require<BadInput>(!options.model.virtual_stages,
                    "--virtual-stages: found one layer, once; expected --micro-batches N and --layers N with it");
  require<BadInput>(!options.model.pipeline, "--pipeline: found one layer, once; expected --micro-batches N with it");
}

}  // namespace

std::string fastest_text(const std::vector<PlannedRow>& fastest_first, const Profile& profile) {
  if (!profile.memory_bytes)
    return fastest_first.size() == 1 ? "" : fmt::format("fastest: {}\n", fastest_first.front().schedule);
  const std::string has = fmt::format("a rank has {}", human_bytes(*profile.memory_bytes));
  if (fastest_first.size() == 1) return has + "\n";
  const auto fitting =
      std::ranges::find_if(fastest_first, [](const PlannedRow& row) { return row.fits.value_or(true); });
  std::string text = fmt::format("fastest: {}; ", fastest_first.front().schedule);
  if (fitting == fastest_first.end())
    text += "none fits: ";
  else if (fitting != fastest_first.begin())
    text += fmt::format("of those that fit: {}; ", fitting->schedule);
  return text + has + "\n";
}

void Refused::add(const Schedule& schedule, const Unsupported& error) {
  rows_.emplace_back(schedule.name, error.what());
  unpriced_ = unpriced_ && dynamic_cast<const Unpriced*>(&error) != nullptr;
}

void Refused::require_others(size_t asked) const {
  if (rows_.size() < asked) return;
  std::string first;
  for (const auto& [schedule, reason] : rows_)
    if (reason == rows_.front().second) first += (first.empty() ? "" : ", ") + schedule;
  const std::string& reason = rows_.front().second;
  const bool alike = std::ranges::all_of(rows_, [&](const auto& row) { return row.second == reason; });
  const std::string next = unpriced_ ? "; microbench measures such rows, import takes them from elsewhere" : "";
  throw Unsupported(fmt::format("{}{}{}", asked == 1 ? "" : (alike ? "every schedule" : first) + ": ", reason, next));
}

std::string Refused::text() const {
  std::string text;
  for (const auto& [schedule, reason] : rows_) text += fmt::format("  {}: unsupported: {}\n", schedule, reason);
  return text;
}

void Refused::append_to(Json& rows) const {
  for (const auto& [schedule, reason] : rows_)
    rows.push_back({{"schedule", schedule}, {"status", name_of(CaseStatus::unsupported)}, {"reason", reason}});
}

int run_simulate(const SimulateOptions& options) {
  if (!options.plan.empty()) return run_simulate_plan(options);
  check_flags(options.noise);
  if (!options.model.one_layer()) return run_simulate_model(options);
  check_one_layer(options);
  const Profile profile = verbs::chosen_profile(options.selection);
  const LayerCase shape = verbs::chosen_case(options.selection, profile.nodes, profile.ranks_per_node);
  require<BadInput>(shape.parallel.pp == 1, "--pp: found {} stages for one layer, once; expected --layers N with it",
                    shape.parallel.pp);
  const LayerPricer pricer(profile, shape, verbs::pricing_of(options.selection));
  const auto chosen = verbs::chosen_schedules(options.selection);
  std::vector<SimulatedLayer> all;
  Refused refused;
  for (const Schedule* schedule : chosen) {
    try {
      all.push_back(simulate_one(*schedule, pricer, options.selection.degrees));
    } catch (const Unsupported& error) {
      refused.add(*schedule, error);
    }
  }
  // One schedule asked for: its object is the document; several: a list of them.
  const auto print_json = [&](Json documents) {
    refused.append_to(documents);
    fmt::print("{}\n", document_text(chosen.size() == 1 ? documents.front() : Json{{"schedules", documents}}));
  };
  if (options.json && all.empty()) print_json(Json::array());
  refused.require_others(chosen.size());
  std::vector<NoiseRow> noisy;
  std::vector<TraceGroup> groups;
  for (const SimulatedLayer& s : all) {
    if (options.noise.any()) noisy.push_back(with_noise(options.noise, pricer, s.plan, s.timeline.makespan_s));
    groups.push_back(trace_group(s.plan, s.timeline, profile.name));
  }
  if (!options.trace.file.empty()) verbs::write_trace(groups, options.trace);
  for (const std::string& note : pricer.notes()) log_info(note);
  if (shape.parallel.edp > 1)
    log_info(fmt::format("not in it: the sums of the experts' gradients over EDP = {}, which tune counts behind it",
                         shape.parallel.edp));
  const auto write = [&] {
    if (!options.out.empty()) write_records(options, pricer, all);
  };
  print_with_records(write, [&] {
    if (options.json) {
      print_json(documents_of(pricer, all, noisy));
      return;
    }
    print_text(shape, profile, all, refused, options.drawn.value_or(3));
    fmt::print("{}", noise_text(noisy));
  });
  return 0;
}

}  // namespace moe::planner
