#include "layerbench/layerbench.h"

#include <algorithm>
#include <cstdio>

#include "commands/shared/pick_layers.h"
#include "commands/shared/plan_file.h"
#include "commands/shared/run/op_records.h"
#include "commands/shared/run/routing_record.h"
#include "commands/shared/sweep.h"
#include "layerbench/report.h"
#include "layerbench/serve.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/terminal.h"
#include "moe/device/stream.h"
#include "moe/formats/plan_json.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/layers/proxy.h"
#include "moe/shape/grid.h"

namespace moe::layerbench {
namespace {

constexpr const char* kLayers = "layers";  // name of the layers' work in the progress estimate

struct BenchedLayer {
  std::string name;
  ModelShape model;
  std::optional<Refusal> refusal = {};  // why a grid's layer has no valid groups on this cluster
  std::optional<Plan> plan = {};
};

Workload workload_of(const LayerbenchOptions& options) { return Workload(options.workload, "--workload"); }

measure::InjectedSlowdown injected_slowdown_of(const LayerbenchOptions& options, const commands::Target& target) {
  const measure::InjectedSlowdown injected = measure::injected_slowdown_from(options.slow, "--slow");
  if (options.slow.empty()) return injected;
  const int ranks = target.cluster.nodes * target.cluster.ranks_per_node;
  require<BadInput>(options.device == DeviceKind::cpu,
                    "--slow: found --device cuda, expected cpu, whose streams are threads");
  require<BadInput>(
      !target.emulated,
      "--slow: found the emulated cluster {}, whose pace hides a slow rank; expected --cluster host, or processes",
      target.cluster.name);
  require<BadInput>(injected.rank < ranks, "--slow: found rank {}, expected one of {}", injected.rank, ranks);
  return injected;
}

bool graphs_of(const LayerbenchOptions& options, const commands::Target& target) {
  if (!options.graphs) return false;
  require<BadInput>(options.device == DeviceKind::cuda, "--graphs: found --device cpu, expected cuda");
  require<BadInput>(options.attention == AttentionBy::own,
                    "--graphs: found --attention torch, whose allocator can't be recorded; expected own");
  require<Unsupported>(target.backend() == "nccl" || target.backend() == kNcclOnOneGpu,
                       "--graphs: found --backend {}, whose ranks meet on the host in each pass, expected nccl",
                       target.backend());
  return true;
}

bool profile_of(const LayerbenchOptions& options) {
  require<BadInput>(!options.profile || options.device == DeviceKind::cuda,
                    "--profile: found --device cpu, expected cuda");
  return options.profile;
}

// Throws, before any measurement, if the CPU cannot run the layer (an emulated cluster runs a proxy instead), or if
// passes cannot be recorded.
void require_runs(const LayerShape& layer, const LayerbenchOptions& options, const commands::Target& target) {
  require<Unsupported>(!options.graphs || layer.capacity_factor,
                       "--graphs: found no capacity, where the host waits in each pass for counts of rows, expected "
                       "--capacity-factor X");
  if (!target.emulated && target.ranks.device == DeviceKind::cpu) cpu_layer_device().require_runs(layer);
}

// Grids that papers plan with unrounded capacity run with ragged capacity.
BenchedLayer grid_layer(const GridLayer& layer, const Grid& grid, const LayerbenchOptions& options,
                        const commands::Target& target) {
  const Profile& cluster = target.cluster;
  LayerFile base;
  base.layer = layer.shape;
  base.parallel = layer.parallel.value_or(ParallelShape{});
  base.rounding = grid.rounding == Rounding::exact ? Rounding::ragged : grid.rounding;
  const bool own = layer.parallel.has_value();
  BenchedLayer benched{layer.name, {}};
  try {
    benched.model.shape = commands::chosen_case(options.selection, base, own ? layer.parallel->nodes : cluster.nodes,
                                                own ? layer.parallel->ranks_per_node : cluster.ranks_per_node);
    require_runs(benched.model.shape.layer, options, target);
  } catch (const BadInput& error) {
    benched.refusal = refusal_of(error);
  }
  return benched;
}

// Returns the model in words: "4 layers of B4 L512 ..., 2 micro-batches, 2 stages (1f1b)".
std::string name_of(const ModelShape& model) {
  const int stages = model.shape.parallel.pp;
  std::string name = describe(model.shape.layer);
  if (model.layers > 1) name = fmt::format("{} layers of {}", model.layers, name);
  if (model.micro_batches > 1) name += ", " + counted(model.whole_micro_batches(), "micro-batch");
  if (stages > 1) name += fmt::format(", {} stages", stages);
  if (model.micro_batches > 1 && stages > 1) name += fmt::format(" ({})", describe_order(model));
  return name;
}

std::vector<BenchedLayer> benched_layers(const LayerbenchOptions& options, const commands::Target& target) {
  const commands::Selection& selection = options.selection;
  if (!options.plan.empty()) {
    Plan plan = commands::plan_of_file(options.plan, target.cluster.nodes, target.cluster.ranks_per_node);
    require<BadInput>(
        plan.vocabulary == 0,
        "{}: vocabulary: found a whole model's plan, expected layers alone (modelbench --plan runs models)",
        options.plan);
    require<BadInput>(
        plan.ends.none(),
        "{}: ends: found weights of a model's ends without their tasks, as simulate --model plans; expected layers "
        "alone (simulate --layers), or for modelbench a plan that it saved",
        options.plan);
    require_runs(plan.shape.layer, options, target);
    ModelShape model = model_of(plan);
    std::string name = fmt::format("{} plan {}", name_of(model), digest_of(plan));
    return {{std::move(name), std::move(model), {}, std::move(plan)}};
  }
  if (selection.grid.empty()) {
    const ModelShape model = commands::chosen_model(options.stack, selection, target.cluster).model;
    require_runs(model.shape.layer, options, target);
    return {{name_of(model), model}};
  }
  require<BadInput>(selection.layer_file.empty(), "--layer: found '{}' beside --grid, expected one of them",
                    selection.layer_file);
  Grid grid = find_grid(selection.grid);
  if (options.drawn > 0) grid.layers = commands::draw_layers(grid, options.drawn, options.seed);
  const auto is_named = [&](const GridLayer& layer) {
    return std::ranges::find(options.only, layer.name) != options.only.end();
  };
  for (const std::string& name : options.only)
    require<BadInput>(std::ranges::find(grid.layers, name, &GridLayer::name) != grid.layers.end(),
                      "--only: found '{}', expected a layer of {}", name, selection.grid);
  std::vector<LayerShape> shapes;
  for (const GridLayer& layer : grid.layers) shapes.push_back(layer.shape);
  const bool all = options.layers == 0 || options.drawn > 0 || !options.only.empty();
  std::vector<BenchedLayer> layers;
  for (const size_t i : commands::pick_layers(shapes, all ? static_cast<int>(shapes.size()) : options.layers))
    if (options.only.empty() || is_named(grid.layers[i]))
      layers.push_back(grid_layer(grid.layers[i], grid, options, target));
  return layers;
}

class Layerbench {
 public:
  Layerbench(const LayerbenchOptions& options, World* processes)
      : options_(options),
        target_(commands::target_of(options.selection.cluster, commands::ranks_of(options, processes))),
        jobs_(commands::layer_job_on(target_, options.selection, settings_of(options, target_))),
        layers_(benched_layers(options, target_)),
        writer_(target_.open_records(commands::records_path(options.out, "layerbench", target_.file_name()),
                                     options.invocation, files_read())) {
    commands::broadcast_finished_cases(target_, writer_);
  }

  const commands::Target& target() const { return target_; }

  LayerbenchResults run() {
    LayerbenchResults results{target_.cluster.name, target_.place(),     options_.selection.grid, writer_.path(),
                              target_.emulated,     options_.check_only, options_.tasks,          {}};
    const bool none_runs = std::ranges::all_of(layers_, [](const auto& layer) { return layer.refusal.has_value(); });
    jobs_.predicted_by =
        target_.measured || none_runs || options_.check_only || !options_.predict ? target_.cluster : measured();
    const bool several = layers_.size() > 1 && target_.is_leader();
    std::optional<Progress> progress;
    if (several) progress.emplace(fmt::format("running {} layers", layers_.size()));
    MeasuredWork work;
    for (const BenchedLayer& layer : layers_) work.open(kLayers) += work_of(layer);
    for (const BenchedLayer& layer : layers_) {
      const double begin_s = now_s(), amount = work_of(layer);
      results.outcomes.push_back(outcome_of(layer));
      if (amount > 0) work.record_done(kLayers, amount, now_s() - begin_s);
      if (several) progress->at(work.share());
    }
    if (several) progress->finish();
    writer_.end();
    return results;
  }

 private:
  bool grid_layer() const { return !options_.selection.grid.empty(); }

  // Returns the amount of work to run the layer, for the progress estimate; 0 if it is refused or its records exist.
  double work_of(const BenchedLayer& layer) const {
    return layer.refusal || known(layer) ? 0 : measure::reference_flops(layer.model.shape);
  }

  std::optional<commands::LayerOutcome> known(const BenchedLayer& layer) const {
    const bool runs_anew = options_.profile || !options_.dump.empty() || !options_.trace.file.empty();
    return grid_layer() && !runs_anew ? commands::recorded_outcome(job_of(layer), writer_) : std::nullopt;
  }

  std::vector<std::string> files_read() const {
    const commands::Selection& selection = options_.selection;
    std::vector<std::string> files;
    if (!selection.grid.empty()) files = files_of(find_grid(selection.grid));
    if (!selection.layer_file.empty()) files.push_back(find_config("layers", selection.layer_file));
    files.push_back(workload_of(options_).file());
    files.push_back(options_.plan);
    return files;
  }

  Profile measured() {
    commands::OpRequest request;
    request.settings.repetitions = options_.iterations.value_or(measure::kPasses);
    request.settings.timeout_s = options_.timeout_s;
    std::vector<commands::LayerJob> jobs;
    for (const BenchedLayer& layer : layers_)
      if (!layer.refusal) jobs.push_back(job_of(layer));
    const LayerCase& first = jobs.empty() ? layers_.front().model.shape : jobs.front().shape();
    request.sizes = measure::sizes_for(first.layer.dtype, target_.ranks.device);
    return commands::measured_profile(target_, writer_, request, jobs);
  }

  static measure::LayerBenchSettings settings_of(const LayerbenchOptions& options, const commands::Target& target) {
    return {.iterations = options.iterations.value_or(measure::kPasses),
            .fill_s = options.iterations || target.emulated ? 0 : measure::kTimedS,
            .seed = options.seed,
            .timeout_s = options.timeout_s,
            .check_only = options.check_only,
            .graphs = graphs_of(options, target),
            .profile = profile_of(options),
            .workload = workload_of(options),
            .injected = injected_slowdown_of(options, target)};
  }

  commands::LayerJob job_of(const BenchedLayer& layer) const {
    commands::LayerJob job = jobs_;
    job.name = layer.name;
    job.model = layer.model;
    job.model.step.planned = true;
    job.plan = layer.plan;
    if (layer.plan) job.schedules = {&find_schedule(layer.plan->schedule)};
    job.predicted = options_.predict;
    const std::string folder = grid_layer() ? options_.dump + "/" + layer.name : options_.dump;
    job.settings.inspect = commands::inspection_of(options_.dump.empty() ? "" : folder, options_.record_routing);
    return job;
  }

  commands::LayerOutcome outcome_of(const BenchedLayer& layer) {
    if (auto outcome = known(layer)) return *std::move(outcome);
    commands::LayerOutcome outcome = run(layer, job_of(layer));
    append(outcome, writer_);
    if (target_.is_leader() && !options_.trace.file.empty() && !traced_ && was_timed(outcome)) {
      commands::write_layer_trace(outcome, options_.trace);
      traced_ = true;
    }
    return outcome;
  }

  // A single layer that cannot run is an error; in a grid it becomes a row with a reason.
  commands::LayerOutcome run(const BenchedLayer& layer, const commands::LayerJob& job) const {
    // The record of a stack has no shape: its name describes the layers, and its command line gives their number.
    const bool one = !layer.refusal && layer.model.layers == 1 && layer.model.micro_batches == 1;
    const std::string& cluster = target_.cluster.name;
    Fields parameters{{"cluster", cluster}, {"layer", job.name}};
    if (one) parameters = commands::parameters_of(job.shape(), cluster, job.name, job.degrees);
    // The plan in a file may differ from what the schedule named there makes, so its records have the plan's digest.
    if (layer.plan) parameters.set("plan", digest_of(*layer.plan));
    parameters.set("workload", options_.workload);
    if (!grid_layer()) return commands::run_layer_job(job, parameters);
    if (layer.refusal)
      return commands::failed_layer_job(job, parameters, CaseStatus::unsupported, layer.refusal->text());
    return commands::run_or_record_failure(job, parameters);
  }

  const LayerbenchOptions& options_;
  commands::Target target_;
  commands::LayerJob jobs_;  // fields that the jobs of all layers share
  std::vector<BenchedLayer> layers_;
  RecordWriter writer_;
  bool traced_ = false;
};

}  // namespace

int run_layerbench(const LayerbenchOptions& options, World* processes) {
  if (options.serve.serve) return run_serve(options, processes);
  Layerbench bench(options, processes);
  const LayerbenchResults results = bench.run();
  if (bench.target().is_leader()) fmt::print("{}\n", options.json ? json_of(results) : text_of(results));
  for (const commands::LayerOutcome& outcome : results.outcomes)
    commands::require_correct_outcome(outcome, options.selection.grid.empty());
  return kOk;
}

}  // namespace moe::layerbench
