#include "tuner/answer/subject.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config_files.h"

namespace moe::tuner {
namespace {

// Returns the selection with groups that any layer has; the search keeps the groups that flags ask for, and says what
// does not divide.
verbs::Selection in_no_groups(verbs::Selection selection) {
  verbs::LayerFlags& l = selection.layer;
  l.dp.reset();
  l.mp = l.ep = l.esp = l.pp = 1;
  return selection;
}

// Returns how many replicas the default groups have. Where these groups do not divide the layer, each node has one, as
// MP is of a node; on one node, without MP, each rank has one.
int default_replicas(const TuneOptions& options, verbs::Selection selection, const Profile& cluster) {
  verbs::LayerFlags& l = selection.layer;
  l.dp = l.mp = l.ep = l.esp = l.pp = std::nullopt;
  try {
    return verbs::chosen_model(options.model, selection, cluster).model.shape.parallel.dp;
  } catch (const BadInput&) {
    return cluster.nodes > 1 ? cluster.nodes : cluster.ranks_per_node;
  }
}

// Returns the flag's batch, or the batch as it is without a search: the layer's on each replica asked for, or of the
// default groups.
int64_t global_batch(const TuneOptions& options, const Profile& cluster, const LayerShape& layer) {
  if (options.global_batch) return *options.global_batch;
  const verbs::Selection& selection = options.selection;
  const int replicas = selection.layer.dp ? *selection.layer.dp : default_replicas(options, selection, cluster);
  return layer.batch * replicas * options.model.micro_batches.value_or(1);
}

// Refuses a batch that what is given does not divide.
void check_global_batch(const TuneOptions& options, const std::optional<int>& replicas) {
  if (!options.global_batch) return;
  int64_t samples = 1;
  std::string parts;
  for (const auto& [count, what] : {std::pair<std::optional<int64_t>, const char*>{replicas, "replicas (DP)"},
                                    {options.model.micro_batches, "micro-batches"},
                                    {options.selection.layer.batch, "samples a micro-batch (--batch)"}})
    if (count) {
      samples *= *count;
      parts += fmt::format("{}{} {}", parts.empty() ? "" : " x ", *count, what);
    }
  require<BadInput>(*options.global_batch % samples == 0, "--global-batch: found {}, expected a multiple of {}: {}",
                    *options.global_batch, samples, parts);
}

// Lists the flags that a search keeps to, and the groups where it does not search them.
std::vector<std::string> pinned_by(const TuneOptions& options) {
  const verbs::LayerFlags& l = options.selection.layer;
  std::vector<std::string> pinned;
  const auto add = [&](const char* flag, const auto& value) {
    if (value) pinned.push_back(fmt::format("{} {}", flag, *value));
  };
  if (options.any_shape) {
    add("--dp", l.dp);
    add("--mp", l.mp);
    add("--ep", l.ep);
    add("--esp", l.esp);
    add("--pp", l.pp);
    add("--placement", l.placement);
  } else {
    pinned.emplace_back("groups (--shape auto searches them)");
  }
  if (options.global_batch) add("--batch", l.batch);
  add("--micro-batches", options.model.micro_batches);
  add("--pipeline", options.model.pipeline);
  add("--virtual-stages", options.model.virtual_stages);
  add("--zero", l.zero);
  add("--recompute", l.recompute);
  if (const verbs::Framework* framework = framework_of(options))
    pinned.push_back(fmt::format("what {} does not run", framework->name));
  return pinned;
}

// Returns the flags with all groups as the model has them.
verbs::LayerFlags in_groups_of(verbs::LayerFlags flags, const ParallelShape& p) {
  flags.dp = p.dp, flags.mp = p.mp, flags.ep = p.ep, flags.esp = p.esp, flags.pp = p.pp;
  flags.placement = placement_name(p);
  return flags;
}

FoundShapes shapes_of(const TuneOptions& options, const Profile& cluster, const verbs::ChosenModel& chosen) {
  const verbs::LayerFlags& given = options.selection.layer;
  const ParallelShape& p = chosen.model.shape.parallel;
  require<BadInput>(given.pp.value_or(1) <= chosen.model.layers,
                    "--pp: found {}, expected at most {}, the layers (--layers N)", given.pp.value_or(1),
                    chosen.model.layers);
  check_global_batch(options, options.any_shape ? given.dp : std::optional(p.dp));
  FoundShapes found =
      find_shapes({.chosen = chosen,
                   .global_batch = global_batch(options, cluster, chosen.model.shape.layer),
                   .profile = cluster,
                   .schedules = schedules_of(options),
                   .degrees = options.selection.degrees,
                   .fixed = options.any_shape ? given : in_groups_of(given, p),
                   .fixed_batch = options.global_batch && given.batch,
                   .fixed_micro_batches = options.model.micro_batches.has_value(),
                   .fixed_order = options.model.pipeline.has_value(),
                   .fixed_virtual_stages = options.model.virtual_stages.has_value(),
                   .pricing = pricing_of(options),
                   .framework = framework_of(options),
                   .frameworks = options.framework.empty() ? verbs::frameworks() : std::span<const verbs::Framework>{},
                   .flag = options.any_shape ? "--shape" : "--global-batch"});
  found.pinned = pinned_by(options);
  return found;
}

// Sets what a training keeps where no flag says it: Adam's states shared out, no attention scores, and of a layer its
// output alone if nothing more fits. Layers are planned as papers have them, and so are models on ranks of unknown
// memory, such as this machine's threads, whose attention keeps no scores. Returns the flags that say the same.
std::vector<std::string> set_training_states(const TuneOptions& options, const Profile& cluster,
                                             verbs::ChosenModel& chosen) {
  std::vector<std::string> defaults;
  if (options.model.model.empty() || !cluster.memory_bytes) return defaults;
  const verbs::LayerFlags& given = options.selection.layer;
  ParallelShape& p = chosen.model.shape.parallel;
  if (!given.zero && (p.dp > 1 || p.edp > 1)) {
    p.zero = 1;
    defaults.push_back(fmt::format("--zero {}", p.zero));
  }
  if (!given.recompute) {
    p.recompute = Recompute::selective;
    const MemoryEstimate needed =
        verbs::memory_of(chosen, memory_request(chosen.model, chosen.model.shape, Flow::sharded));
    if (misfit(needed, *cluster.memory_bytes)) p.recompute = Recompute::full;
    defaults.push_back(fmt::format("--recompute {}", name_of(p.recompute)));
  }
  return defaults;
}

// Returns the model that flags say; of a framework under the order that all of them run.
verbs::ChosenModel given_model(const TuneOptions& options, const Profile& cluster) {
  verbs::ChosenModel chosen = verbs::chosen_model(options.model, options.selection, cluster);
  const verbs::Framework* framework = framework_of(options);
  if (framework != nullptr && !framework->runs_all() && !options.model.pipeline)
    chosen.model.order = PipelineOrder::one_f_one_b;
  return chosen;
}

// Throws where the framework asked for refuses the shape.
void require_runnable(const TuneOptions& options, const ModelShape& model) {
  const verbs::Framework* framework = framework_of(options);
  if (framework == nullptr) return;
  const std::vector<std::string> refusals = verbs::refusals_of(*framework, model);
  require<Unsupported>(refusals.empty(), "--framework {}: {}; --shape auto looks for groups that it runs",
                       framework->key, fmt::join(refusals, "; "));
}

// Returns the model of a search: of its micro-batches, which are yet to be found, nothing is checked.
verbs::ChosenModel model_to_shape(const TuneOptions& options, const Profile& cluster) {
  verbs::ModelFlags flags = options.model;
  flags.pipeline.reset();
  flags.virtual_stages.reset();
  verbs::ChosenModel chosen =
      verbs::chosen_model(flags, options.any_shape ? in_no_groups(options.selection) : options.selection, cluster);
  chosen.model.virtual_stages = options.model.virtual_stages.value_or(1);
  if (options.model.pipeline) chosen.model.order = pipeline_order_from(*options.model.pipeline, "--pipeline");
  return chosen;
}

}  // namespace

Subject subject_of(const TuneOptions& options, const Profile& cluster) {
  Subject subject{options.searches() ? model_to_shape(options, cluster) : given_model(options, cluster), {}, {}};
  if (!options.model.model.empty()) subject.files.push_back(find_config("models", options.model.model));
  if (!options.selection.layer_file.empty())
    subject.files.push_back(find_config("layers", options.selection.layer_file));
  if (options.searches()) {
    subject.shapes = shapes_of(options, cluster, subject.chosen);
    subject.chosen.model = subject.shapes->ranked.front().model;
  } else {
    subject.defaults = set_training_states(options, cluster, subject.chosen);
    require_runnable(options, subject.chosen.model);
  }
  subject.name = subject.chosen.name.empty() ? describe(subject.chosen.model.shape.layer) : subject.chosen.name;
  return subject;
}

const verbs::Framework* framework_of(const TuneOptions& options) {
  return options.framework.empty() ? nullptr : &verbs::framework_of(options.framework);
}

std::vector<const Schedule*> schedules_of(const TuneOptions& options) {
  std::vector<const Schedule*> chosen = verbs::chosen_schedules(options.selection);
  const verbs::Framework* framework = framework_of(options);
  if (framework == nullptr || framework->runs_all()) return chosen;
  for (const auto names : {framework->exact, framework->close}) {
    std::vector<const Schedule*> run;
    std::ranges::copy_if(chosen, std::back_inserter(run), [&](const Schedule* schedule) {
      return std::ranges::find(names, schedule->name) != names.end();
    });
    if (!run.empty()) return run;
  }
  bad_input("--framework {}: found no --schedule that {} runs, expected {}", framework->key, framework->name,
            fmt::join(framework->exact.empty() ? framework->close : framework->exact, " or "));
}

PricingOptions pricing_of(const TuneOptions& options) {
  PricingOptions pricing = verbs::pricing_of(options.selection);
  pricing.nearest |= options.any_shape;
  return pricing;
}

}  // namespace moe::tuner
