#include "tuner/simulate_model.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "moe/base/registry.h"
#include "moe/base/table.h"
#include "moe/export/chrome_trace.h"
#include "moe/search/model_search.h"
#include "tuner/results_json.h"

namespace moe {
namespace {

struct Simulated {
  ModelResult result;
  MemoryEstimate memory;
};

std::string degrees_of(const ModelResult& result) {
  const auto [least, most] = std::ranges::minmax(result.decision.backwards, {}, &BackwardDecision::degree);
  return least.degree == most.degree ? fmt::format("{}", least.degree)
                                     : fmt::format("{}-{}", least.degree, most.degree);
}

MemoryEstimate memory_of(const ChosenModel& chosen, const Schedule& schedule) {
  MemoryRequest request;
  request.shape = chosen.model.shape;
  request.layers = chosen.model.layers;
  request.micro_batches = chosen.model.micro_batches;
  request.order = chosen.model.order;
  request.replicated = schedule.flow == Flow::replicated || schedule.flow == Flow::tensor;
  request.vocabulary = chosen.vocabulary;
  request.tied_embedding = chosen.tied_embedding;
  return estimate_memory(request);
}

void print_text(const ChosenModel& chosen, const Profile& profile, const std::vector<Simulated>& all) {
  const ParallelShape& p = chosen.model.shape.parallel;
  fmt::print("{} on {} ({} nodes x {}): {} layers of {}, {} stage{}, {} micro-batch{} ({})\n\n",
             chosen.name.empty() ? "layer" : chosen.name, profile.name, profile.nodes, profile.ranks_per_node,
             chosen.model.layers, describe(chosen.model.shape.layer), p.pp, p.pp == 1 ? "" : "s",
             chosen.model.micro_batches, chosen.model.micro_batches == 1 ? "" : "es", name_of(chosen.model.order));
  Table table({"schedule", "r_f", "r_b", "iteration ms", "over tutel", "of the bound", "gradients in the tail",
               "a rank needs", "fits"});
  const auto tutel = std::ranges::find(all, "tutel", [](const Simulated& s) { return s.result.schedule; });
  for (const Simulated& s : all) {
    const ModelResult& r = s.result;
    const double seconds = r.total_s();
    int64_t tail = 0;
    for (const Task& task : r.plan.tasks())
      if (sends_gradients(task.kind) && task.id > s.result.last_backward)
        tail += r.plan.slices[static_cast<size_t>(task.slice)].bytes();
    const auto reason = profile.memory_bytes ? misfit(s.memory, *profile.memory_bytes) : std::nullopt;
    table.add({std::string(r.schedule), fmt::format("{}", r.decision.degree_forward), degrees_of(r),
               fmt::format("{:.3f}", seconds * 1e3),
               tutel == all.end() ? "-" : fmt::format("{:.3f}x", tutel->result.total_s() / seconds),
               fmt::format("{:.1f} %", 100 * r.bound_s / seconds), human_bytes(static_cast<double>(tail)),
               human_bytes(s.memory.total()),
               !profile.memory_bytes ? "unknown"
               : reason              ? "no"
                                     : "yes"});
  }
  fmt::print("{}", table.text());
}

Json to_json(const Simulated& s, const Profile& profile) {
  const ModelResult& r = s.result;
  Json backwards = Json::array();
  for (const BackwardDecision& b : r.decision.backwards)
    backwards.push_back({{"degree", b.degree},
                         {"gar_in_moe_bytes", b.gar_in_moe_bytes},
                         {"gar_beside_dense_bytes", b.gar_beside_dense_bytes},
                         {"gaps", b.gaps}});
  Json json{{"schedule", r.schedule},
            {"variant", r.variant ? Json(r.variant->name) : Json(nullptr)},
            {"degree_forward", r.decision.degree_forward},
            {"backwards", backwards},
            {"forward_s", r.last_forward_s},
            {"total_s", r.total_s()},
            {"bound_s", r.bound_s},
            {"memory_bytes", s.memory.total()},
            {"fits", nullptr}};
  if (profile.memory_bytes) json["fits"] = !misfit(s.memory, *profile.memory_bytes);
  add_timeline(json, r.plan, r.timeline);
  return json;
}

}  // namespace

int run_simulate_model(const SimulateOptions& options) {
  require<BadInput>(options.out.empty(), "--out: found --model too; records are of layers");
  const Profile profile = find_profile(options.selection.cluster);
  const ChosenModel chosen = chosen_model(options.model, options.selection, profile);
  const PartitionStrategy& strategy = find_named(partition_strategies(), options.partition, "--partition");
  const LayerPricer pricer(profile, chosen.model.shape, {options.selection.nearest});
  ModelSearch search;
  std::vector<Simulated> all;
  Refused refused;
  for (const Schedule* schedule : chosen_schedules(options.selection)) {
    try {
      all.push_back({search.tune(*schedule, pricer, chosen.model, strategy, options.selection.degrees),
                     memory_of(chosen, *schedule)});
    } catch (const Unsupported& error) {
      refused.add(*schedule, error);
    }
  }
  refused.report(all.empty());
  if (!options.trace.empty()) {
    std::vector<TraceGroup> groups;
    for (const Simulated& s : all)
      groups.push_back({fmt::format("{} simulated", s.result.schedule), -1, &s.result.plan, s.result.timeline.start_s,
                        s.result.timeline.end_s});
    std::ofstream out(options.trace);
    chrome_trace(groups, out);
    require<BadInput>(bool(out.flush()), "--trace: cannot write {}", options.trace);
  }
  for (const std::string& note : pricer.notes()) fmt::print(stderr, "moetune: {}\n", note);
  if (!options.json) {
    print_text(chosen, profile, all);
    return 0;
  }
  Json models = Json::array();
  for (const Simulated& s : all) models.push_back(to_json(s, profile));
  fmt::print("{}\n", Json{{"cluster", profile.name},
                          {"model", chosen.name},
                          {"layers", chosen.model.layers},
                          {"micro_batches", chosen.model.micro_batches},
                          {"layer", to_json(chosen.model.shape)},
                          {"partition", strategy.name},
                          {"schedules", models}}
                         .dump(1));
  return 0;
}

}  // namespace moe
