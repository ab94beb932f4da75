#include "commands/exchange/tuned_layer.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>

#include "commands/exchange/formats.h"
#include "commands/shared/chosen_model.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/record_files.h"
#include "commands/shared/selection.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/formats/plan_json.h"
#include "moe/record/reader.h"
#include "moe/search/degrees.h"
#include "moe/search/layer_search.h"

namespace moe::exchange {
namespace {

bool is_layer_record(const CaseRecord& record) {
  return !record.schedule.empty() && record.parameters.has("batch") && record.status == CaseStatus::ok;
}

const std::string& layer_of(const CaseRecord& record) { return record.parameters.text("layer", record.where); }

// Returns the measured total, or the predicted one.
double total_of(const CaseRecord& record, bool measured) {
  const Fields& fields = measured ? record.summary : record.prediction;
  return fields.has("total_s") ? fields.number("total_s", record.where) : 0;
}

std::string described(const TimedCase& c) {
  return fmt::format("{} at r {}/{}, {}", c.record.schedule, c.record.degree_forward, c.record.degree_backward,
                     human_seconds(c.seconds));
}

const TimedCase* first_of(const std::vector<TimedCase>& cases, std::span<const std::string_view> schedules) {
  const auto found = std::ranges::find_if(
      cases, [&](const TimedCase& c) { return std::ranges::find(schedules, c.record.schedule) != schedules.end(); });
  return found == cases.end() ? nullptr : &*found;
}

// Returns the framework that the case was planned for; empty if none.
std::string framework_of(const CaseRecord& record) {
  return record.parameters.has("framework") ? record.parameters.text("framework", record.where) : "";
}

// The chosen case: one planned for the framework; else one of an exact schedule before one of a close schedule, and a
// measured case before a predicted one.
struct ChosenCase {
  std::vector<TimedCase> cases;
  const TimedCase* chosen = nullptr;
  bool measured = true, exact = true;
};

// Refuses a framework whose plans tune found too large, and names those that have one in the same records.
void require_fits(const ExportOptions& options, const commands::Framework& runs) {
  std::string reason;
  std::vector<std::string_view> others;
  for (const commands::Framework& framework : commands::frameworks())
    if (framework.is_exported) others.push_back(framework.key);
  for (const CaseRecord& record : read_last_run(options.file).cases) {
    const std::string framework = framework_of(record);
    if (framework.empty() || record.status != CaseStatus::unsupported) continue;
    if (!options.only.empty() && layer_of(record) != options.only) continue;
    if (framework == runs.key && record.prediction.has("fits")) reason = record.reason;
    std::erase(others, framework);
  }
  require<BadInput>(
      reason.empty(), "{}: found no plan that {} runs ({}), expected one that fits; {}", options.file, runs.name,
      reason,
      others.empty() ? "no framework has one" : fmt::format("frameworks with a plan: {}", fmt::join(others, ", ")));
}

ChosenCase find_cases(const ExportOptions& options, const commands::Framework& runs) {
  ChosenCase found{.cases = timed_cases(options.file, options.only, false, runs.key), .measured = false};
  require_fits(options, runs);
  const auto planned_for_it =
      std::ranges::find(found.cases, runs.key, [](const TimedCase& c) { return framework_of(c.record); });
  if (planned_for_it != found.cases.end()) {
    found.chosen = &*planned_for_it;
    found.exact = std::ranges::find(runs.exact, found.chosen->record.schedule) != runs.exact.end();
    return found;
  }
  for (const bool exact : {true, false})
    for (const bool measured : {true, false}) {
      found.cases = timed_cases(options.file, options.only, measured);
      found.chosen = first_of(found.cases, exact ? runs.exact : runs.close);
      found.measured = measured;
      found.exact = exact;
      if (found.chosen != nullptr) return found;
    }
  bad_input("{}: found no case of a schedule that {} runs, expected one of: {}", options.file, runs.name,
            fmt::join(runs.exact, ", "));
}

std::vector<std::string> notes_on(const ChosenCase& found, const commands::Framework& runs) {
  const TimedCase &fastest = found.cases.front(), &chosen = *found.chosen;
  const std::string how =
      found.measured ? chosen.record.emulated ? "measured on an emulated cluster" : "measured" : "predicted";
  std::vector<std::string> notes{fmt::format("{}: one iteration with all its tasks, {}, on {}", described(chosen), how,
                                             chosen.record.parameters.text("cluster", chosen.record.where))};
  if (!found.exact) notes.push_back(fmt::format("{} runs this plan except for {}", runs.name, runs.but));
  if (fastest.seconds < chosen.seconds)
    notes.push_back(fmt::format("fastest {}: {}, which {} cannot run; the exported plan takes {:.3f} times as long",
                                found.measured ? "measured" : "predicted", described(fastest), runs.name,
                                chosen.seconds / fastest.seconds));
  return notes;
}

void read_dense_layers(const CaseRecord& record, TunedLayer& tuned) {
  const Fields& fields = record.parameters;
  if (fields.has("dense_hidden")) tuned.dense_hidden = fields.whole("dense_hidden", record.where);
  if (!fields.has("moe_layers")) return;
  tuned.moe_layers = fields.text("moe_layers", record.where);
}

// Returns the record's model, with 0 layers if the record is of a run, which may have run only some of them.
ModelShape model_of(const CaseRecord& record) {
  ModelShape model = commands::model_of(record.parameters, record.where);
  if (!record.key.starts_with("plan/") && !record.key.starts_with("framework/")) model.layers = 0;
  return model;
}

// Returns the parts of a layer for which no framework has a setting.
std::vector<std::string> parts_without_setting(const LayerShape& layer) {
  std::vector<std::string> parts;
  if (is_post_norm(layer.norm)) parts.emplace_back("norms after the residual sums");
  if (!layer.causal) parts.emplace_back("attention without a causal mask");
  if (layer.parts > 1) parts.push_back(fmt::format("samples in {} parts", layer.parts));
  if (layer.norm == Norm::none) parts.emplace_back("layers without a norm");
  if (!layer.residual) parts.emplace_back("layers without a residual connection");
  if (in_fp8(layer.ffn)) parts.emplace_back("FP8 in the experts only");
  if (layer.hook != "none") parts.push_back(fmt::format("the hook {}", layer.hook));
  return parts;
}

// Returns the parts for which Megatron-Core alone has settings.
std::vector<std::string> parts_of_megatron(const TunedLayer& tuned) {
  const LayerShape& layer = tuned.shape.layer;
  const ModelTraits& traits = tuned.traits;
  std::vector<std::string> parts;
  if (tuned.dense_hidden > 0) parts.push_back(fmt::format("dense layers of {} hidden units", tuned.dense_hidden));
  if (layer.node_limit > 0)
    parts.push_back(fmt::format("a limit of {} for the experts of a token",
                                layer.router_groups > 0
                                    ? fmt::format("{} of {} groups", layer.node_limit, layer.router_groups)
                                    : fmt::format("{} nodes", layer.node_limit)));
  if (layer.window > 0)
    parts.push_back(fmt::format("a sliding window of {} tokens{}", layer.window,
                                tuned.model.whole.by_layer.empty() ? "" : " in some layers"));
  if (is_latent(layer)) parts.emplace_back("latent attention (MLA)");
  if (traits.selection_bias) parts.emplace_back("a bias that corrects the choice of experts");
  if (traits.routed_scale != 1) parts.push_back(fmt::format("experts' weights times {}", traits.routed_scale));
  if (traits.shared_expert_gate) parts.emplace_back("a gate of the shared expert");
  return parts;
}

// Notes the parts of the layer for which the framework has no setting, and what its settings cover in part.
void note_unsaid(const commands::Framework& runs, TunedLayer& tuned) {
  const bool megatron = runs.key.starts_with("megatron");
  std::vector<std::string> unsaid = parts_without_setting(tuned.shape.layer);
  if (!megatron) std::ranges::move(parts_of_megatron(tuned), std::back_inserter(unsaid));
  if (gate_of(tuned.shape.layer).logits == LogitsBy::noisy_product && runs.key != "fsmoe")
    unsaid.emplace_back("a gate with learned noise on its logits");
  for (const std::string& part : unsaid)
    tuned.notes.push_back(fmt::format("{} has no setting for {}", runs.name, part));
  const ParallelShape& p = tuned.shape.parallel;
  const std::string states = describe_states(p);
  if (megatron && tuned.dense_hidden > 0 && tuned.moe_layers.empty())
    tuned.notes.emplace_back("set --moe-layer-freq yourself: the records do not say which layers are dense");
  if (megatron && p.zero > 1)
    tuned.notes.push_back(
        fmt::format("planned with ZeRO {}: --use-distributed-optimizer shards only optimizer states", p.zero));
  if (!megatron && !states.empty())
    tuned.notes.push_back(
        fmt::format("planned with {}: configure the optimizer and recomputation accordingly", states));
}

}  // namespace

std::vector<TimedCase> timed_cases(const std::string& path, const std::string& only, bool measured,
                                   std::string_view framework) {
  const Run run = read_last_run(path);
  std::vector<std::string> layers;
  std::vector<TimedCase> cases;
  for (const CaseRecord& record : run.cases) {
    if (!is_layer_record(record)) continue;
    const std::string& layer = layer_of(record);
    if (std::ranges::find(layers, layer) == layers.end()) layers.push_back(layer);
    if (!only.empty() && layer != only) continue;
    if (const std::string own = framework_of(record); !own.empty() && own != framework) continue;
    if (const double seconds = total_of(record, measured); seconds > 0) cases.push_back({record, seconds});
  }
  require<BadInput>(!layers.empty(),
                    "{}: found no case of a layer, expected records of tune, layerbench or simulate --out", path);
  require<BadInput>(only.empty() || std::ranges::find(layers, only) != layers.end(),
                    "--only: found '{}', expected a layer of {}, such as {}", only, path, layers.front());
  require<BadInput>(!only.empty() || layers.size() == 1,
                    "--only: found none and {} layers in {}, expected one, such as {}", layers.size(), path,
                    layers.front());
  std::ranges::stable_sort(cases, {}, &TimedCase::seconds);
  return cases;
}

TunedLayer tuned_layer(const ExportOptions& options, const commands::Framework& runs) {
  const ChosenCase found = find_cases(options, runs);
  const CaseRecord& record = found.chosen->record;
  const LayerCase shape = commands::shape_of(record.parameters, record.where);
  TunedLayer tuned{layer_of(record),    shape,         model_of(record),
                   found.cases.front(), *found.chosen, notes_on(found, runs)};
  read_dense_layers(record, tuned);
  tuned.traits = commands::recorded_traits(record.parameters, record.where);
  note_unsaid(runs, tuned);
  std::ranges::move(commands::refusals_of(runs, tuned.model), std::back_inserter(tuned.notes));
  return tuned;
}

void log_notes(const ExportOptions& options, const TunedLayer& tuned) {
  if (options.out.empty()) return;
  for (const std::string& note : tuned.notes) log_info(note);
}

namespace {

constexpr double kSameSeconds = 1e-6;  // relative difference below which times count as equal

// Returns whether records contain all decisions of the schedule: degrees and the split of gradients.
bool is_fully_recorded(const Schedule& schedule) {
  return schedule.variants.empty() && !schedule.searched_order && !sends_pieces(schedule) && !schedule.packs_experts &&
         schedule.gradients != GradientPolicy::beside_dense;
}

std::optional<Profile> profile_for(const std::string& asked, const std::string& cluster) {
  if (!asked.empty()) return find_profile(asked);
  try {
    return find_profile(cluster);
  } catch (const BadInput&) {
    return std::nullopt;
  }
}

TimedCase chosen_case_of(const ExportOptions& options) {
  std::vector<TimedCase> cases = timed_cases(options.file, options.only, true);
  const auto of_schedule = [&](const TimedCase& c) {
    return options.schedule.empty() || c.record.schedule == options.schedule;
  };
  if (std::ranges::none_of(cases, of_schedule)) cases = timed_cases(options.file, options.only, false);
  const auto chosen = std::ranges::find_if(cases, of_schedule);
  require<BadInput>(chosen != cases.end(), "--schedule: found {}, expected one that {} has an ok case of",
                    options.schedule, options.file);
  return *chosen;
}

// Warns if the plan's time differs from the record's prediction; the prediction of a model is not of one of its layers.
void compare_times(const CaseRecord& record, const Profile& profile, const Plan& plan) {
  if (!record.prediction.has("total_s")) return;
  const ModelShape model = commands::model_of(record.parameters, record.where);
  if (model.step.planned) {
    log_info(
        fmt::format("the plan is of one layer and one micro-batch without the step, the record of {} and {}: "
                    "simulate --save-plan writes the plan of a whole iteration",
                    counted(static_cast<size_t>(model.layers), "layer"),
                    counted(static_cast<size_t>(model.micro_batches), "micro-batch")));
    return;
  }
  const double recorded_s = record.prediction.number("total_s", record.where);
  const LayerPricer pricer(profile, plan.shape, {true, "a plan out of records", true});
  const commands::PlanTimes times = commands::times_of(plan, pricer);
  const double ratio = (times.forward_s + times.backward_s) / recorded_s;
  if (std::abs(ratio - 1) > kSameSeconds)
    log_warning(
        fmt::format("{}: the plan takes {:.6f} times as long as the record predicts: the plan or the profile {} "
                    "differs from the record's",
                    record.where, ratio, profile.name));
}

Plan plan_of_case(const CaseRecord& record, const std::optional<Profile>& profile) {
  require<BadInput>(!record.parameters.has("plan"),
                    "{}: found the record of a plan's file, expected that file in its place", record.where);
  const Schedule& schedule = find_schedule(record.schedule);
  const auto is_this = [&](const Schedule& other) { return other.name == schedule.name; };
  require<BadInput>(std::ranges::none_of(iteration_schedules(), is_this),
                    "{}: found schedule {}, which orders whole iterations, expected one that orders layers "
                    "(--schedule NAME); simulate --save-plan writes plans of iterations",
                    record.where, schedule.name);
  const LayerCase shape = commands::shape_of(record.parameters, record.where);
  if (is_fully_recorded(schedule)) {
    const int64_t split =
        record.prediction.has("gar_in_moe_bytes") ? record.prediction.whole("gar_in_moe_bytes", record.where) : 0;
    Decision decision = with_split(schedule, record.degree_forward, record.degree_backward, split);
    if (record.prediction.has("gar_after_bytes"))
      decision.gar_after_bytes = record.prediction.whole("gar_after_bytes", record.where);
    return build_plan(schedule, shape, decision);
  }
  require<BadInput>(
      profile.has_value(),
      "--cluster: found none, and {} names no profile; schedule {} decides more than records say, expected "
      "the profile that it was tuned on",
      record.where, schedule.name);
  const LayerPricer pricer(*profile, shape, {true, "a plan out of records", true});
  LayerSearch search;
  const LayerResult result =
      search.tune(schedule, pricer, within_memory(commands::degrees_of(record), profile->memory_bytes));
  log_info(fmt::format("{}: decisions that records do not contain were searched again on profile {}", schedule.name,
                       profile->name));
  return build_plan(schedule, shape, result.decision);
}

}  // namespace

bool is_plan(const std::string& path) {
  if (first_letter(path) != '{') return false;
  const auto json = json_if_valid(text_of_file(path, "records or a plan"));
  return json && json->is_object() && json->contains("format");
}

NamedPlan plan_of(const ExportOptions& options) {
  if (is_plan(options.file)) {
    require<BadInput>(options.only.empty() && options.schedule.empty(),
                      "{}: found a plan, which has one layer and one schedule; expected records",
                      options.only.empty() ? "--schedule" : "--only");
    std::optional<Profile> profile;
    if (!options.cluster.empty()) profile = find_profile(options.cluster);
    return {read_plan(options.file), profile};
  }
  const TimedCase chosen = chosen_case_of(options);
  const std::optional<Profile> profile =
      profile_for(options.cluster, chosen.record.parameters.text("cluster", chosen.record.where));
  NamedPlan named{plan_of_case(chosen.record, profile), profile};
  if (profile) compare_times(chosen.record, *profile, named.plan);
  return named;
}

void write_plan_document(const ExportOptions& options, std::ostream& out) {
  const Plan plan = plan_of(options).plan;
  write_plan(plan, out);
  log_info(fmt::format("plan: {} at r {}/{}, {} tasks on {} lanes; times are left out", plan.schedule,
                       plan.degree_forward, plan.degree_backward, plan.tasks().size(), plan.structure->lanes.size()));
}

}  // namespace moe::exchange
