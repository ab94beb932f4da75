#include "tuner/answer/subject.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>
#include <tuple>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe::tuner {
namespace {

// Returns the selection with all groups of size 1, which suit every layer. The search applies the requested groups
// itself and reports those that do not divide the layer.
commands::Selection without_groups(commands::Selection selection) {
  commands::LayerFlags& l = selection.layer;
  l.dp.reset();
  if (l.cp != 1) l.cp_exchange.reset();  // concerns the CP groups that the search finds
  l.cp = l.mp = l.ep = l.esp = l.pp = 1;
  l.fields.set(&LayerShape::first_stage_layers, 0);
  l.fields.set(&LayerShape::last_stage_layers, 0);
  return selection;
}

// Returns the number of replicas in the default groups. If these groups do not divide the layer, each node is a
// replica, as MP spans a node; on a single node, without MP, each rank is one.
int default_replicas(const TuneOptions& options, commands::Selection selection, const Profile& cluster) {
  commands::LayerFlags& l = selection.layer;
  l.dp = l.cp = l.mp = l.ep = l.esp = l.pp = std::nullopt;
  l.cp_exchange.reset();
  try {
    return commands::chosen_model(options.model, selection, cluster).model.shape.parallel.dp;
  } catch (const BadInput&) {
    return cluster.nodes > 1 ? cluster.nodes : cluster.ranks_per_node;
  }
}

// Returns the flag's batch, else the user's, else the batch without a search: the layer's batch times the
// micro-batches, on each requested replica or on those of the default groups.
int64_t global_batch(const TuneOptions& options, const Profile& cluster, const LayerShape& layer,
                     const std::optional<UserLayout>& own) {
  if (options.global_batch) return *options.global_batch;
  if (own) return samples_of(own->model);
  const commands::Selection& selection = options.selection;
  const int replicas = selection.layer.dp ? *selection.layer.dp : default_replicas(options, selection, cluster);
  return layer.batch * replicas * options.model.micro_batches.value_or(1);
}

// Refuses a global batch that the given replicas, micro-batches and samples do not divide.
void check_global_batch(const TuneOptions& options, const std::optional<int>& replicas) {
  if (!options.global_batch) return;
  int64_t samples = 1;
  std::string parts;
  for (const auto& [count, what] :
       {std::pair<std::optional<int64_t>, const char*>{replicas, "replicas (DP)"},
        {options.model.micro_batches, "micro-batches"},
        {options.selection.layer.fields.get(&LayerShape::batch), "samples a micro-batch (--batch)"}})
    if (count) {
      samples *= *count;
      parts += fmt::format("{}{} {}", parts.empty() ? "" : " x ", *count, what);
    }
  require<BadInput>(*options.global_batch % samples == 0, "--global-batch: found {}, expected a multiple of {}: {}",
                    *options.global_batch, samples, parts);
}

// Returns the flags that a search has to keep, and the groups if it does not search them.
std::vector<std::string> pinned_by(const TuneOptions& options) {
  const commands::LayerFlags& l = options.selection.layer;
  std::vector<std::string> pinned;
  const auto add = [&](const char* flag, const auto& value) {
    if (value) pinned.push_back(fmt::format("{} {}", flag, *value));
  };
  if (options.any_shape) {
    add("--dp", l.dp);
    add("--cp", l.cp);
    if (l.cp_exchange) add("--cp-exchange", std::optional(name_of(*l.cp_exchange)));
    add("--mp", l.mp);
    add("--ep", l.ep);
    add("--esp", l.esp);
    add("--pp", l.pp);
    add("--placement", l.placement);
  } else {
    pinned.emplace_back("groups (--shape auto searches them)");
  }
  if (options.global_batch) add("--batch", l.fields.get(&LayerShape::batch));
  add("--micro-batches", options.model.micro_batches);
  add("--pipeline", options.model.pipeline);
  add("--virtual-stages", options.model.virtual_stages);
  add("--first-stage-layers", l.fields.get(&LayerShape::first_stage_layers));
  add("--last-stage-layers", l.fields.get(&LayerShape::last_stage_layers));
  add("--zero", l.zero);
  if (l.recompute) add("--recompute", std::optional(name_of(*l.recompute)));
  if (l.offload) add("--offload", std::optional(name_of(*l.offload)));
  if (const commands::Framework* framework = framework_of(options))
    pinned.push_back(fmt::format("what {} does not run", framework->name));
  return pinned;
}

// Returns the flags with all groups set to the model's.
commands::LayerFlags with_groups_of(commands::LayerFlags flags, const ParallelShape& p) {
  flags.dp = p.dp;
  flags.cp = p.cp;
  flags.cp_exchange = p.cp_exchange;
  flags.mp = p.mp;
  flags.ep = p.ep;
  flags.esp = p.esp;
  flags.pp = p.pp;
  flags.placement = placement_name(p);
  return flags;
}

FoundShapes shapes_of(const TuneOptions& options, const Profile& cluster, const commands::ChosenModel& chosen,
                      const std::optional<UserLayout>& own) {
  const commands::LayerFlags& given = options.selection.layer;
  const ParallelShape& p = chosen.model.shape.parallel;
  require<BadInput>(given.pp.value_or(1) <= chosen.model.layers,
                    "--pp: found {}, expected at most {}, the layers (--layers N)", given.pp.value_or(1),
                    chosen.model.layers);
  check_global_batch(options, options.any_shape ? given.dp : std::optional(p.dp));
  FoundShapes found = find_shapes(
      {.chosen = chosen,
       .global_batch = global_batch(options, cluster, chosen.model.shape.layer, own),
       .profile = cluster,
       .schedules = schedules_of(options, chosen),
       .degrees = options.selection.degrees,
       .fixed = options.any_shape ? given : with_groups_of(given, p),
       .fixed_batch = options.global_batch && given.fields.get(&LayerShape::batch),
       .fixed_micro_batches = options.model.micro_batches.has_value(),
       .fixed_order = options.model.pipeline.has_value(),
       .fixed_virtual_stages = options.model.virtual_stages.has_value(),
       .pricing = pricing_of(options),
       .framework = framework_of(options),
       .frameworks = options.model.framework.empty() ? commands::frameworks() : std::span<const commands::Framework>{},
       .flag = options.any_shape ? "--shape" : "--global-batch"});
  found.pinned = pinned_by(options);
  return found;
}

// Returns the model's flags with the rules of memory: the framework's, else those of the user's own file.
commands::ModelFlags model_flags(const TuneOptions& options) {
  commands::ModelFlags flags = options.model;
  const commands::Framework* framework = framework_of(options);
  if (options.current && options.current->file && (framework == nullptr || !framework->trainer))
    flags.framework = options.current->file->framework->key;
  return flags;
}

// Returns the model that the flags describe; for a framework, under the order that all frameworks run.
commands::ChosenModel given_model(const TuneOptions& options, const Profile& cluster) {
  commands::ChosenModel chosen = commands::chosen_model(model_flags(options), options.selection, cluster);
  const commands::Framework* framework = framework_of(options);
  if (framework != nullptr && !framework->runs_all_schedules() && !options.model.pipeline)
    chosen.model.order = PipelineOrder::one_f_one_b;
  return chosen;
}

// Throws if the requested framework refuses the shape.
void require_runnable(const TuneOptions& options, const ModelShape& model) {
  const commands::Framework* framework = framework_of(options);
  if (framework == nullptr) return;
  const std::vector<std::string> refusals = commands::refusals_of(*framework, model);
  require<Unsupported>(refusals.empty(), "--framework {}: {}; --shape auto searches groups that it runs",
                       framework->key, fmt::join(refusals, "; "));
}

// Returns the flags' model without a pipeline order, whose check needs the number of micro-batches, unknown so far.
commands::ChosenModel model_of_no_order(const TuneOptions& options, const commands::Selection& selection,
                                        const Profile& cluster) {
  commands::ModelFlags flags = model_flags(options);
  flags.pipeline.reset();
  flags.virtual_stages.reset();
  return commands::chosen_model(flags, selection, cluster);
}

// Returns the model whose shape is to be searched.
commands::ChosenModel model_to_shape(const TuneOptions& options, const Profile& cluster) {
  commands::ChosenModel chosen =
      model_of_no_order(options, options.any_shape ? without_groups(options.selection) : options.selection, cluster);
  chosen.model.virtual_stages = options.model.virtual_stages.value_or(1);
  const PartialLayerFields& given = options.selection.layer.fields;
  for (const auto member : {&LayerShape::first_stage_layers, &LayerShape::last_stage_layers})
    if (const auto layers = given.get(member)) chosen.model.shape.layer.*member = *layers;
  if (options.model.pipeline) chosen.model.order = pipeline_order_from(*options.model.pipeline, "--pipeline");
  return chosen;
}

// These return references to the flags that the words of --current can set.
auto group_flags(commands::LayerFlags& l) {
  return std::tie(l.dp, l.cp, l.cp_exchange, l.mp, l.ep, l.esp, l.pp, l.placement);
}
auto memory_flags(commands::LayerFlags& l, commands::ModelFlags& m) {
  return std::tie(l.zero, l.recompute, l.offload, m.micro_batches, m.pipeline, m.virtual_stages);
}

// Sets the flags that `from` sets; unless `over_given`, only those that are not set yet.
template <class... Flag>
void set_said(std::tuple<Flag&...> flags, const std::tuple<Flag&...>& from, bool over_given) {
  const auto set = [&](auto& flag, const auto& said) {
    if (said && (over_given || !flag)) flag = said;
  };
  [&]<size_t... I>(std::index_sequence<I...>) { (set(std::get<I>(flags), std::get<I>(from)), ...); }
  (std::index_sequence_for<Flag...>());
}

void require_samples(const ModelShape& own, int64_t samples) {
  const int64_t found = samples_of(own);
  require<BadInput>(found == samples,
                    "--current: found {} of {} over DP {}, {} samples a step; expected {}, the global batch",
                    counted(static_cast<size_t>(own.micro_batches), "micro-batch"), own.shape.layer.batch,
                    own.shape.parallel.dp, found, samples);
}

// Sets the number of micro-batches that gives this global batch.
void set_micro_batches(int64_t samples, TuneOptions& options, const Profile& cluster) {
  const ModelShape model = model_of_no_order(options, options.selection, cluster).model;
  const int64_t at_once = samples_of(model);
  require<BadInput>(samples % at_once == 0, "found micro-batches of {} over DP {}, expected {} to be a multiple of {}",
                    model.shape.layer.batch, model.shape.parallel.dp, samples, at_once);
  options.model.micro_batches = static_cast<int>(samples / at_once);
}

// Sets the samples of a micro-batch that give this global batch.
void set_batch(int64_t samples, TuneOptions& options, const Profile& cluster) {
  const ModelShape model = model_of_no_order(options, options.selection, cluster).model;
  const int64_t parts = int64_t{model.shape.parallel.dp} * model.whole_micro_batches();
  require<BadInput>(samples % parts == 0, "found {} over DP {}, expected {} to be a multiple of {}",
                    counted(static_cast<size_t>(model.whole_micro_batches()), "micro-batch"), model.shape.parallel.dp,
                    samples, parts);
  options.selection.layer.fields.set(&LayerShape::batch, samples / parts);
}

// Refuses a file that starts a different number of ranks than the cluster has.
void require_ranks(const commands::LayoutFile& file, const Profile& cluster) {
  if (!file.nodes && !file.ranks_per_node) return;
  const int64_t per_node = file.ranks_per_node.value_or(cluster.ranks_per_node);
  const int64_t found = file.nodes.value_or(1) * per_node, expected = int64_t{cluster.nodes} * cluster.ranks_per_node;
  require<BadInput>(found == expected,
                    "--current: {}: found {} x {} ranks, expected {} x {} of the cluster (--nodes N)", file.path,
                    counted(static_cast<size_t>(file.nodes.value_or(1)), "node"), per_node,
                    counted(static_cast<size_t>(cluster.nodes), "node"), cluster.ranks_per_node);
}

// Refuses a file whose CP ranks exchange keys and values in a ring for a model with windows: Transformer Engine refuses
// them too (attn_forward_func_with_cp in context_parallel.py).
void require_exchange(const commands::LayoutFile& file, TuneOptions options, const Profile& cluster) {
  std::optional<CpExchange>& exchange = options.selection.layer.cp_exchange;
  const commands::LayoutFile::FlagSetting* said = file.find("--cp-exchange");
  const std::string ring(name_of(CpExchange::ring));
  const bool is_of_file = said != nullptr
                              ? said->value == ring
                              : std::ranges::any_of(file.defaults, [&](const commands::SettingDefault& usual) {
                                  return usual.flag == "--cp-exchange" && usual.value == ring;
                                });
  if (exchange != CpExchange::ring || !is_of_file) return;
  exchange = CpExchange::allgather;
  const int64_t window = model_of_no_order(options, options.selection, cluster).model.shape.layer.window;
  const std::string found = said != nullptr
                                ? fmt::format("{}: found p2p", said->where)
                                : fmt::format("{}: found no cp_comm_type, which is p2p by default", file.path);
  require<BadInput>(window == 0,
                    "{}, with a sliding window of {} tokens, which Transformer Engine refuses; expected all_gather, or "
                    "--window 0",
                    found, window);
}

/// The user's layout, and the options for the answer. Values that neither flags nor a search decide are the layout's.
struct UserFlags {
  std::optional<UserLayout> layout;
  TuneOptions others;
};

CurrentSchedule user_schedule(const TuneOptions& options) {
  const std::vector<std::string>& named = options.selection.schedules;
  if (!options.current->schedule.empty()) return current_from(options.current->schedule);
  require<BadInput>(
      named.size() == 1 && named.front() != commands::kAllSchedules && named.front() != commands::kDefaultSchedules,
      "--current: found no schedule, expected SCHEDULE[:R_F[:R_B]] among its words");
  return current_from(named.front());
}

// Clears the layers of the first and the last stage, because their numbers only suit one number of stages.
void clear_ends(commands::LayerFlags& layer) {
  layer.fields.set(&LayerShape::first_stage_layers, 0);
  layer.fields.set(&LayerShape::last_stage_layers, 0);
}

UserFlags user_flags(const TuneOptions& given, const Profile& cluster) {
  UserFlags found{{}, given};
  if (!given.current) return found;
  CurrentLayout said = *given.current;
  UserLayout& own = found.layout.emplace();
  const CurrentSchedule schedule = user_schedule(given);
  own.schedule = schedule.schedule;
  own.degrees = given.selection.degrees;
  own.degrees.forward = schedule.degree_forward;
  own.degrees.backward = schedule.degree_backward;
  own.file = said.file;
  if (own.file && !own.file->ignored.empty())
    log_decision(fmt::format("{}: settings of {} that affect neither groups nor states: {}", own.file->path,
                             own.file->format->name, fmt::join(own.file->ignored, ", ")));
  own.measured = said.measured;
  if (own.file) require_ranks(*own.file, cluster);
  TuneOptions options = given;
  if (own.file)
    options.model.framework = own.file->framework->key;  // the layout follows this framework's rules of memory
  commands::LayerFlags& layer = options.selection.layer;
  if (own.file) clear_ends(layer);  // the file gives the first and the last stage itself
  layer.fields.take(said.layer.fields, true);
  set_said(group_flags(layer), group_flags(said.layer), true);
  const bool shares_samples = layer.cp ? layer.cp > 1 : !given.any_shape;
  if (!shares_samples || own.file) layer.cp_exchange = said.layer.cp_exchange;  // the flag only restricts the answer
  set_said(memory_flags(layer, options.model), memory_flags(said.layer, said.model), true);
  try {
    if (own.file) require_exchange(*own.file, options, cluster);
    const std::optional<int64_t> samples = said.global_batch ? said.global_batch : given.global_batch;
    if (samples && !options.model.micro_batches)
      set_micro_batches(*samples, options, cluster);
    else if (samples && !layer.fields.get(&LayerShape::batch))
      set_batch(*samples, options, cluster);
    if (own.file && options.model.micro_batches.value_or(1) > 1 && !options.model.pipeline)
      options.model.pipeline = std::string(name_of(PipelineOrder::one_f_one_b));
    commands::ChosenModel chosen = given_model(options, cluster);
    set_training_states(options, cluster, chosen);
    own.model = chosen.model;
    require<BadInput>(own.model.shape.parallel.pp <= own.model.layers,
                      "--pp: found {}, expected at most {}, the layers", own.model.shape.parallel.pp, own.model.layers);
    if (samples) require_samples(own.model, *samples);
    if (!options.model.is_one_layer() && given.model.is_one_layer()) found.others.model.layers = 1;
  } catch (const BadInput& error) {
    const std::string what = error.what();
    bad_input("{}{}", what.starts_with("--current") ? "" : "--current: ", what);
  }
  if (given.any_shape) return found;
  commands::LayerFlags& others = found.others.selection.layer;
  set_said(group_flags(others), group_flags(layer), false);
  if (others.cp == 1) others.cp_exchange = given.selection.layer.cp_exchange;  // the layout's is for its CP ranks only
  if (given.searches()) return found;
  if (others.pp != layer.pp) clear_ends(layer);
  others.fields.take(layer.fields, false);
  set_said(memory_flags(others, found.others.model), memory_flags(layer, options.model), false);
  return found;
}

// Returns whether a schedule restricts the order of iterations in a way that no framework does, so that only `simulate`
// offers it by default.
bool is_comparison_only(const Schedule* schedule) {
  if (!schedule->orders_iterations() || schedule->iteration == IterationOrder::any) return false;
  return std::ranges::none_of(commands::frameworks(),
                              [&](const commands::Framework& framework) { return framework.lists(schedule->name); });
}

}  // namespace

int64_t samples_of(const ModelShape& model) {
  return model.shape.layer.batch * model.shape.parallel.dp * model.whole_micro_batches();
}

Subject subject_of(const TuneOptions& given, const Profile& cluster) {
  const UserFlags own = user_flags(given, cluster);
  const TuneOptions& options = own.others;
  Subject subject{options.searches() ? model_to_shape(options, cluster) : given_model(options, cluster), {}, {}};
  subject.own = own.layout;
  if (!options.model.model.empty()) subject.files.push_back(find_config("models", options.model.model));
  if (!options.selection.layer_file.empty())
    subject.files.push_back(find_config("layers", options.selection.layer_file));
  if (options.searches()) {
    subject.shapes = shapes_of(options, cluster, subject.chosen, subject.own);
    subject.chosen.model = subject.shapes->ranked.front().model;
  } else {
    subject.defaults = set_training_states(options, cluster, subject.chosen);
    require_runnable(options, subject.chosen.model);
  }
  if (subject.own) require_samples(subject.own->model, samples_of(subject.chosen.model));
  subject.name = subject.chosen.name.empty() ? describe(subject.chosen.model.shape.layer) : subject.chosen.name;
  subject.options = own.others;
  return subject;
}

// Layers are planned as papers have them, and so are models on ranks of unknown memory, such as this machine's threads,
// whose attention keeps no scores.
std::vector<std::string> set_training_states(const TuneOptions& options, const Profile& cluster,
                                             commands::ChosenModel& chosen) {
  std::vector<std::string> defaults;
  if (options.model.model.empty() || !cluster.memory_bytes) return defaults;
  const commands::LayerFlags& given = options.selection.layer;
  ParallelShape& p = chosen.model.shape.parallel;
  if (!given.zero && (p.replicas() > 1 || p.edp > 1)) {
    p.zero = 1;
    if (offload_refusal(chosen.model.shape)) p.zero = 0;
    defaults.push_back(fmt::format("--zero {}", p.zero));
  }
  if (!given.recompute) {
    p.recompute = Recompute::selective;
    const MemoryEstimate needed =
        commands::memory_of(chosen, memory_request(chosen.model, chosen.model.shape, Flow::sharded));
    const bool may_run_again = chosen.model.split().parts == 1;
    if (may_run_again && memory_refusal(needed, *cluster.memory_bytes)) p.recompute = Recompute::full;
    defaults.push_back(fmt::format("--recompute {}", name_of(p.recompute)));
  }
  return defaults;
}

const commands::Framework* framework_of(const TuneOptions& options) {
  return options.model.framework.empty() ? nullptr : &commands::framework_of(options.model.framework);
}

std::vector<const Schedule*> schedules_of(const TuneOptions& options, const commands::ChosenModel& chosen) {
  std::vector<const Schedule*> schedules =
      commands::chosen_schedules(options.selection, commands::possible_schedules(chosen), commands::kAllSchedules);
  if (options.selection.schedules.empty()) std::erase_if(schedules, is_comparison_only);
  const commands::Framework* framework = framework_of(options);
  if (framework == nullptr || framework->runs_all_schedules()) return schedules;
  for (const auto names : {framework->exact, framework->close}) {
    std::vector<const Schedule*> run;
    std::ranges::copy_if(schedules, std::back_inserter(run), [&](const Schedule* schedule) {
      return std::ranges::find(names, schedule->name) != names.end();
    });
    if (!run.empty()) return run;
  }
  if (options.selection.schedules.empty())
    bad_input(
        "--framework {}: found one layer in one micro-batch, expected several layers or micro-batches: {} orders whole "
        "iterations",
        framework->key, framework->name);
  bad_input("--framework {}: found no --schedule that {} runs, expected {}", framework->key, framework->name,
            fmt::join(framework->exact.empty() ? framework->close : framework->exact, " or "));
}

PricingOptions pricing_of(const TuneOptions& options) {
  PricingOptions pricing = commands::pricing_of(options.selection);
  pricing.nearest |= options.any_shape;
  return pricing;
}

}  // namespace moe::tuner
