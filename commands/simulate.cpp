#include "commands/simulate.h"

#include <algorithm>
#include <cstdio>
#include <fmt/ranges.h>
#include <iterator>

#include "commands/noise_report.h"
#include "commands/serve.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/results_json.h"
#include "commands/shared/sweep.h"
#include "moe/base/config_files.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/formats/plan_json.h"
#include "moe/formats/text_gantt.h"
#include "moe/record/writer.h"
#include "moe/search/degrees.h"
#include "moe/search/layer_search.h"
#include "moe/search/model_search.h"
#include "moe/simulator/bounds.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::commands {
namespace {

struct SimulatedLayer {
  LayerResult result;
  Plan plan;
  Timeline timeline;
};

std::optional<bool> fits(const LayerResult& result, const Profile& profile) {
  if (!profile.memory_bytes) return std::nullopt;
  return !memory_refusal(result.memory, *profile.memory_bytes);
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
  const double min_s = bound_s(*std::ranges::min_element(fastest_first, {}, bound_s));
  const auto tutel =
      std::ranges::find(fastest_first, "tutel", [](const SimulatedLayer* s) { return s->result.schedule; });
  Table table({"schedule", "r_f", "r_b", "total ms", "over tutel", "fwd ms", "bwd ms", "MoE ms", "of bound",
               "of own bound", "a rank needs"});
  table.hide_first({"MoE ms", "of own bound", "bwd ms", "fwd ms"}, "--wide");
  table.join_equal_rows("--wide");
  for (const SimulatedLayer* s : fastest_first) {
    const LayerResult& r = s->result;
    const double total_s = r.total_s();
    table.add({std::string(r.schedule), fmt::format("{}", r.decision.degree_forward),
               fmt::format("{}", r.decision.degree_backward), fmt::format("{:.3f}", total_s * 1e3),
               tutel == fastest_first.end() ? "-" : fmt::format("{:.3f}x", (*tutel)->result.total_s() / total_s),
               fmt::format("{:.3f}", r.forward_s * 1e3), fmt::format("{:.3f}", r.backward_s * 1e3),
               fmt::format("{:.3f}", (r.moe_forward_s + r.moe_backward_s) * 1e3), percent(min_s / total_s),
               percent(bound_s(s) / total_s),
               human_bytes(r.memory.total()) + (fits(r, profile).value_or(true) ? "" : ", does not fit")});
  }
  std::vector<PlannedRow> rows;
  for (const SimulatedLayer* s : fastest_first) rows.push_back({s->result.schedule, fits(s->result, profile)});
  return table.text() + fastest_text(rows, profile);
}

// Draws the lanes of the first `drawn` schedules with different plans, on one scale.
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
    text += "\nfurther schedules are slower or equal (--gantt all shows them)\n";
  return text;
}

void print_text(const LayerCase& shape, const Profile& profile, const std::vector<SimulatedLayer>& all,
                const RefusedSchedules& refused, int drawn) {
  std::vector<const SimulatedLayer*> fastest_first;
  for (const SimulatedLayer& s : all) fastest_first.push_back(&s);
  std::ranges::stable_sort(fastest_first, {}, [](const SimulatedLayer* s) { return s->result.total_s(); });
  const std::string states = describe_states(shape.parallel);
  const std::string what =
      fmt::format("{} on {} ({} x {}), {}, {}{}{}", describe(shape.layer), profile.name, counted(profile.nodes, "node"),
                  profile.ranks_per_node, describe_groups(shape.parallel), name_of(shape.rounding),
                  states.empty() ? "" : ", ", states);
  fmt::print("{}\n\n{}{}", line_within_columns(what), table_text(fastest_first, profile), refused.text());
  fmt::print("{}", gantts_text(fastest_first, drawn));
}

void write_records(const SimulateOptions& options, const LayerPricer& pricer, const std::vector<SimulatedLayer>& all) {
  const LayerCase& shape = pricer.shape();
  const std::string& cluster = pricer.profile().name;
  const Fields parameters = commands::parameters_of(shape, cluster, describe(shape.layer), options.selection.degrees);
  std::vector<CaseRecord> records;
  for (const SimulatedLayer& s : all) records.push_back(timeline_record(s.result, s.plan, s.timeline, parameters));
  for (const SimulatedLayer& s : all)
    if (options.sweep_degrees)
      std::ranges::move(degree_records(find_schedule(s.result.schedule), pricer, parameters),
                        std::back_inserter(records));
  const std::string& layer = options.selection.layer_file;
  RecordWriter writer(
      options.out,
      {options.invocation, {pricer.profile().file, layer.empty() ? "" : find_config("layers", layer)}, {}});
  for (const CaseRecord& record : records) writer.append_new(record);
  writer.end();
}

Json documents_of(const LayerPricer& pricer, const std::vector<SimulatedLayer>& all,
                  const std::vector<NoiseRow>& noisy) {
  Json documents = Json::array();
  for (const SimulatedLayer& s : all) {
    Json json = commands::to_json(s.result);
    json["status"] = name_of(CaseStatus::ok);
    json["cluster"] = pricer.profile().name;
    json["layer"] = commands::to_json(pricer.shape());
    json["notes"] = texts_of(pricer.notes());
    const auto fit = fits(s.result, pricer.profile());
    json["fits"] = fit ? Json(*fit) : Json(nullptr);
    commands::add_timeline(json, s.plan, s.timeline);
    if (!noisy.empty()) json["noise"] = to_json(noisy[documents.size()]);
    documents.push_back(std::move(json));
  }
  return documents;
}

void check_one_layer(const SimulateOptions& options) {
  require<BadInput>(!options.partition,
                    "--partition: found it with one layer in one micro-batch, whose schedule places the gradients, "
                    "expected --model, --layers or --micro-batches");
  require<BadInput>(
      !options.model.virtual_stages,
      "--virtual-stages: found it with one layer in one micro-batch, expected --micro-batches N and --layers N");
  require<BadInput>(!options.model.pipeline,
                    "--pipeline: found it with one layer in one micro-batch, expected --micro-batches N");
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

void RefusedSchedules::add(const Schedule& schedule, const Unsupported& error) {
  rows_.emplace_back(schedule.name, error.refusal());
}

void RefusedSchedules::require_others(size_t asked) const {
  if (rows_.size() < asked) return;
  const Refusal& first = rows_.front().second;
  std::vector<std::string_view> names;
  for (const auto& [schedule, refusal] : rows_)
    if (refusal == first) names.push_back(schedule);
  const std::string who = names.size() == rows_.size() ? "every schedule" : fmt::format("{}", fmt::join(names, ", "));
  const bool all_unpriced =
      std::ranges::all_of(rows_, [](const auto& row) { return row.second.kind == Refusal::Kind::unpriced; });
  const std::string next =
      all_unpriced ? "; microbench measures such rows, import reads measurements of other tools" : "";
  throw Unsupported(fmt::format("{}{}{}", asked == 1 ? "" : who + ": ", first.text(), next));
}

std::string RefusedSchedules::text() const {
  std::string text;
  for (const auto& [schedule, refusal] : rows_)
    text += fmt::format("  {}: unsupported: {}\n", schedule,
                        refusal.subject == "schedule " + schedule ? refusal.brief() : refusal.text());
  return text;
}

void RefusedSchedules::append_to(Json& rows) const {
  for (const auto& [schedule, refusal] : rows_)
    rows.push_back({{"schedule", schedule}, {"status", name_of(CaseStatus::unsupported)}, {"reason", refusal.text()}});
}

int run_simulate(const SimulateOptions& options) {
  if (options.serve.serve) return run_serve(options);
  if (!options.plan.empty()) return run_simulate_plan(options);
  check_flags(options.noise);
  if (!options.model.is_one_layer()) return run_simulate_model(options);
  check_one_layer(options);
  const Profile profile = commands::chosen_profile(options.selection);
  const LayerCase shape = commands::framework_model(options.model, options.selection, profile).model.shape;
  require<BadInput>(shape.parallel.pp == 1,
                    "--pp: found {} stages for one layer in one micro-batch, expected --layers N", shape.parallel.pp);
  require<BadInput>(shape.layer.parts == 1, "--parts: found {} for one layer in one micro-batch, expected --layers N",
                    shape.layer.parts);
  const LayerPricer pricer(profile, shape, commands::pricing_of(options.selection));
  const auto chosen = commands::chosen_schedules(options.selection);
  commands::require_one_saved(options.save_plan, chosen.size());
  std::vector<SimulatedLayer> all;
  RefusedSchedules refused;
  for (const Schedule* schedule : chosen) {
    try {
      all.push_back(simulate_one(*schedule, pricer, options.selection.degrees));
    } catch (const Unsupported& error) {
      refused.add(*schedule, error);
    }
  }
  // With one requested schedule, its object is the document; with several, the document has a list of them.
  const auto print_json = [&](Json documents) {
    refused.append_to(documents);
    fmt::print("{}\n", document_text(chosen.size() == 1 ? documents.front() : Json{{"schedules", documents}}));
  };
  if (options.json && all.empty()) print_json(Json::array());
  refused.require_others(chosen.size());
  std::vector<NoiseRow> noisy;
  std::vector<TraceGroup> groups;
  for (const SimulatedLayer& s : all) {
    if (options.noise.any()) noisy.push_back(replay_with_noise(options.noise, pricer, s.plan, s.timeline.makespan_s));
    groups.push_back(trace_group(s.plan, s.timeline, profile.name));
  }
  if (!options.trace.file.empty()) commands::write_trace(groups, options.trace);
  if (!options.save_plan.empty()) commands::save_plan(all.front().plan, options.save_plan);
  for (const PriceNote& note : pricer.notes()) log_info(note.text());
  if (shape.parallel.edp > 1)
    log_info(fmt::format("excludes the gradient sums of experts over EDP = {}; tune adds them", shape.parallel.edp));
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

namespace {

struct SimulatedModel {
  ModelResult result;
  MemoryEstimate memory;
  int64_t tail_bytes = 0;  // bytes of gradients sent after the last backward
};

std::string degrees_of(const ModelShape& model, const ModelResult& result) {
  const auto [least, most] = backward_degrees(model, result.decision);
  return commands::degree_range(least, most);
}

// Drops the plan unless something is drawn or listed from it, because plans can have millions of tasks.
SimulatedModel simulated(const commands::ChosenModel& chosen, ModelResult result, bool keep_plan) {
  const MemoryEstimate memory = commands::memory_of(chosen, memory_request(result.plan));
  SimulatedModel s{std::move(result), memory};
  const auto& [starts, ends, busy, makespan] = s.result.timeline;
  const Task& last = s.result.plan.tasks().at(s.result.last_backward);
  // Some gradients of the last backward's stage may be issued after it but sent while it runs.
  const auto stage_of = [&](const Task& task) { return s.result.plan.structure->lanes[task.lane].stage; };
  const auto beside = [&](const Task& task) {
    return stage_of(task) == stage_of(last) && starts.at(task.id) < ends.at(last.id) - 1e-12 * makespan;
  };
  for (const Task& task : s.result.plan.tasks())
    if (sends_gradients(task.kind) && task.phase != Phase::step && task.id > last.id && !beside(task))
      s.tail_bytes += s.result.plan.slices[task.slice].bytes();
  if (keep_plan) return s;
  s.result.plan = {};
  s.result.timeline = {{}, {}, {}, s.result.total_s()};
  return s;
}

// Returns the model as text: "4 layers of B4 L512 .., 2 stages, 8 micro-batches (1f1b)".
std::string described(const ModelShape& model) {
  const std::string ends = describe_ends(model.split());
  return fmt::format("{}, {}{}{}, {}{}", describe_layers(model.layers, model.dense, model.whole, model.shape.layer),
                     counted(model.shape.parallel.pp, "stage"), ends.empty() ? "" : " ", ends,
                     counted(model.whole_micro_batches(), "micro-batch"),
                     model.micro_batches == 1 ? "" : fmt::format(" ({})", describe_order(model)));
}

void print_text(const commands::ChosenModel& chosen, const Profile& profile, const std::vector<SimulatedModel>& all) {
  std::string head = fmt::format("{} on {} ({} x {}): {}\n", chosen.name.empty() ? "layer" : chosen.name, profile.name,
                                 counted(profile.nodes, "node"), profile.ranks_per_node, described(chosen.model));
  if (!chosen.model_on_cluster.empty()) head += fmt::format("on {}: {}\n", profile.name, chosen.model_on_cluster);
  if (!chosen.replaced_mixers.empty())
    head += fmt::format("planned as attention over all tokens: {}\n", fmt::join(chosen.replaced_mixers, ", "));
  if (chosen.vocabulary > 0) head += "without the output projection, which tune adds\n";
  head += '\n';
  fmt::print("{}", text_within_columns(head));
  Table table({"schedule", "r_f", "r_b", "iteration ms", "over tutel", "of bound", "of own bound", "search gap",
               "after backward", "a rank needs", "fits"});
  table.hide_first({"after backward", "of own bound", "search gap", "of bound"}, "--wide");
  table.join_equal_rows("--wide");
  const auto tutel = std::ranges::find(all, "tutel", [](const SimulatedModel& s) { return s.result.schedule; });
  const double min_s =
      std::ranges::min_element(all, {}, [](const SimulatedModel& s) { return s.result.bound_s; })->result.bound_s;
  std::vector<const SimulatedModel*> fastest_first;
  for (const SimulatedModel& s : all) fastest_first.push_back(&s);
  std::ranges::stable_sort(fastest_first, {}, [](const SimulatedModel* s) { return s->result.total_s(); });
  std::vector<PlannedRow> rows;
  for (const SimulatedModel* s : fastest_first) {
    const ModelResult& r = s->result;
    const double seconds = r.total_s();
    const auto reason = profile.memory_bytes ? memory_refusal(s->memory, *profile.memory_bytes) : std::nullopt;
    rows.push_back({r.schedule, profile.memory_bytes ? std::optional(!reason) : std::nullopt});
    table.add({std::string(r.schedule), fmt::format("{}", r.decision.degree_forward), degrees_of(chosen.model, r),
               fmt::format("{:.3f}", seconds * 1e3),
               tutel == all.end() ? "-" : fmt::format("{:.3f}x", tutel->result.total_s() / seconds),
               percent(min_s / seconds), percent(r.bound_s / seconds), r.exact() ? "exact" : percent(r.gap()),
               human_bytes(static_cast<double>(s->tail_bytes)), human_bytes(s->memory.total()),
               !profile.memory_bytes ? "unknown"
               : reason              ? "no"
                                     : "yes"});
  }
  fmt::print("{}{}", table.text(), fastest_text(rows, profile));
}

Json to_json(const SimulatedModel& s, const ModelShape& model, const Profile& profile) {
  const ModelResult& r = s.result;
  Json backwards = Json::array();
  for (size_t i = 0; i < r.decision.backwards.size(); ++i) {
    const BackwardDecision& b = r.decision.backwards[i];
    backwards.push_back({{"degree", b.degree},
                         {"gar_in_moe_bytes", b.gar_in_moe_bytes},
                         {"gar_beside_dense_bytes", b.gar_beside_dense_bytes},
                         {"gaps", b.gaps},
                         {"order", b.order}});
    if (decides_dense(model, i)) backwards.back()["degree"] = nullptr;
  }
  Json json{{"schedule", r.schedule},
            {"status", name_of(CaseStatus::ok)},
            {"variant", r.variant ? Json(r.variant->name) : Json(nullptr)},
            {"degree_forward", r.decision.degree_forward},
            {"backwards", backwards},
            {"forward_s", r.last_forward_s},
            {"total_s", r.total_s()},
            {"bound_s", r.bound_s},
            {"at_least_s", r.at_least_s},
            {"exact", r.exact()},
            {"gap", r.gap()},
            {"memory_bytes", s.memory.total()},
            {"fits", nullptr}};
  if (profile.memory_bytes) json["fits"] = !memory_refusal(s.memory, *profile.memory_bytes);
  commands::add_timeline(json, r.plan, r.timeline);
  return json;
}

}  // namespace

int run_simulate_model(const SimulateOptions& options) {
  const commands::ModelFlags& asked = options.model;
  const std::string found = !asked.model.empty() ? "--model" : asked.layers ? "--layers" : "--micro-batches";
  require<BadInput>(
      options.out.empty(),
      "--out: found it with {}, expected one layer in one micro-batch, because simulate only records layers", found);
  require<BadInput>(
      !options.drawn,
      "--gantt: found it with {}, expected one layer in one micro-batch, because a model has too many tasks", found);
  const Profile profile = commands::chosen_profile(options.selection);
  const commands::ChosenModel chosen = commands::framework_model(asked, options.selection, profile);
  const PartitionStrategy& strategy =
      find_named(partition_strategies(), options.partition.value_or("exact"), "--partition");
  const LayerPricer pricer(profile, chosen.model.shape, commands::pricing_of(options.selection));
  const auto schedules = commands::chosen_schedules(options.selection, commands::possible_schedules(chosen));
  commands::require_one_saved(options.save_plan, schedules.size());
  ModelSearch search;
  const DegreeChoice degrees = commands::within_memory(options.selection.degrees, profile.memory_bytes, chosen);
  std::vector<SimulatedModel> all;
  RefusedSchedules refused;
  for (const Schedule* schedule : schedules) {
    try {
      all.push_back(
          simulated(chosen, search.tune(*schedule, pricer, chosen.model, degrees, strategy),
                    options.json || !options.trace.file.empty() || !options.save_plan.empty() || options.noise.any()));
    } catch (const Unsupported& error) {
      refused.add(*schedule, error);
    }
  }
  const auto print_json = [&](Json models) {
    refused.append_to(models);
    Json json{{"cluster", profile.name},
              {"model", chosen.name},
              {"layers", chosen.model.layers},
              {"micro_batches", chosen.model.whole_micro_batches()},
              {"pipeline", name_of(chosen.model.order)},
              {"virtual_stages", chosen.model.split().virtual_stages},
              {"layer", commands::to_json(chosen.model.shape)},
              {"partition", strategy.name}};
    commands::add_layer_kinds(json, chosen.model.dense, chosen.model.whole, chosen.model.layers);
    json["schedules"] = std::move(models);
    fmt::print("{}\n", document_text(json));
  };
  if (options.json && all.empty()) print_json(Json::array());
  refused.require_others(schedules.size());
  std::vector<NoiseRow> noisy;
  std::vector<TraceGroup> groups;
  for (const SimulatedModel& s : all) {
    if (options.noise.any())
      noisy.push_back(replay_with_noise(options.noise, pricer, s.result.plan, s.result.total_s()));
    groups.push_back(trace_group(s.result.plan, s.result.timeline, profile.name));
  }
  if (!options.trace.file.empty()) commands::write_trace(groups, options.trace);
  if (!options.save_plan.empty()) commands::save_plan(all.front().result.plan, options.save_plan);
  for (const PriceNote& note : pricer.notes()) log_info(note.text());
  if (!options.json) {
    print_text(chosen, profile, all);
    fmt::print("{}{}", refused.text(), noise_text(noisy));
    return 0;
  }
  Json models = Json::array();
  for (const SimulatedModel& s : all) {
    models.push_back(to_json(s, chosen.model, profile));
    if (!noisy.empty()) models.back()["noise"] = to_json(noisy[models.size() - 1]);
  }
  print_json(std::move(models));
  return 0;
}

int run_simulate_plan(const SimulateOptions& options) {
  const Profile profile = commands::chosen_profile(options.selection);
  const Plan plan = commands::plan_of_file(options.plan, profile.nodes, profile.ranks_per_node);
  const LayerPricer pricer(profile, plan.shape, commands::pricing_of(options.selection));
  const Timeline timeline = timeline_of(plan, price(pricer, plan), profile.contention);
  const commands::PlanTimes times = commands::times_of(plan, pricer);
  const bool iteration = plan.step.planned;
  if (!options.trace.file.empty())
    commands::write_trace(std::vector{trace_group(plan, timeline, profile.name)}, options.trace);
  for (const PriceNote& note : pricer.notes()) log_info(note.text());
  if (!options.json) {
    fmt::print("{}: {} on {} ({} x {}), {}\n\n", options.plan,
               iteration ? described(model_of(plan)) : describe(plan.shape.layer), profile.name,
               counted(profile.nodes, "node"), profile.ranks_per_node, name_of(plan.shape.rounding));
    if (iteration) {
      fmt::print("{} at r {}/{}: iteration {:.4f} ms, of which {:.4f} ms until the last forward's end\n", plan.schedule,
                 plan.degree_forward, plan.degree_backward, timeline.makespan_s * 1e3, times.forward_s * 1e3);
      return 0;
    }
    fmt::print("{} at r {}/{}: forward {:.4f} ms, backward {:.4f} ms\n\n{}", plan.schedule, plan.degree_forward,
               plan.degree_backward, times.forward_s * 1e3, times.backward_s * 1e3,
               text_gantt({{"", *plan.structure, timeline}}, gantt_columns()));
    return 0;
  }
  Json json{{"schedule", plan.schedule},
            {"degree_forward", plan.degree_forward},
            {"degree_backward", plan.degree_backward},
            {"forward_s", times.forward_s},
            {"backward_s", times.backward_s}};
  if (iteration) {
    json["total_s"] = timeline.makespan_s;
    json["layers"] = plan.layers;
    json["micro_batches"] = plan.micro_batches;
  } else {
    json["moe_forward_s"] = times.moe_forward_s;
    json["moe_backward_s"] = times.moe_backward_s;
    json["gar_in_moe_bytes"] = times.gar_in_moe_bytes;
  }
  json["bound_s"] = commands::bound_seconds(plan, pricer);
  json["memory_bytes"] =
      (iteration ? estimate_memory(memory_request(plan)) : layer_memory(plan.shape, plan.structure->flow)).total();
  json["cluster"] = profile.name;
  json["layer"] = commands::to_json(plan.shape);
  json["notes"] = texts_of(pricer.notes());
  commands::add_timeline(json, plan, timeline);
  fmt::print("{}\n", document_text(json));
  return 0;
}

}  // namespace moe::commands
