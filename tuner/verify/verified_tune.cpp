#include "tuner/verify/verified_tune.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "moe/base/progress.h"
#include "moe/measure/op_records.h"
#include "tuner/fit_report.h"
#include "tuner/tune.h"
#include "tuner/verify/pick_layers.h"
#include "tuner/verify/verified_report.h"

namespace moe {
namespace {

constexpr int kRepetitions = 5;
constexpr std::array<std::string_view, 3> kVerifiedByDefault{"ds-moe", "tutel", "fsmoe"};
constexpr double kGuessedOps_s = 12, kGuessedLayer_s = 5;

class VerifiedTune {
 public:
  explicit VerifiedTune(const TuneOptions& options)
      : options_(options), found_(begin(options)), writer_(found_.records_path, options.argv, digest()) {}

  int run() {
    if (writer_.resumed())
      fmt::print(stderr, "moetune: {}: the last run was broken off; {} cases are done\n", found_.records_path,
                 writer_.done());
    measure_and_fit();
    found_.rows = sweep({found_.fitted.profile,
                         found_.grid,
                         found_.schedules,
                         options_.selection.degrees,
                         {options_.selection.nearest}});
    append_rows(writer_, found_.rows, found_.schedules, found_.cluster.name);
    verify_layers();
    writer_.end();
    fmt::print("{}\n", options_.json ? json_of(found_).dump(1) : text_of(found_));
    for (const LayerOutcome& outcome : found_.outcomes)
      for (const CaseRecord& record : outcome.records)
        require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
    return 0;
  }

 private:
  static VerifiedResults begin(const TuneOptions& options) {
    VerifiedResults found;
    found.cluster = running_cluster(options.selection.cluster);
    found.emulated = !is_host(found.cluster);
    found.grid = grid_of(options.selection, found.cluster.name);
    found.schedules = found.verified = chosen_schedules(options.selection);
    if (options.selection.schedules.empty())  // all are swept; running all would take minutes
      std::erase_if(found.verified, [](const Schedule* s) {
        return std::ranges::find(kVerifiedByDefault, s->name) == kVerifiedByDefault.end();
      });
    found.records_path = records_path(options.out, "tune", found.cluster.name);
    return found;
  }

  std::string digest() const {
    std::string text = fmt::format("tune {} {} {} {} {}", found_.cluster.name, found_.grid.name,
                                   options_.verified_layers, options_.iterations, options_.seed);
    for (const Schedule* schedule : found_.verified) text += fmt::format(" {}", schedule->name);
    const auto& d = options_.selection.degrees;
    return digest_of(text + fmt::format(" {} {} {}", d.forward, d.backward, options_.selection.nearest));
  }

  std::string beside_records(const std::string& ending) const {
    const size_t dot = found_.records_path.rfind(".jsonl");
    return (dot == std::string::npos ? found_.records_path : found_.records_path.substr(0, dot)) + ending;
  }

  void measure_and_fit() {
    Progress progress(fmt::format("1/2 measuring {}{}", found_.cluster.name, found_.emulated ? " (emulated)" : ""),
                      kGuessedOps_s);
    found_.fitted = moe::measure_and_fit(found_.cluster, writer_, kRepetitions, options_.timeout_s,
                                         [&](double share) { progress.at(share); });
    progress.done();
    found_.profile_path = beside_records(".toml");
    save_profile(found_.fitted.profile, found_.profile_path);
  }

  LayerJob job_of(const SweepRow& row) const {
    LayerJob job;
    job.name = row.layer;
    job.shape = row.shape;
    job.shape.rounding = Rounding::ragged;
    job.predicted_by = found_.fitted.profile;
    if (found_.emulated) job.paced_by = found_.cluster;
    job.schedules = found_.verified;
    job.degrees = options_.selection.degrees;
    job.pricing = {options_.selection.nearest};
    job.settings = {found_.emulated, options_.iterations, options_.seed, options_.timeout_s, false};
    return job;
  }

  // What an earlier, broken-off run measured of this layer; nothing unless it has every schedule.
  LayerOutcome known(const std::string& layer) const {
    LayerOutcome outcome;
    outcome.layer = layer;
    for (const Schedule* schedule : found_.verified)
      if (const CaseRecord* record = writer_.find(run_key(layer, schedule->name))) outcome.records.push_back(*record);
    if (outcome.records.size() != found_.verified.size()) outcome.records.clear();
    return outcome;
  }

  void verify_layers() {
    const auto picked = pick_layers(found_.rows, options_.verified_layers);
    Progress progress(fmt::format("2/2 running {} layers under {} schedules", picked.size(), found_.verified.size()),
                      kGuessedLayer_s * static_cast<double>(picked.size()));
    for (size_t i = 0; i < picked.size(); ++i) {
      progress.at(static_cast<double>(i) / static_cast<double>(picked.size()));
      LayerOutcome outcome = known(picked[i]->layer);
      if (outcome.records.empty()) {
        const LayerJob job = job_of(*picked[i]);
        outcome = run_layer_job(job, parameters_of(job.shape, found_.cluster.name, job.name));
        for (const CaseRecord& record : outcome.records)
          if (writer_.find(record.key) == nullptr) writer_.append(record);
        if (found_.trace_path.empty()) write_trace(outcome);
      }
      found_.outcomes.push_back(std::move(outcome));
    }
    progress.done();
  }

  void write_trace(const LayerOutcome& outcome) {
    found_.trace_path = options_.trace.empty() ? beside_records(".trace.json") : options_.trace;
    write_layer_trace(outcome, found_.trace_path);
  }

  const TuneOptions& options_;
  VerifiedResults found_;
  RecordWriter writer_;
};

}  // namespace

int run_verified_tune(const TuneOptions& options) { return VerifiedTune(options).run(); }

}  // namespace moe
