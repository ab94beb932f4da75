#include "tuner/verify/verified_tune.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "moe/base/progress.h"
#include "moe/base/table.h"
#include "moe/measure/layer_records.h"
#include "moe/measure/op_records.h"
#include "moe/measure/statistics.h"
#include "tuner/fit_report.h"
#include "tuner/printed.h"
#include "tuner/results_json.h"
#include "tuner/tune.h"
#include "tuner/verify/pick_layers.h"

namespace moe {
namespace {

constexpr int kRepetitions = 5;
constexpr double kGuessedOps_s = 12, kGuessedLayer_s = 5;
constexpr double kClearDifference = 0.03;  // predictions closer than this don't fix a ranking

double number(const CaseRecord& record, const Fields& fields, std::string_view name) {
  return fields.number(name, record.key);
}

class VerifiedTune {
 public:
  explicit VerifiedTune(const TuneOptions& options)
      : options_(options),
        cluster_(running_cluster(options.selection.cluster)),
        grid_(grid_of(options.selection, cluster_.name)),
        schedules_(chosen_schedules(options.selection)),
        path_(records_path(options.out, "tune", cluster_.name)),
        writer_(path_, options.argv, digest()) {}

  int run() {
    if (writer_.resumed())
      fmt::print(stderr, "moetune: {}: the last run was broken off; {} cases are done\n", path_, writer_.done());
    measure_and_fit();
    rows_ = sweep({fitted_.profile, grid_, schedules_, options_.selection.degrees, {options_.selection.nearest}});
    append_rows(writer_, rows_, schedules_, cluster_.name);
    verify_layers();
    writer_.end();
    if (options_.json)
      print_json();
    else
      print_text();
    return exit_code();
  }

 private:
  std::string digest() const {
    std::string text = fmt::format("tune {} {} {} {} {}", cluster_.name, grid_.name, options_.verified_layers,
                                   options_.iterations, options_.seed);
    for (const Schedule* schedule : schedules_) text += fmt::format(" {}", schedule->name);
    const auto& d = options_.selection.degrees;
    return digest_of(text + fmt::format(" {} {} {}", d.forward, d.backward, options_.selection.nearest));
  }

  std::string beside_records(const std::string& ending) const {
    const size_t dot = path_.rfind(".jsonl");
    return (dot == std::string::npos ? path_ : path_.substr(0, dot)) + ending;
  }

  bool emulated() const { return !is_host(cluster_); }

  void measure_and_fit() {
    Progress progress(fmt::format("1/3 measuring {}{}", cluster_.name, emulated() ? " (emulated)" : ""), kGuessedOps_s);
    const auto records =
        measure_ops(cluster_, writer_, kRepetitions, options_.timeout_s, [&](double share) { progress.at(share); });
    progress.done();
    for (const CaseRecord& record : records)
      require<WrongResult>(record.status != CaseStatus::wrong, "{}: {}", record.key, record.reason);
    fitted_ = fit_profile(records, cluster_.name + "-fitted", "fitted from " + path_);
    profile_path_ = beside_records(".toml");
    save_profile(fitted_.profile, profile_path_);
  }

  LayerJob job_of(const SweepRow& row) const {
    LayerJob job;
    job.name = row.layer;
    job.shape = row.shape;
    job.shape.rounding = Rounding::ragged;
    job.predicted_by = fitted_.profile;
    if (emulated()) job.paced_by = cluster_;
    job.schedules = schedules_;
    job.degrees = options_.selection.degrees;
    job.pricing = {options_.selection.nearest};
    job.settings = {emulated(), options_.iterations, options_.seed, options_.timeout_s, false};
    return job;
  }

  // What an earlier, broken-off run measured of this layer; nothing unless it has every schedule.
  LayerOutcome known(const std::string& layer) const {
    LayerOutcome outcome;
    outcome.layer = layer;
    for (const Schedule* schedule : schedules_)
      if (const CaseRecord* record = writer_.find(run_key(layer, schedule->name))) outcome.records.push_back(*record);
    if (outcome.records.size() != schedules_.size()) outcome.records.clear();
    return outcome;
  }

  void verify_layers() {
    const auto picked = pick_layers(rows_, options_.verified_layers);
    Progress progress(fmt::format("3/3 running {} layers under {} schedules", picked.size(), schedules_.size()),
                      kGuessedLayer_s * static_cast<double>(picked.size()));
    for (size_t i = 0; i < picked.size(); ++i) {
      progress.at(static_cast<double>(i) / static_cast<double>(picked.size()));
      LayerOutcome outcome = known(picked[i]->layer);
      if (outcome.records.empty()) {
        const LayerJob job = job_of(*picked[i]);
        outcome = run_layer_job(job, parameters_of(job.shape, cluster_.name, job.name));
        for (const CaseRecord& record : outcome.records)
          if (writer_.find(record.key) == nullptr) writer_.append(record);
        if (trace_path_.empty()) write_trace(outcome);
      }
      outcomes_.push_back(std::move(outcome));
    }
    progress.done();
  }

  void write_trace(const LayerOutcome& outcome) {
    trace_path_ = options_.trace.empty() ? beside_records(".trace.json") : options_.trace;
    write_layer_trace(outcome, trace_path_);
  }

  std::vector<const CaseRecord*> runs() const {
    std::vector<const CaseRecord*> all;
    for (const LayerOutcome& outcome : outcomes_)
      for (const CaseRecord& record : outcome.records) all.push_back(&record);
    return all;
  }

  // Mean over the verified layers of tutel's measured time over the schedule's; 0 where tutel did not run.
  double measured_speedup(std::string_view schedule) const {
    double sum = 0;
    int layers = 0;
    for (const LayerOutcome& outcome : outcomes_) {
      double tutel = 0, own = 0;
      for (const CaseRecord& record : outcome.records) {
        if (record.schedule == "tutel") tutel = number(record, record.summary, "total_s");
        if (record.schedule == schedule) own = number(record, record.summary, "total_s");
      }
      if (tutel > 0 && own > 0) sum += tutel / own, ++layers;
    }
    return layers > 0 ? sum / layers : 0;
  }

  struct Ranking {
    int pairs = 0, agree = 0;
  };
  Ranking ranking() const {
    Ranking r;
    for (const LayerOutcome& outcome : outcomes_)
      for (size_t a = 0; a < outcome.records.size(); ++a)
        for (size_t b = a + 1; b < outcome.records.size(); ++b) {
          const auto total = [&](size_t i, bool measured) {
            const CaseRecord& record = outcome.records[i];
            return number(record, measured ? record.summary : record.prediction, "total_s");
          };
          const double predicted = total(a, false) / total(b, false);
          if (std::abs(std::log(predicted)) <= std::log1p(kClearDifference)) continue;
          ++r.pairs;
          r.agree += (predicted < 1) == (total(a, true) < total(b, true));
        }
    return r;
  }

  std::vector<double> errors() const {
    std::vector<double> all;
    for (const CaseRecord* record : runs()) all.push_back(std::abs(measured_over_predicted(*record) - 1));
    return all;
  }

  double worst_overruns() const {
    double worst = 0;
    for (const CaseRecord* record : runs())
      if (record->summary.has("overrun_share"))
        worst = std::max(worst, number(*record, record->summary, "overrun_share"));
    return worst;
  }

  int exit_code() const {
    for (const CaseRecord* record : runs())
      if (record->status == CaseStatus::wrong) return 3;
    return 0;
  }

  std::string summary_table() const {
    Table table({"schedule", "simulated", "measured", "paper", "of the bound", "r_f", "r_b", "r_f != r_b"});
    const auto times = [](double speedup) { return speedup > 0 ? fmt::format("{:.3f}x", speedup) : "-"; };
    for (const ScheduleSummary& s : summarise(rows_, schedules_))
      table.add({std::string(s.schedule), times(s.speedup), times(measured_speedup(s.schedule)),
                 times(printed_speedup(grid_.name, s.schedule)), fmt::format("{:.1f} %", 100 * s.efficiency),
                 degree_range(s.degrees_forward), degree_range(s.degrees_backward), fmt::format("{}", s.apart)});
    return table.text();
  }

  std::string runs_table() const {
    Table table({"layer", "schedule", "r_f", "r_b", "predicted ms", "measured ms", "error", "forward", "overruns",
                 "gradients off by", "status"});
    for (const CaseRecord* r : runs()) {
      const double forward = number(*r, r->summary, "forward_s") / number(*r, r->prediction, "forward_s") - 1;
      table.add(
          {r->parameters.text("layer", r->key), r->schedule, fmt::format("{}", r->degree_forward),
           fmt::format("{}", r->degree_backward), fmt::format("{:.3f}", 1e3 * number(*r, r->prediction, "total_s")),
           fmt::format("{:.3f}", 1e3 * number(*r, r->summary, "total_s")),
           fmt::format("{:+.2f} %", 100 * (measured_over_predicted(*r) - 1)), fmt::format("{:+.2f} %", 100 * forward),
           r->emulated ? fmt::format("{:.2f} %", 100 * number(*r, r->summary, "overrun_share")) : "-",
           fmt::format("{:.1e}", number(*r, r->summary, "worst_error")),
           std::string(name_of(r->status)) + (r->reason.empty() ? "" : ": " + r->reason)});
    }
    return table.text();
  }

  void print_text() const {
    const auto all = errors();
    const Ranking rank = ranking();
    fmt::print("\n{}: {} nodes x {} ranks{}\n\n{}\n", cluster_.name, cluster_.nodes, cluster_.ranks_per_node,
               emulated() ? ", emulated by 2 x 2 threads; every figure below is of the emulated cluster"
                          : ", threads of this machine, unpaced",
               fit_table(fitted_, emulated() ? &cluster_ : nullptr));
    fmt::print("{} layers of {}, mean speedup over tutel (simulated: all layers; measured: {} verified layers)\n\n{}\n",
               rows_.size(), grid_.name, outcomes_.size(), summary_table());
    fmt::print("verified layers: predicted from the fit (ragged chunks), and measured, forward + backward\n\n{}\n",
               runs_table());
    if (!all.empty())
      fmt::print(
          "measured against predicted: {:.2f} % off in the median, {:.2f} % at worst; ranking as predicted in {} of "
          "{} pairs that differ by more than 3 %{}\n",
          100 * median(all), 100 * quantile(all, 1), rank.agree, rank.pairs,
          emulated() ? fmt::format("; overruns at most {:.2f} %", 100 * worst_overruns()) : "");
    fmt::print(
        "hand-overs between lanes are not in the predictions (microbench prints them)\n\nrecords  {}\nprofile  {}\n",
        path_, profile_path_);
    if (!trace_path_.empty()) fmt::print("timeline {} (open it in ui.perfetto.dev)\n", trace_path_);
  }

  void print_json() const {
    Json verified = Json::array();
    for (const CaseRecord* r : runs())
      verified.push_back({{"layer", r->parameters.text("layer", r->key)},
                          {"schedule", r->schedule},
                          {"status", name_of(r->status)},
                          {"degree_forward", r->degree_forward},
                          {"degree_backward", r->degree_backward},
                          {"predicted_s", number(*r, r->prediction, "total_s")},
                          {"measured_s", number(*r, r->summary, "total_s")},
                          {"dilation", r->dilation},
                          {"emulated", r->emulated},
                          {"worst_error", number(*r, r->summary, "worst_error")}});
    Json summary = Json::array();
    for (const ScheduleSummary& s : summarise(rows_, schedules_))
      summary.push_back({{"schedule", s.schedule},
                         {"simulated_speedup", s.speedup},
                         {"measured_speedup", measured_speedup(s.schedule)},
                         {"printed_speedup", printed_speedup(grid_.name, s.schedule)},
                         {"degrees_apart", s.apart}});
    const auto all = errors();
    const Ranking rank = ranking();
    Json json{{"cluster", cluster_.name}, {"grid", grid_.name},          {"emulated", emulated()},
              {"records", path_},         {"profile", profile_path_},    {"summary", summary},
              {"verified", verified},     {"ranking_pairs", rank.pairs}, {"ranking_agrees", rank.agree}};
    if (!all.empty()) json["median_error"] = median(all), json["worst_error"] = quantile(all, 1);
    json["layers"] = to_json(rows_);
    fmt::print("{}\n", json.dump(1));
  }

  const TuneOptions& options_;
  Profile cluster_;
  Grid grid_;
  std::vector<const Schedule*> schedules_;
  std::string path_;
  RecordWriter writer_;
  FittedProfile fitted_;
  std::string profile_path_, trace_path_;
  std::vector<SweepRow> rows_;
  std::vector<LayerOutcome> outcomes_;
};

}  // namespace

int run_verified_tune(const TuneOptions& options) { return VerifiedTune(options).run(); }

}  // namespace moe
