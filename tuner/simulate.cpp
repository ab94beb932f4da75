#include "tuner/simulate.h"

#include <cstdio>
#include <fstream>

#include "moe/base/table.h"
#include "moe/export/chrome_trace.h"
#include "moe/export/text_gantt.h"
#include "tuner/results_json.h"

namespace moe {
namespace {

struct Simulated {
  LayerResult result;
  Plan plan;
  Timeline timeline;
};

Simulated simulate_one(const Schedule& schedule, const LayerPricer& pricer, DegreeChoice degrees) {
  LayerSearch search;
  Simulated s{search.tune(schedule, pricer, degrees), {}, {}};
  s.plan = build_plan(schedule, pricer.shape(), s.result.decision);
  s.timeline = simulate(*s.plan.structure, price(pricer, s.plan));
  return s;
}

void print_text(const Case& shape, const Profile& profile, const std::vector<Simulated>& all) {
  fmt::print("{} on {} ({} nodes x {}), {}\n\n", describe(shape.layer), profile.name, profile.nodes,
             profile.ranks_per_node, name_of(shape.rounding));
  Table table(
      {"schedule", "r_f", "r_b", "forward ms", "backward ms", "MoE f ms", "MoE b ms", "bound ms", "efficiency"});
  for (const Simulated& s : all) {
    const LayerResult& r = s.result;
    table.add({std::string(r.schedule), fmt::format("{}", r.decision.degree_forward),
               fmt::format("{}", r.decision.degree_backward), fmt::format("{:.4f}", r.forward_s * 1e3),
               fmt::format("{:.4f}", r.backward_s * 1e3), fmt::format("{:.4f}", r.moe_forward_s * 1e3),
               fmt::format("{:.4f}", r.moe_backward_s * 1e3), fmt::format("{:.4f}", r.bound.total_s() * 1e3),
               fmt::format("{:.1f} %", 100 * r.bound.total_s() / r.total_s())});
  }
  fmt::print("{}", table.text());
  for (const Simulated& s : all)
    fmt::print("\n{} (binding lane: {} forward, {} backward)\n{}", s.result.schedule, s.result.bound.forward_term,
               s.result.bound.backward_term, text_gantt(*s.plan.structure, s.timeline, 100));
}

void write_trace(const std::string& path, const std::vector<Simulated>& all) {
  std::vector<TraceGroup> groups;
  for (const Simulated& s : all)
    groups.push_back(
        {fmt::format("{} simulated", s.result.schedule), -1, &s.plan, s.timeline.start_s, s.timeline.end_s});
  std::ofstream out(path);
  chrome_trace(groups, out);
  require<BadInput>(bool(out.flush()), "--trace: cannot write {}", path);
}

}  // namespace

int run_simulate(const SimulateOptions& options) {
  const Profile profile = find_profile(options.selection.cluster);
  const Case shape = chosen_case(options.selection, profile.nodes, profile.ranks_per_node);
  const LayerPricer pricer(profile, shape, {options.selection.nearest});
  std::vector<Simulated> all;
  for (const Schedule* schedule : chosen_schedules(options.selection))
    all.push_back(simulate_one(*schedule, pricer, options.selection.degrees));
  for (const std::string& note : pricer.notes()) fmt::print(stderr, "moetune: {}\n", note);
  if (!options.trace.empty()) write_trace(options.trace, all);
  if (!options.json) {
    print_text(shape, profile, all);
    return 0;
  }
  // One schedule: its object is the document; several: a list of them.
  Json documents = Json::array();
  for (const Simulated& s : all) {
    Json json = to_json(s.result);
    json["cluster"] = profile.name;
    json["layer"] = to_json(shape);
    json["notes"] = pricer.notes();
    add_timeline(json, s.plan, s.timeline);
    documents.push_back(std::move(json));
  }
  const Json document = all.size() == 1 ? documents.front() : Json{{"schedules", documents}};
  fmt::print("{}\n", document.dump(1));
  return 0;
}

}  // namespace moe
