#include "commands/report/report.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <set>

#include "commands/report/layer_replays.h"
#include "commands/report/model_timelines.h"
#include "commands/report/page_parts.h"
#include "commands/report/picked_layers.h"
#include "commands/report/record_tables.h"
#include "commands/shared/record_files.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/base/version.h"
#include "moe/prices/fit.h"
#include "moe/prices/price_curve.h"

namespace moe::report {
namespace {

constexpr size_t kMaxRuns = 8;  // runs read from a file

Json run_json(const commands::FileRun& of) {
  const RunHeader& header = of.run.header;
  return {{"file", of.file},
          {"started", header.started},
          {"ended", of.run.ended},
          {"argv", header.argv},
          {"version", header.version},
          {"git", object_of(header.git)},
          {"build", header.build},
          {"compiler", header.compiler},
          {"libraries", object_of(header.libraries)},
          {"machine", object_of(header.machine)},
          {"conditions", object_of(header.conditions)},
          {"ranks", object_of(header.ranks)},
          {"emulated", std::ranges::any_of(of.run.cases, &CaseRecord::emulated)},
          {"number", of.earlier + 1},
          {"last", of.last},
          {"cases", of.run.cases.size()}};
}

// Returns the lines that `fit` fits through a run's operations.
Json fits_json(const std::vector<commands::FileRun>& files) {
  Json fits = Json::array();
  for (size_t run = 0; run < files.size(); ++run) {
    std::vector<CaseRecord> operations;
    for (const CaseRecord& record : files[run].run.cases)
      if (!series_of(record).empty()) operations.push_back(record);
    if (operations.empty()) continue;
    try {
      for (const FittedRow& row : fit_profile(operations, "fitted", files[run].file).rows) {
        Json points = Json::array();
        for (const auto& [size, seconds] : row.fit.points) points.push_back({rounded(size), rounded(seconds)});
        fits.push_back({{"run", run},
                        {"series", row.what},
                        {"alpha_s", rounded(row.fit.alpha_s)},
                        {"beta", rounded(row.fit.beta)},
                        {"r_squared", rounded(row.fit.r_squared)},
                        {"held_out_error", rounded(row.fit.held_out_error.value_or(NAN))},
                        {"points", std::move(points)},
                        {"weak", row.fit.weak.value_or("")},
                        {"unusable", row.unusable.value_or("")}});
      }
    } catch (const BadInput& fault) {
      log_warning(fmt::format("no lines through operations: {}", fault.what()));
    }
  }
  return fits;
}

/// The replays of the picked layers, and the reasons why some have none.
class Replays {
 public:
  Replays(const ReportOptions& options, const std::vector<commands::FileRun>& files, const RecordTables& tables)
      : options_(options),
        files_(files),
        tables_(tables),
        picked_(picked_layers(tables, runs_that_are(true), static_cast<size_t>(options.timelines))) {
    const auto others = picked_layers(tables, runs_that_are(false), static_cast<size_t>(options.timelines));
    picked_.insert(picked_.end(), others.begin(), others.end());
    for (const size_t layer : picked_) add(layer);
    int stacks = 0;
    for (size_t layer = 0; layer < tables.layers().size(); ++layer)
      if (is_stack(tables.layers()[layer].parameters) && stacks++ < options.timelines) add_stack(layer);
    if (std::ranges::any_of(tables.rows(), &LayerRow::is_from_plan_file))
      notes_.insert("runs of a plan file have no replays: only that file holds their plans");
  }
  size_t layers() const { return layers_.size(); }
  /// Returns the indices of the layers for which timelines are shown.
  const std::vector<size_t>& picked() const { return picked_; }
  Json json() const {
    Json kinds = Json::array();
    for (int kind = 0; kind < kTaskKinds; ++kind) kinds.push_back(name_of(static_cast<TaskKind>(kind)));
    return {{"most_degree", kMaxDegree},
            {"kinds", std::move(kinds)},
            {"structures", replays_.structures()},
            {"layers", layers_},
            {"notes", notes_}};
  }
  /// Returns the timelines of models and stacks of layers.
  const Json& model_timelines() const { return model_timelines_; }

 private:
  // Returns, for each run, whether it is the last one of its file (or, if not `last`, whether it is an earlier one).
  std::vector<bool> runs_that_are(bool last) const {
    std::vector<bool> chosen;
    for (const commands::FileRun& file : files_) chosen.push_back(file.last == last);
    return chosen;
  }
  static bool is_given(const Run& run, std::string_view flag) {
    return std::ranges::any_of(run.header.argv, [&](const std::string& word) {
      return word == flag || word.starts_with(fmt::format("{}=", flag));
    });
  }
  void add_stack(size_t index) {
    const LayerEntry& layer = tables_.layers()[index];
    try {
      const Run& run = files_[layer.run].run;
      const Profile profile = replay_profile(options_.cluster, run, layer.parameters.text("cluster", layer.name));
      // A search for a shape prices groups in the same way as --nearest.
      const bool nearest = is_given(run, "--nearest") || is_given(run, "--shape");
      for (Json& timeline : report::model_timelines(tables_, index, profile, nearest, notes_))
        model_timelines_.push_back(std::move(timeline));
    } catch (const BadInput& fault) {
      notes_.insert(fmt::format("{}: no timelines: {}", layer.name, fault.what()));
    }
  }
  void add(size_t index) {
    const LayerEntry& layer = tables_.layers()[index];
    try {
      const PickedRows picked = picked_rows(tables_, index);
      Fields parameters = layer.parameters;
      if (picked.by_plans) parameters.set("capacity_rounding", tables_.rows()[picked.rows.front()].planned_rounding);
      const LayerCase shape = commands::shape_of(parameters, layer.name);
      const Run& run = files_[layer.run].run;
      const std::string& cluster = layer.parameters.text("cluster", layer.name);
      const Profile profile = replay_profile(options_.cluster, run, cluster),
                    growing = without_startup_seconds(profile);
      const bool nearest = std::ranges::find(run.header.argv, "--nearest") != run.header.argv.end();
      const PricingOptions pricing{nearest, "--nearest", nearest};
      const LayerPricer pricer(profile, shape, pricing), growing_pricer(growing, shape, pricing);
      Json schedules = Json::array();
      for (const size_t row : picked.rows) {
        Json schedule = schedule_json(tables_.rows()[row], pricer, growing_pricer);
        if (schedule.is_null()) continue;
        schedule["row"] = row;
        schedules.push_back(std::move(schedule));
      }
      if (schedules.empty()) return;
      notes_.merge(texts_of(pricer.notes()));
      layers_.push_back({{"layer", index},
                         {"profile", profile.name},
                         {"source", profile.source},
                         {"contention", contention_json(profile.contention)},
                         {"schedules", std::move(schedules)}});
    } catch (const BadInput& fault) {
      notes_.insert(fmt::format("{}: no replays: {}", layer.name, fault.what()));
    }
  }
  Json schedule_json(const LayerRow& row, const LayerPricer& pricer, const LayerPricer& growing) {
    try {
      return replays_.schedule_json(find_schedule(row.schedule), pricer, growing, row.choice);
    } catch (const BadInput& fault) {
      notes_.insert(fmt::format("{}: no replay: {}", row.schedule, fault.what()));
      return nullptr;
    }
  }

  const ReportOptions& options_;
  const std::vector<commands::FileRun>& files_;
  const RecordTables& tables_;
  std::vector<size_t> picked_;
  LayerReplays replays_;
  Json layers_ = Json::array(), model_timelines_ = Json::array();
  std::set<std::string> notes_;
};

Json document_of(const std::vector<commands::FileRun>& files, const RecordTables& tables, const Replays& replays) {
  Json runs = Json::array();
  for (const commands::FileRun& file : files) runs.push_back(run_json(file));
  Json document = tables.json(replays.picked());
  for (const Json& timeline : replays.model_timelines()) document["timelines"].push_back(timeline);
  document["made_by"] = fmt::format("moetune {}", version());
  document["runs"] = std::move(runs);
  document["fits"] = fits_json(files);
  document["warnings"] = warnings_of(files);
  document["replays"] = replays.json();
  return document;
}

// Writes JSON for embedding in a page: every < is escaped, so that no text can end the surrounding element.
std::string embedded(const Json& document) {
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) c == '<' ? escaped += "\\u003c" : escaped += c;
  return escaped;
}

}  // namespace

int run_report(const ReportOptions& options) {
  require_other_file(options.out, options.records);
  if (!options.cluster.empty()) find_profile(options.cluster);  // fails early, not once for each layer
  const std::vector<commands::FileRun> files = commands::read_last_runs(options.records, kMaxRuns);
  const RecordTables tables(files);
  const Replays replays(options, files, tables);
  const std::string data = embedded(document_of(files, tables, replays));
  make_folders_above(options.out);
  size_t written = 0;
  write_whole_file(options.out, "a file for the page", [&](std::ostream& out) {
    const auto put = [&](std::string_view part) { out << part, written += part.size(); };
    written = 0;
    put(kPageBeforeData), put(data), put(kPageAfterData);
  });
  fmt::print("{}: {} of {} ({} replayed), {}, {}, {}\n", options.out, counted(tables.rows().size(), "schedule"),
             counted(tables.layers().size(), "layer"), replays.layers(), counted(tables.operations(), "operation"),
             counted(tables.models(), "model"), human_bytes(static_cast<double>(written)));
  return 0;
}

Profile replay_profile(const std::string& name_or_file, const Run& run, const std::string& cluster) {
  if (!name_or_file.empty()) return find_profile(name_or_file);
  std::vector<CaseRecord> operations;
  std::ranges::copy_if(run.cases, std::back_inserter(operations),
                       [](const CaseRecord& record) { return record.parameters.has("op"); });
  if (!operations.empty()) return fit_profile(operations, cluster, "the operations of these records").profile;
  try {
    return find_profile(cluster);
  } catch (const BadInput&) {
    bad_input("found no profile of the name '{}', expected its file: moetune report ... --cluster FILE", cluster);
  }
}

Profile without_startup_seconds(Profile profile) {
  for (CommRow& row : profile.comm) {
    const double start_s = price_curve(row).alpha;
    for (auto& point : row.points) point[1] = std::max(0.0, point[1] - start_s);
    row.alpha_s = 0;
  }
  for (ComputeRow& row : profile.compute) row.alpha_s = 0;
  for (ModuleRow& row : profile.modules) row.alpha_s = 0;
  for (TaskRow& row : profile.tasks) row.seconds_per_term[Term::call] = 0;
  profile.task_overhead_s = 0;
  return profile;
}

namespace {

constexpr size_t kShownCases = 5;

struct Warning {
  std::string_view level, text;
};

// The page's text for each status, the most severe first.
constexpr Warning kStatusWarnings[] = {
    {"wrong", "results that disagree with their reference: no figure of theirs counts"},
    {"error", "cases whose rank failed"},
    {"oom", "cases that ran out of memory"},
    {"invalid", "cases whose measurement broke its own rules (too many overruns): look at no small difference"},
    {"weak", "predictions by rows whose fit is weak"},
    {"unsupported", "cases that can't be planned, priced or run as asked"},
};

std::string_view level_of(const CaseRecord& record) {
  if (record.status != CaseStatus::ok) return name_of(record.status);
  return record.prediction.has("weak_rows") ? "weak" : "";
}

std::string reason_of(const CaseRecord& record) {
  if (!record.reason.empty()) return record.reason;
  return record.prediction.has("weak_rows") ? record.prediction.text("weak_rows", record.where) : "";
}

struct CasesToShow {
  size_t count = 0;
  Json cases = Json::array();
};

}  // namespace

Json warnings_of(const std::vector<commands::FileRun>& files) {
  Json all = Json::array();
  for (size_t run = 0; run < files.size(); ++run) {
    const commands::FileRun& file = files[run];
    const auto add = [&](std::string_view level, const std::string& text, Json cases) {
      const std::string named = files.size() > 1 ? fmt::format("{}: {}", file.file, text) : text;
      all.push_back({{"run", run}, {"level", level}, {"text", named}, {"cases", std::move(cases)}});
    };
    std::map<std::string_view, CasesToShow> found;
    for (const CaseRecord& record : file.run.cases) {
      const std::string_view level = level_of(record);
      if (level.empty()) continue;
      CasesToShow& of = found[level];
      if (++of.count <= kShownCases) of.cases.push_back(fmt::format("{}: {}", record.key, reason_of(record)));
    }
    for (const auto& [level, text] : kStatusWarnings)
      if (const auto of = found.find(level); of != found.end())
        add(level, fmt::format("{} {}", of->second.count, text), of->second.cases);
    if (!file.run.ended) add("broken off", "this run was interrupted and is not complete", Json::array());
    const Scalar* dirty = file.run.header.git.find("dirty");
    if (dirty != nullptr && *dirty == Scalar(true))
      add("changed", "the sources were changed since their commit", Json::array());
  }
  return all;
}

}  // namespace moe::report
