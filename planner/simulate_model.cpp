#include "planner/simulate_model.h"

#include <algorithm>
#include <cstdio>
#include <ranges>

#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/search/model_search.h"
#include "verbs/results_json.h"
#include "verbs/sweep.h"
#include "verbs/trace_file.h"

namespace moe::planner {
namespace {

struct SimulatedModel {
  ModelResult result;
  MemoryEstimate memory;
  int64_t tail_bytes = 0;  // of the gradients
};

std::string degrees_of(const ModelShape& model, const ModelResult& result) {
  const auto [least, most] = backward_degrees(model, result.decision);
  return verbs::degree_range(least, most);
}

// Keeps the plan where something is drawn or listed from it: plans may have millions of tasks.
SimulatedModel simulated(const verbs::ChosenModel& chosen, ModelResult result, bool keep_plan) {
  const MemoryEstimate memory = verbs::memory_of(chosen, memory_request(result.plan));
  SimulatedModel s{std::move(result), memory};
  const auto& [starts, ends, busy, makespan] = s.result.timeline;
  const Task& last = s.result.plan.tasks().at(static_cast<size_t>(s.result.last_backward));
  // Of the last backward's stage some may be issued behind it, and sent beside it.
  const auto stage_of = [&](const Task& task) {
    return s.result.plan.structure->lanes[static_cast<size_t>(task.lane)].stage;
  };
  const auto beside = [&](const Task& task) {
    return stage_of(task) == stage_of(last) &&
           starts.at(static_cast<size_t>(task.id)) < ends.at(static_cast<size_t>(last.id)) - 1e-12 * makespan;
  };
  for (const Task& task : s.result.plan.tasks())
    if (sends_gradients(task.kind) && task.phase != Phase::step && task.id > last.id && !beside(task))
      s.tail_bytes += s.result.plan.slices[static_cast<size_t>(task.slice)].bytes();
  if (keep_plan) return s;
  s.result.plan = {};
  s.result.timeline = {{}, {}, {}, s.result.total_s()};
  return s;
}

void print_text(const verbs::ChosenModel& chosen, const Profile& profile, const std::vector<SimulatedModel>& all) {
  const ParallelShape& p = chosen.model.shape.parallel;
  fmt::print("{} on {} ({} x {}): {}, {}, {}{}\n{}\n", chosen.name.empty() ? "layer" : chosen.name, profile.name,
             counted(profile.nodes, "node"), profile.ranks_per_node,
             describe_layers(chosen.model.layers, chosen.model.dense, chosen.model.shape.layer), counted(p.pp, "stage"),
             counted(chosen.model.micro_batches, "micro-batch"),
             chosen.model.micro_batches == 1 ? "" : fmt::format(" ({})", describe_order(chosen.model)),
             chosen.on_cluster.empty() ? "" : fmt::format("on {}: {}\n", profile.name, chosen.on_cluster));
  Table table({"schedule", "r_f", "r_b", "iteration ms", "over tutel", "of the bound", "of its own", "may be off by",
               "in the tail", "a rank needs", "fits"});
  const auto tutel = std::ranges::find(all, "tutel", [](const SimulatedModel& s) { return s.result.schedule; });
  const double least_s =
      std::ranges::min(all | std::views::transform([](const SimulatedModel& s) { return s.result.bound_s; }));
  std::vector<const SimulatedModel*> fastest_first;
  for (const SimulatedModel& s : all) fastest_first.push_back(&s);
  std::ranges::stable_sort(fastest_first, {}, [](const SimulatedModel* s) { return s->result.total_s(); });
  std::vector<PlannedRow> rows;
  for (const SimulatedModel* s : fastest_first) {
    const ModelResult& r = s->result;
    const double seconds = r.total_s();
    const auto reason = profile.memory_bytes ? misfit(s->memory, *profile.memory_bytes) : std::nullopt;
    rows.push_back({r.schedule, profile.memory_bytes ? std::optional(!reason) : std::nullopt});
    table.add({std::string(r.schedule), fmt::format("{}", r.decision.degree_forward), degrees_of(chosen.model, r),
               fmt::format("{:.3f}", seconds * 1e3),
               tutel == all.end() ? "-" : fmt::format("{:.3f}x", tutel->result.total_s() / seconds),
               percent(least_s / seconds), percent(r.bound_s / seconds), r.exact() ? "exact" : percent(r.gap()),
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
  if (profile.memory_bytes) json["fits"] = !misfit(s.memory, *profile.memory_bytes);
  verbs::add_timeline(json, r.plan, r.timeline);
  return json;
}

}  // namespace

int run_simulate_model(const SimulateOptions& options) {
  const verbs::ModelFlags& asked = options.model;
  const std::string found = !asked.model.empty() ? "--model" : asked.layers ? "--layers" : "--micro-batches";
  require<BadInput>(options.out.empty(), "--out: found {} too, expected one layer, once: records are of layers", found);
  require<BadInput>(!options.drawn, "--gantt: found {} too, expected one layer, once: a model has too many tasks",
                    found);
  const Profile profile = verbs::chosen_profile(options.selection);
  const verbs::ChosenModel chosen = verbs::chosen_model(asked, options.selection, profile);
  const PartitionStrategy& strategy =
      find_named(partition_strategies(), options.partition.value_or("exact"), "--partition");
  const LayerPricer pricer(profile, chosen.model.shape, verbs::pricing_of(options.selection));
  const auto schedules = verbs::chosen_schedules(options.selection);
  ModelSearch search;
  const DegreeChoice degrees = verbs::within_memory(options.selection.degrees, profile.memory_bytes, chosen);
  std::vector<SimulatedModel> all;
  Refused refused;
  for (const Schedule* schedule : schedules) {
    try {
      all.push_back(simulated(chosen, search.tune(*schedule, pricer, chosen.model, strategy, degrees),
                              options.json || !options.trace.file.empty() || options.noise.any()));
    } catch (const Unsupported& error) {
      refused.add(*schedule, error);
    }
  }
  const auto print_json = [&](Json models) {
    refused.append_to(models);
    Json json{{"cluster", profile.name},
              {"model", chosen.name},
              {"layers", chosen.model.layers},
              {"micro_batches", chosen.model.micro_batches},
              {"pipeline", name_of(chosen.model.order)},
              {"virtual_stages", chosen.model.split().virtual_stages},
              {"layer", verbs::to_json(chosen.model.shape)},
              {"partition", strategy.name}};
    verbs::add_dense(json, chosen.model.dense, chosen.model.layers);
    json["schedules"] = std::move(models);
    fmt::print("{}\n", document_text(json));
  };
  if (options.json && all.empty()) print_json(Json::array());
  refused.require_others(schedules.size());
  std::vector<NoiseRow> noisy;
  std::vector<TraceGroup> groups;
  for (const SimulatedModel& s : all) {
    if (options.noise.any()) noisy.push_back(with_noise(options.noise, pricer, s.result.plan, s.result.total_s()));
    groups.push_back(trace_group(s.result.plan, s.result.timeline, profile.name));
  }
  if (!options.trace.file.empty()) verbs::write_trace(groups, options.trace);
  for (const std::string& note : pricer.notes()) log_info(note);
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

}  // namespace moe::planner
