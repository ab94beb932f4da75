// The verb `tune` of a grid: measures, fits, plans and verifies by real runs.
#include <algorithm>
#include <array>
#include <numeric>

#include "commands/shared/pick_layers.h"
#include "commands/shared/run/layer_run.h"
#include "commands/shared/run/task_records.h"
#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/device/stream.h"
#include "moe/layer/layer_device.h"
#include "tuner/tune.h"
#include "tuner/verify/measuring.h"
#include "tuner/verify/verified_answer.h"
#include "tuner/verify/verified_report.h"

namespace moe::tuner {
namespace {

constexpr std::array<std::string_view, 3> kVerifiedByDefault{"ds-moe", "tutel", "fsmoe"};
constexpr std::array<std::string_view, 4> kWholeGridByDefault{"tutel", "tutel-improved", "fsmoe-no-iio", "fsmoe"};
constexpr std::array kTriedDegrees{1, 2, 4, 8};  // FSMoE's published optimiser rounds to these
constexpr int kWholeGridPasses = 3;
constexpr double kMaxReferenceFlops = 5e9;  // FLOPs of a layer; a larger layer's plan is checked on a smaller layer
constexpr double kGuessedOpsS = 15;         // seconds to measure an emulated cluster's ops, before any is measured
constexpr const char* kLayers = "layers";   // name of the layers' work in the progress estimate
constexpr size_t kEstimateAll = 200, kEstimateEvery = 17;  // layers; a prime step reaches all of a grid's values

class VerifiedTune {
 public:
  VerifiedTune(const TuneOptions& options, World* processes)
      : options_(options),
        target_(commands::target_of(options.selection.cluster, commands::ranks_of(options, processes))),
        found_(begin(options, target_)),
        jobs_(jobs()),
        writer_(target_.open_records(found_.records_path, options.invocation, files_of(found_.grid))) {
    commands::broadcast_finished_cases(target_, writer_);
  }

  int run() {
    if (writer_.resumed() && target_.is_leader())
      log_info(fmt::format("{}: resuming the interrupted run; {} cases are done", found_.records_path, writer_.done()));
    if (found_.whole_grid) print_estimate();
    const double begin_s = now_s();
    measure_and_fit();
    const measure::CoreTimes cores = *target_.ranks.cores;
    const double measured_s = now_s();
    found_.rows = swept_by(found_.fitted.profile);
    found_.measuring_s = measured_s - begin_s;
    found_.planning_s = now_s() - measured_s;
    print(fmt::format("measuring took {:.1f} s, planning {} layers {:.1f} s", found_.measuring_s, found_.rows.size(),
                      found_.planning_s));
    if (!found_.whole_grid)
      commands::append_rows(writer_, found_.rows, found_.schedules, found_.cluster.name, options_.selection.degrees);
    run_layers();
    found_.prices_slowdown = cores.ratio_to(*target_.ranks.cores);
    const RunFigures figures = figures_of(found_.outcomes);
    append_answer(figures);
    writer_.end();
    if (target_.is_leader()) {
      fmt::print("{}\n", options_.json ? document_text(json_of(found_, figures)) : text_of(found_, figures));
      if (figures.is_doubtful()) log_warning(doubt_text(figures));
    }
    for (const CaseRecord* record : runs_of(found_.outcomes)) require_right(*record);
    return options_.strict && (figures.is_doubtful() || commands::priced_by_weak_rows(found_.rows)) ? kDoubtful : kOk;
  }

 private:
  void append_answer(const RunFigures& figures) {
    CaseRecord answer = answer_record(found_.grid.name, found_.cluster.name, {part_of(found_, figures)});
    answer.emulated = found_.emulated;
    writer_.append_new(answer);
  }

  static VerifiedResults begin(const TuneOptions& options, const commands::Target& target) {
    VerifiedResults found;
    found.cluster = target.cluster;
    found.emulated = target.emulated;
    found.place = target.place();
    found.grid = commands::grid_of(options.selection, grid_key(target));
    for (const GridLayer& layer : found.grid.layers)
      require<BadInput>(target.emulated || supports_dtype(target.ranks.device, layer.shape.dtype),
                        "grid {}: layers of {} only run on GPUs, expected --device cuda, or --no-verify to plan only",
                        found.grid.name, name_of(layer.shape.dtype));
    found.whole_grid = !options.measured_layers;
    require<BadInput>(found.whole_grid || !options.measure_degrees,
                      "--measure-degrees: found it without --measure all, expected both");
    found.degrees = options.selection.degrees;
    found.schedules = found.verified =
        commands::chosen_schedules(options.selection, schedules(), commands::kAllSchedules);
    for (const Schedule* const schedule : found.schedules) check_one_layer(*schedule);
    const auto keep = [&](const auto& names) {
      std::erase_if(found.verified,
                    [&](const Schedule* s) { return std::ranges::find(names, s->name) == names.end(); });
    };
    if (options.selection.schedules.empty() && found.whole_grid) keep(kWholeGridByDefault);
    if (options.selection.schedules.empty() && !found.whole_grid) keep(kVerifiedByDefault);
    found.records_path = commands::records_path(options.out, "tune", target.file_name());
    return found;
  }

  // Returns the key of the target's grid: processes have one for each backend, threads that of the host.
  static std::string grid_key(const commands::Target& target) {
    if (target.emulated) return target.cluster.name;
    if (target.ranks.device == DeviceKind::cuda) return fmt::format("{}-cuda", commands::kHostCluster);
    return target.ranks.processes ? std::string(target.backend()) : std::string(commands::kHostCluster);
  }

  int iterations() const {
    return options_.iterations.value_or(found_.whole_grid ? kWholeGridPasses : measure::kPasses);
  }

  void measure_and_fit() {
    MeasuredTarget measured = measured_target(
        target_, writer_, grid_jobs(),
        {found_.grid.layers.front().shape.dtype, options_.timeout_s, sibling_path(found_.records_path, ".toml")});
    found_.fitted = std::move(measured.fitted);
    found_.profile_path = std::move(measured.profile_path);
  }

  // Returns jobs for the grid's layers whose groups suit this cluster.
  std::vector<commands::LayerJob> grid_jobs() const {
    std::vector<commands::LayerJob> jobs;
    for (const GridLayer& layer : found_.grid.layers) try {
        commands::SweepRow row;
        row.layer = layer.name;
        row.shape = commands::shaped(layer, found_.grid, found_.cluster);
        jobs.push_back(job_of(row, found_.cluster));
      } catch (const BadInput&) {  // the layer gets a row with the reason later
      }
    return jobs;
  }

  // Returns the fields that the jobs of all layers share.
  commands::LayerJob jobs() const {
    commands::LayerJob job =
        commands::layer_job_on(target_, options_.selection,
                               {.iterations = iterations(), .seed = options_.seed, .timeout_s = options_.timeout_s});
    job.schedules = found_.verified;
    if (!target_.emulated) {
      job.settings.max_timed_s = measure::kMaxTimedS;
      job.settings.max_reference_flops = kMaxReferenceFlops;
    }
    if (!options_.measure_degrees) return job;
    job.tried = &find_schedule("fsmoe");
    job.tried_degrees.assign(kTriedDegrees.begin(), kTriedDegrees.end());
    return job;
  }

  commands::LayerJob job_of(const commands::SweepRow& row, const Profile& predicted_by) const {
    commands::LayerJob job = jobs_;
    job.name = row.layer;
    job.model.shape = row.shape;
    if (row.shape.rounding != Rounding::lcm) job.model.shape.rounding = Rounding::ragged;
    job.predicted_by = predicted_by;
    return job;
  }

  std::vector<commands::SweepRow> swept_by(const Profile& profile) const {
    const auto& selection = options_.selection;
    return commands::sweep(
        {profile, found_.grid, found_.schedules, selection.degrees, commands::pricing_of(selection)});
  }

  void print(const std::string& text) const {
    if (target_.is_leader()) log_decision(text);
  }

  // Prints how long the run will take. For a machine's own unpaced threads there is no estimate yet.
  void print_estimate() const {
    if (!found_.emulated) return;
    std::vector<const commands::SweepRow*> open;
    const std::vector<commands::SweepRow> rows = swept_by(found_.cluster);
    for (const commands::SweepRow& row : rows)
      if (row.is_planned() && !commands::recorded_outcome(job_of(row, found_.cluster), writer_)) open.push_back(&row);
    double seconds = 0;
    size_t estimated = 0;
    const size_t step = open.size() > kEstimateAll ? kEstimateEvery : 1;
    for (size_t i = 0; i < open.size(); i += step, ++estimated)
      seconds += commands::estimated_seconds(job_of(*open[i], found_.cluster));
    if (estimated > 0) seconds *= static_cast<double>(open.size()) / static_cast<double>(estimated);
    log_info(fmt::format("{} layers to run, {} schedules, {} passes each: about {}", open.size(),
                         found_.verified.size(), iterations(), human_seconds(kGuessedOpsS + seconds)));
  }

  // Returns the predicted seconds of one pass of every schedule to run; 0 if none was planned.
  double predicted_seconds(const commands::SweepRow& row) const {
    double seconds = 0;
    for (const Schedule* schedule : found_.verified)
      if (const LayerResult* result = row.find(schedule->name)) seconds += result->total_s();
    return seconds;
  }

  // Returns whether the layer still has to run, because an earlier, interrupted run left no records of it.
  bool is_open(const commands::SweepRow& row) const {
    return row.is_planned() && !commands::recorded_outcome(job_of(row, found_.fitted.profile), writer_);
  }

  // Returns a layer's outcome, from this run or from an earlier one that was interrupted.
  commands::LayerOutcome outcome_of(const commands::SweepRow& row) {
    commands::LayerJob job = job_of(row, found_.fitted.profile);
    if (!found_.emulated && !options_.iterations)
      job.settings.iterations = measure::passes_within(measure::kTimedS, predicted_seconds(row));
    if (row.is_planned())
      if (auto known = commands::recorded_outcome(job, writer_)) {
        print(fmt::format("{}: its records exist from the interrupted run", job.name));
        return *std::move(known);
      }
    const Fields parameters = commands::parameters_of(job.shape(), found_.cluster.name, job.name, job.degrees);
    commands::LayerOutcome outcome =
        row.is_planned() ? commands::run_or_record_failure(job, parameters)
                         : commands::failed_layer_job(job, parameters, CaseStatus::unsupported, row.refusal->text());
    append(outcome, writer_);
    if (found_.trace_path.empty() && was_timed(outcome)) write_trace(outcome);
    for (commands::ScheduleRun& run : outcome.runs)
      run = {std::move(run.record)};  // keeps only the record, because the plans of hundreds of layers are large
    const RunTime took = run_time({outcome});
    print(fmt::format("{}: verifying took {:.1f} s, passes {:.1f} s, of which {} were repeated", job.name,
                      took.proving_s, took.unpaced_s + took.timed_s, took.repeats));
    return outcome;
  }

  // Returns all rows, or some of those that were planned.
  std::vector<const commands::SweepRow*> chosen_rows() const {
    std::vector<const commands::SweepRow*> rows, picked;
    std::vector<LayerShape> layers;
    for (const commands::SweepRow& row : found_.rows)
      if (found_.whole_grid || row.is_planned()) rows.push_back(&row), layers.push_back(row.shape.layer);
    if (found_.whole_grid) return rows;
    for (const size_t layer : commands::pick_layers(layers, *options_.measured_layers)) picked.push_back(rows[layer]);
    return picked;
  }

  void run_layers() {
    const std::vector<const commands::SweepRow*> chosen = chosen_rows();
    std::optional<Progress> progress;
    if (target_.is_leader())
      progress.emplace(fmt::format("2/2 running {} layers under {} schedules", chosen.size(), found_.verified.size()));
    std::vector<double> amounts;
    for (const commands::SweepRow* row : chosen) amounts.push_back(is_open(*row) ? predicted_seconds(*row) : 0);
    MeasuredWork work;
    work.open(kLayers) = std::reduce(amounts.begin(), amounts.end());
    for (size_t i = 0; i < chosen.size(); ++i) {
      const double begin_s = now_s();
      found_.outcomes.push_back(outcome_of(*chosen[i]));
      if (amounts[i] > 0) work.record_done(kLayers, amounts[i], now_s() - begin_s);
      if (progress) progress->at(work.share());
    }
    if (progress) progress->finish();
  }

  void write_trace(const commands::LayerOutcome& outcome) {
    commands::TraceFlags trace = options_.trace;
    if (trace.file.empty()) trace.file = sibling_path(found_.records_path, ".trace.json");
    found_.trace_path = trace.file;
    if (target_.is_leader()) commands::write_layer_trace(outcome, trace);
  }

  const TuneOptions& options_;
  commands::Target target_;
  VerifiedResults found_;
  commands::LayerJob jobs_;  // fields that the jobs of all layers share
  RecordWriter writer_;
};

}  // namespace

int run_tune(const TuneOptions& options, World* processes) {
  return names_one_model(options) ? run_verified_answer(options, processes) : VerifiedTune(options, processes).run();
}

}  // namespace moe::tuner
