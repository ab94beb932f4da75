#include "planner/simulate_plan.h"

#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/cost/bounds.h"
#include "moe/cost/fluid_replay.h"
#include "moe/export/plan_json.h"
#include "moe/export/text_gantt.h"
#include "verbs/plan_file.h"
#include "verbs/results_json.h"
#include "verbs/trace_file.h"

namespace moe::planner {
namespace {

// Uses a pricer of its own: notes on what the schedule could have done are none on this plan.
double bound_seconds(const Plan& plan, const LayerPricer& pricer) {
  const LayerPricer any(pricer.profile(), plan.shape, pricer.options());
  return degree_free_bound(find_schedule(plan.schedule), any).total_s();
}

}  // namespace

int run_simulate_plan(const SimulateOptions& options) {
  const Profile profile = verbs::chosen_profile(options.selection);
  const Plan plan = verbs::plan_of_file(options.plan, profile.nodes, profile.ranks_per_node);
  const LayerPricer pricer(profile, plan.shape, verbs::pricing_of(options.selection));
  const Timeline timeline = timeline_of(plan, price(pricer, plan), profile.contention);
  const verbs::PlanTimes times = verbs::times_of(plan, pricer);
  if (!options.trace.file.empty())
    verbs::write_trace(std::vector{trace_group(plan, timeline, profile.name)}, options.trace);
  for (const std::string& note : pricer.notes()) log_info(note);
  if (!options.json) {
    fmt::print("{}: {} on {} ({} x {}), {}\n\n", options.plan, describe(plan.shape.layer), profile.name,
               counted(profile.nodes, "node"), profile.ranks_per_node, name_of(plan.shape.rounding));
    fmt::print("{} at r {}/{}: forward {:.4f} ms, backward {:.4f} ms\n\n{}", plan.schedule, plan.degree_forward,
               plan.degree_backward, times.forward_s * 1e3, times.backward_s * 1e3,
               text_gantt({{"", *plan.structure, timeline}}, gantt_columns()));
    return 0;
  }
  Json json{{"schedule", plan.schedule},
            {"degree_forward", plan.degree_forward},
            {"degree_backward", plan.degree_backward},
            {"forward_s", times.forward_s},
            {"backward_s", times.backward_s},
            {"moe_forward_s", times.moe_forward_s},
            {"moe_backward_s", times.moe_backward_s},
            {"gar_in_moe_bytes", times.gar_in_moe_bytes},
            {"bound_s", bound_seconds(plan, pricer)},
            {"memory_bytes", layer_memory(plan.shape, plan.structure->flow).total()},
            {"cluster", profile.name},
            {"layer", verbs::to_json(plan.shape)},
            {"notes", pricer.notes()}};
  verbs::add_timeline(json, plan, timeline);
  fmt::print("{}\n", document_text(json));
  return 0;
}

}  // namespace moe::planner
