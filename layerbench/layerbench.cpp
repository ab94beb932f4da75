#include "layerbench/layerbench.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "layerbench/report.h"
#include "moe/base/config_files.h"
#include "moe/base/progress.h"
#include "moe/cost/fit.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/op_records.h"
#include "moe/plan/grid.h"
#include "moe/record/writer.h"
#include "verbs/pick_layers.h"

namespace moe {
namespace {

constexpr double kGuessedLayer_s = 4;

struct BenchedLayer {
  std::string name;
  LayerCase shape;
  std::string refused;  // why it can't be shaped on this cluster; of a grid's layers alone
};

// Before anything is measured; what an emulated cluster runs is a proxy.
void require_runs(const LayerShape& layer, const Site& site) {
  if (!site.emulated && site.device == DeviceKind::cpu) cpu_layer_device().require_runs(layer);
}

// Grids that papers plan with the unrounded capacity are run with the ragged one.
BenchedLayer of_grid(const GridLayer& layer, const Grid& grid, const Selection& selection, const Site& site) {
  const Profile& cluster = site.cluster;
  LayerFile base;
  base.layer = layer.shape;
  base.parallel = layer.parallel.value_or(ParallelShape{});
  base.rounding = grid.rounding == Rounding::exact ? Rounding::ragged : grid.rounding;
  const bool own = layer.parallel.has_value();
  BenchedLayer benched{layer.name, {}, {}};
  try {
    benched.shape = chosen_case(selection, base, own ? layer.parallel->nodes : cluster.nodes,
                                own ? layer.parallel->ranks_per_node : cluster.ranks_per_node);
    require_runs(layer.shape, site);
  } catch (const BadInput& error) {
    benched.refused = error.what();
  }
  return benched;
}

std::vector<BenchedLayer> benched_layers(const LayerbenchOptions& options, const Site& site) {
  const Selection& selection = options.selection;
  if (selection.grid.empty()) {
    const LayerCase shape = chosen_case(selection, site.cluster.nodes, site.cluster.ranks_per_node);
    require_runs(shape.layer, site);
    return {{describe(shape.layer), shape, {}}};
  }
  require<BadInput>(selection.layer_file.empty(), "--layer: found '{}' beside --grid, expected one of them",
                    selection.layer_file);
  const Grid grid = find_grid(selection.grid);
  std::vector<LayerShape> shapes;
  for (const GridLayer& layer : grid.layers) shapes.push_back(layer.shape);
  std::vector<BenchedLayer> layers;
  for (const size_t i : pick_layers(shapes, options.layers > 0 ? options.layers : static_cast<int>(shapes.size())))
    layers.push_back(of_grid(grid.layers[i], grid, selection, site));
  return layers;
}

class Layerbench {
 public:
  Layerbench(const LayerbenchOptions& options, World* processes)
      : options_(options),
        site_(site_of(options.selection.cluster, processes, options.device)),
        schedules_(chosen_schedules(options.selection)),
        layers_(benched_layers(options, site_)),
        writer_(site_.open_records(
            options.out.empty() ? "results/layerbench-" + site_.cluster.name + ".jsonl" : options.out, options.asked,
            files_read())) {
    share_done(site_, writer_);
  }

  const Site& site() const { return site_; }

  LayerbenchResults run() {
    LayerbenchResults results{site_.cluster.name,
                              options_.selection.grid,
                              writer_.path(),
                              site_.emulated,
                              options_.check_only,
                              options_.tasks,
                              {}};
    const bool none_runs = std::ranges::none_of(layers_, &std::string::empty, &BenchedLayer::refused);
    predicted_by_ = site_.measured || none_runs || options_.check_only ? site_.cluster : measured();
    const bool several = layers_.size() > 1 && site_.leads();
    std::optional<Progress> progress;
    if (several) progress.emplace(fmt::format("running {} layers", layers_.size()), kGuessedLayer_s * layers());
    for (const BenchedLayer& layer : layers_) {
      if (several) progress->at(static_cast<double>(results.outcomes.size()) / layers());
      results.outcomes.push_back(outcome_of(layer));
    }
    if (several) progress->done();
    writer_.end();
    return results;
  }

 private:
  double layers() const { return static_cast<double>(layers_.size()); }
  bool of_grid() const { return !options_.selection.grid.empty(); }

  std::vector<std::string> files_read() const {
    const Selection& selection = options_.selection;
    std::vector<std::string> files;
    if (!selection.grid.empty()) files = files_of(find_grid(selection.grid));
    if (!selection.layer_file.empty()) files.push_back(find_config("layers", selection.layer_file));
    files.push_back(Workload(options_.workload).file());
    return files;
  }

  Profile measured() {
    std::optional<Progress> progress;
    if (site_.leads()) progress.emplace("measuring " + site_.cluster.name, 10);
    OpRequest request;
    request.settings.repetitions = options_.iterations;
    request.settings.timeout_s = options_.timeout_s;
    request.sizes = sizes_for(layers_.front().shape.layer.dtype, site_.device);
    const FittedProfile fitted = measure_and_fit(site_, writer_, request, [&](double share) { progress->at(share); });
    if (!progress) return fitted.profile;
    progress->done();
    for (const std::string& line : fit_warnings(fitted)) fmt::print(stderr, "moetune: warning: {}\n", line);
    return fitted.profile;
  }

  LayerJob job_of(const BenchedLayer& layer) const {
    LayerJob job;
    job.name = layer.name;
    job.shape = layer.shape;
    job.predicted_by = predicted_by_;
    if (site_.emulated) job.paced_by = site_.cluster;
    job.schedules = schedules_;
    job.degrees = options_.selection.degrees;
    job.pricing = {options_.selection.nearest};
    job.settings = {.emulated = site_.emulated,
                    .iterations = options_.iterations,
                    .seed = options_.seed,
                    .timeout_s = options_.timeout_s,
                    .check_only = options_.check_only,
                    .workload = Workload(options_.workload),
                    .device = site_.device,
                    .processes = site_.processes};
    if (!options_.dump.empty()) job.settings.dump = of_grid() ? options_.dump + "/" + layer.name : options_.dump;
    return job;
  }

  // What a run that was broken off measured already: of a grid's layer all or nothing.
  std::optional<LayerOutcome> known(const LayerJob& job) const {
    LayerOutcome outcome;
    outcome.layer = job.name;
    for (const Schedule* schedule : job.schedules) {
      const CaseRecord* record = writer_.find(run_key(job.name, schedule->name));
      if (record == nullptr) return std::nullopt;
      outcome.records.push_back(*record);
    }
    return outcome;
  }

  LayerOutcome outcome_of(const BenchedLayer& layer) {
    const LayerJob job = job_of(layer);
    const bool files = !options_.dump.empty() || !options_.trace.empty();
    if (of_grid() && !files)
      if (auto outcome = known(job)) return *outcome;
    LayerOutcome outcome = run(layer, job);
    for (const CaseRecord& record : outcome.records)
      if (writer_.find(record.key) == nullptr) writer_.append(record);
    if (site_.leads() && !options_.trace.empty() && !options_.check_only && !traced_ && !outcome.measured.empty()) {
      write_layer_trace(outcome, options_.trace);
      traced_ = true;
    }
    return outcome;
  }

  // Alone, a layer that can't be run is an error; in a grid, a row with a reason.
  LayerOutcome run(const BenchedLayer& layer, const LayerJob& job) const {
    const Fields parameters{{"cluster", site_.cluster.name}, {"layer", job.name}, {"workload", options_.workload}};
    if (!of_grid()) return run_layer_job(job, parameters);
    if (!layer.refused.empty()) return failed_layer_job(job, parameters, CaseStatus::unsupported, layer.refused);
    try {
      return run_layer_job(job, parameters);
    } catch (const BadInput& error) {
      return failed_layer_job(job, parameters, CaseStatus::unsupported, error.what());
    } catch (const RankFailure& error) {
      if (site_.processes) throw;  // they all end
      return failed_layer_job(job, parameters, CaseStatus::error, error.what());
    }
  }

  const LayerbenchOptions& options_;
  Site site_;
  Profile predicted_by_;
  std::vector<const Schedule*> schedules_;
  std::vector<BenchedLayer> layers_;
  RecordWriter writer_;
  bool traced_ = false;
};

}  // namespace

int run_layerbench(const LayerbenchOptions& options, World* processes) {
  std::error_code error;
  if (!options.dump.empty()) std::filesystem::create_directories(options.dump, error);
  require<BadInput>(!error, "--dump: cannot make {}: {}", options.dump, error.message());
  Layerbench bench(options, processes);
  const LayerbenchResults results = bench.run();
  if (bench.site().leads()) fmt::print("{}\n", options.json ? json_of(results) : text_of(results));
  for (const LayerOutcome& outcome : results.outcomes)
    for (const CaseRecord& record : outcome.records)
      require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
  return 0;
}

}  // namespace moe
