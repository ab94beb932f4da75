#include "tuner/verify/verified_answer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

#include "commands/shared/frameworks.h"
#include "commands/shared/run/layer_run.h"
#include "commands/shared/run/target.h"
#include "commands/shared/run/task_records.h"
#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/log.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/layers/proxy.h"
#include "moe/plan/memory.h"
#include "tuner/answer/current.h"
#include "tuner/answer/planned_answer.h"
#include "tuner/verify/measuring.h"

namespace moe::tuner {
namespace {

constexpr size_t kBestSchedules = 2;  // number of the ranking's best schedules to run
constexpr double kMaxRunS = 40;       // largest time of all runs together; a slower model runs fewer layers
constexpr int kOtherPasses = 3;       // untimed passes of a run
constexpr double kMemoryShare = 0.5;  // share of the free memory that the ranks on this machine may use

class VerifiedAnswer {
 public:
  VerifiedAnswer(const TuneOptions& options, World* processes)
      : options_(options),
        target_(commands::target_of(options.selection.cluster, commands::ranks_of(options, processes))),
        free_bytes_(free_bytes_of(target_)),
        subject_(subject_on(options, target_)),
        writer_(target_.open_records(commands::records_path(options.out, "tune", target_.file_name()),
                                     options.invocation, subject_.files)) {
    commands::broadcast_finished_cases(target_, writer_);
    require_runs();
  }

  int run() {
    const MeasuredTarget measured = measured_target(target_, writer_, {job_of(model().shape.parallel.pp)},
                                                    {layer().dtype, options_.timeout_s, output_path(".toml")});
    const measure::CoreTimes cores = *target_.ranks.cores;
    Answer answer{.cluster = target_.cluster.name,
                  .place = place(),
                  .chosen = &subject_.chosen,
                  .name = subject_.name,
                  .defaults = subject_.defaults,
                  .shapes = subject_.shapes ? &*subject_.shapes : nullptr,
                  .profile = &measured.fitted.profile,
                  .fitted = measured.fitted.rows.empty() ? nullptr : &measured.fitted,
                  .emulated = target_.emulated,
                  .own = subject_.own ? &*subject_.own : nullptr,
                  .records_path = writer_.path(),
                  .profile_path = measured.profile_path};
    plan_answer(subject_.options, answer);
    append_ranking(writer_, answer, options_.selection.degrees);
    run_trials(answer);
    answer.prices_slowdown = cores.ratio_to(*target_.ranks.cores);
    answer.neighbours = neighbours_of(options_, answer);  // runs may change the recommendation
    if (answer.own != nullptr) answer.walk = layout_walk_of(options_, answer);
    const bool model = !subject_.chosen.name.empty();
    const std::string launched = target_.ranks.processes ? fmt::format("launch --ranks {} -- ", ranks()) : "";
    answer.next = program_command() + " " + launched +
                  command_of(model ? "modelbench" : "layerbench", options_, answer) +
                  (recommended(answer).schedule->name == commands::kBaselines.front() ? "" : ",tutel") +
                  (model ? " --steps 20" : " --tasks");
    append_answer(writer_, answer);
    writer_.end();
    if (!target_.is_leader()) return kOk;
    fmt::print("{}", options_.json ? document_text(json_of(answer)) + '\n' : text_of(answer));
    if (const std::string far = large_error_text(answer); !far.empty()) log_warning(far);
    for (const Trial& trial : answer.trials) require_right(trial.record);
    return options_.strict && is_doubtful(answer) ? kDoubtful : kOk;
  }

 private:
  static Subject subject_on(const TuneOptions& options, const commands::Target& target) {
    const std::string_view flag = options.any_shape ? "--shape" : "--global-batch";
    require<BadInput>(!options.searches() || target.measured,
                      "{}: found {}, which has not been measured yet, expected a profile, such as the one that "
                      "tune --cluster {} writes",
                      flag, target.cluster.name, target.cluster.name);
    require<BadInput>(!options.searches() || target.ranks.processes == nullptr,
                      "{}: found ranks that are processes, whose searches could end differently, expected given "
                      "groups and micro-batches, such as those that tune --no-verify {} finds",
                      flag, options.any_shape ? "--shape auto" : "--global-batch");
    return subject_of(options, target.cluster);
  }

  const LayerShape& layer() const { return subject_.chosen.model.shape.layer; }
  const ModelShape& model() const { return subject_.chosen.model; }
  std::string output_path(const std::string& ending) const { return sibling_path(writer_.path(), ending); }

  std::string place() const {
    const Profile& c = target_.cluster;
    return fmt::format("{}: {} x {} ranks, {}", target_.place(), counted(c.nodes, "node"), c.ranks_per_node,
                       target_.emulated ? "emulated by " + measure::proxy_ranks() : c.source);
  }

  // Throws, before any measurement, if nothing can run. An emulated cluster runs a proxy, so plans are enough.
  void require_runs() const {
    if (target_.emulated)  // its fit cannot have prices that its profile lacks
      return require_any_plan(options_, {.chosen = &subject_.chosen, .profile = &target_.cluster});
    if (target_.ranks.device == DeviceKind::cpu) cpu_layer_device().require_runs(layer());
    const bool scores = stores_attention_scores(target_.ranks.device, target_.ranks.attention);
    const double needed = layer_memory(model().shape, Flow::sharded, scores).total() * ranks_here();
    require<BadInput>(needed < free_bytes_,
                      "one layer needs {} on the {} ranks of this machine, found {} free; expected a smaller one, or "
                      "--no-verify with a profile to plan only",
                      human_bytes(needed), ranks_here(), human_bytes(free_bytes_));
  }

  int ranks() const { return target_.cluster.nodes * target_.cluster.ranks_per_node; }
  double ranks_here() const { return static_cast<double>(commands::ranks_sharing_memory(target_.ranks, ranks())); }

  // Returns the bytes of memory that runs may use; infinity for ranks on GPUs, whose memory is not checked here.
  static double free_bytes_of(const commands::Target& target) {
    if (target.ranks.device != DeviceKind::cpu) return std::numeric_limits<double>::infinity();
    return kMemoryShare * commands::free_bytes(target.ranks);
  }

  commands::LayerJob job_of(int layers) const {
    commands::LayerJob job = commands::layer_job_on(target_, options_.selection,
                                                    {.iterations = options_.iterations.value_or(measure::kPasses),
                                                     .seed = options_.seed,
                                                     .timeout_s = options_.timeout_s});
    job.name = subject_.name;
    job.model = first_layers(model(), layers);
    job.model.step = {.planned = true};
    add_end_tasks(job.model, 0);  // only the layers run
    Rounding& rounding = job.model.shape.rounding;
    if (rounding == Rounding::exact)
      rounding = Rounding::ragged;  // exact rounding gives fractional rows, which cannot run
    job.pricing = pricing_of(options_);
    job.predicted_by = target_.cluster;
    return job;
  }

  // Returns the schedules to run: the best ones of the ranking with different times and the baselines, or all.
  std::vector<const Schedule*> schedules_to_run(const Answer& answer) const {
    std::vector<const Schedule*> chosen;
    double last_s = 0;
    size_t best = 0;
    for (const RankedSchedule& row : answer.ranking) {
      if (row.refusal) continue;
      const bool another = !is_equally_fast(row.total_s(), last_s) && best < kBestSchedules;
      const bool baseline = commands::is_baseline(row.schedule->name);
      if (another) ++best, last_s = row.total_s();
      if (another || baseline || options_.run_all) chosen.push_back(row.schedule);
    }
    return chosen;
  }

  // Returns how many layers of the model run: all, or as many as time and memory allow. At least one of them has
  // experts.
  int layers_to_run(const commands::LayerJob& whole) const {
    const int chunks = model().split().chunks();
    const bool offloads = model().shape.parallel.offload != Offload::none;  // offloading needs at least two layers
    const int least = offloads ? std::min(std::max(chunks, 2), model().layers) : chunks;
    const auto half = [&](int layers) {  // all chunks of virtual stages have equally many layers
      return std::max(least, chunks > model().shape.parallel.pp ? layers / 2 / chunks * chunks : layers / 2);
    };
    commands::LayerJob job = whole;
    for (; job.model.layers > least; job.model = first_layers(job.model, half(job.model.layers))) {
      const ModelShape cut = first_layers(model(), job.model.layers);
      MemoryRequest run = memory_request(cut, cut.shape, Flow::sharded);
      run.scores = stores_attention_scores(target_.ranks.device, target_.ranks.attention);
      run.keeps_ends = true;
      const double bytes = target_.emulated ? 0 : estimate_memory(run).total() * ranks_here();
      if (seconds_of(job) < kMaxRunS && bytes < free_bytes_) break;
      const int fewer = half(job.model.layers);
      if (model().dense.count(0, fewer) == fewer) break;
    }
    return job.model.layers;
  }

  double seconds_of(const commands::LayerJob& job) const {
    if (target_.emulated) return commands::estimated_seconds(job);
    return pass_s(job) * (job.settings.iterations + kOtherPasses);
  }

  // Returns the predicted seconds of one pass of all schedules together.
  static double pass_s(const commands::LayerJob& job) {
    double seconds = 0;
    for (const Schedule* schedule : job.schedules) {
      const commands::PlannedSchedule planned = commands::plan_schedule(job, *schedule);
      seconds += planned.run.forward_s + planned.run.backward_s;
    }
    return seconds;
  }

  void run_trials(Answer& answer) {
    commands::LayerJob job = job_of(model().layers);
    job.predicted_by = *answer.profile;
    job.schedules = schedules_to_run(answer);
    if (job.schedules.empty()) return;
    job.model = first_layers(job.model, layers_to_run(job));
    answer.trial_layers = job.model.layers;
    if (job.is_one_layer()) std::erase_if(job.schedules, [](const Schedule* s) { return s->orders_iterations(); });
    if (!target_.emulated && !options_.iterations)
      job.settings.iterations = measure::passes_within(measure::kTimedS, pass_s(job));
    std::optional<Progress> progress;
    if (target_.is_leader())
      progress.emplace(fmt::format("2/2 running {} schedules", job.schedules.size()), seconds_of(job));
    const commands::LayerOutcome outcome = outcome_of(job);
    for (const commands::ScheduleRun& run : outcome.runs) answer.trials.push_back({run.record});
    if (answer.current && answer.current->is_usable()) try_current(job, *answer.current, answer);
    if (progress) progress->finish();
    if (target_.is_leader() && was_timed(outcome)) {
      commands::TraceFlags trace = options_.trace;
      if (trace.file.empty()) trace.file = output_path(".trace.json");
      answer.trace_path = trace.file;
      commands::write_layer_trace(outcome, trace);
    }
  }

  void try_current(commands::LayerJob job, const RankedSchedule& current, Answer& answer) {
    job.name += " (yours)";
    job.schedules = {current.schedule};
    job.degrees = answer.own->degrees;
    for (const commands::ScheduleRun& run : outcome_of(job).runs) answer.trials.push_back({run.record, true});
  }

  commands::LayerOutcome outcome_of(const commands::LayerJob& job) {
    if (auto known = commands::recorded_outcome(job, writer_)) return *std::move(known);
    Fields parameters = commands::parameters_of(job.model, target_.cluster.name, job.name, job.degrees);
    commands::record_embedding_and_head(parameters, subject_.chosen);
    commands::LayerOutcome outcome = commands::run_or_record_failure(job, parameters);
    append(outcome, writer_);
    return outcome;
  }

  const TuneOptions& options_;
  commands::Target target_;
  double free_bytes_ = 0;
  Subject subject_;
  RecordWriter writer_;
};

}  // namespace

int run_verified_answer(const TuneOptions& options, World* processes) {
  return VerifiedAnswer(options, processes).run();
}

}  // namespace moe::tuner
