#include "commands/reproduce/measured_runs.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <filesystem>
#include <fmt/ranges.h>
#include <optional>
#include <set>
#include <thread>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/statistics.h"
#include "moe/base/terminal.h"
#include "moe/base/threads.h"

namespace moe::reproduce {
namespace {

constexpr std::string_view kRun = "run/", kFsmoeSuffix = "@fsmoe";

struct CommittedRuns {
  std::string_view table, file;
};
constexpr std::array<CommittedRuns, 4> kCommitted{{{"fsmoe-table5", "fsmoe-b-emulated.jsonl.gz"},
                                                   {"fsmoe-degrees", "fsmoe-b-emulated.jsonl.gz"},
                                                   {"fsmoe-fig6", "fsmoe-fig6-models.json.gz"},
                                                   {"parm-table4", "parm-b-emulated.jsonl.gz"}}};

const CommittedRuns& committed(std::string_view table) {
  const auto found = std::ranges::find(kCommitted, table, &CommittedRuns::table);
  if (found == kCommitted.end()) {
    std::vector<std::string_view> tables;
    for (const CommittedRuns& each : kCommitted) tables.push_back(each.table);
    bad_input("--measure, --records: found {}, expected a table that has runs: {}", table, fmt::join(tables, ", "));
  }
  return *found;
}

// Returns whether the record is a sound, timed run of a schedule; runs at other tried degrees do not count.
bool is_sound(const CaseRecord& record) {
  return record.key.starts_with(kRun) && record.key.ends_with("/" + record.schedule) &&
         record.status == CaseStatus::ok && record.summary.has("total_s");
}

std::string text_in(const CaseRecord& record, std::string_view name) {
  return record.parameters.has(name) ? record.parameters.text(name, record.where) : "";
}

double total_s(const CaseRecord& record) { return record.summary.number("total_s", record.where); }

}  // namespace

std::string measured_file(std::string_view table, const std::string& file) {
  const CommittedRuns& own = committed(table);
  return file.empty() ? (std::filesystem::path(config_dir()).parent_path() / "results" / own.file).string() : file;
}

commands::FileRun measured_runs(std::string_view table, const std::string& file) {
  return commands::read_files({measured_file(table, file)}).front();
}

LayerRuns grid_runs(const commands::FileRun& file, const std::string& grid) {
  std::set<std::string> named;
  for (const GridLayer& layer : find_grid(grid).layers) named.insert(layer.name);
  LayerRuns layers;
  for (const CaseRecord& record : file.run.cases)
    if (is_sound(record) && named.contains(text_in(record, "layer")))
      layers[text_in(record, "layer")][record.schedule] = &record;
  return layers;
}

LayerRuns layer_runs(const commands::FileRun& file, Testbed testbed, Capacity capacity) {
  LayerRuns layers = grid_runs(file, std::string(printed_grid(testbed)));
  const auto is_other = [&](const auto& run) {
    const CaseRecord& record = *run.second;
    if (text_in(record, "cluster") != name_of(testbed) || !record.parameters.has("top_k")) return true;
    const int64_t top_k = record.parameters.whole("top_k", record.where);
    return top_k != (capacity == Capacity::f_alone ? 1 : 2);
  };
  for (auto& [name, runs] : layers) std::erase_if(runs, is_other);
  std::erase_if(layers, [](const auto& layer) { return layer.second.empty(); });
  return layers;
}

std::optional<double> measured_speedup(const LayerRuns& layers, const std::string& schedule, const std::string& over) {
  std::vector<double> ratios;
  for (const auto& [name, runs] : layers)
    if (runs.contains(schedule) && runs.contains(over))
      ratios.push_back(total_s(*runs.at(over)) / total_s(*runs.at(schedule)));
  return ratios.empty() ? std::nullopt : std::optional(mean(ratios));
}

std::optional<double> measured_differing_degrees(const LayerRuns& layers, const std::string& schedule) {
  int ran = 0, apart = 0;
  for (const auto& [name, runs] : layers) {
    const auto run = runs.find(schedule);
    if (run == runs.end()) continue;
    ++ran;
    apart += run->second->degree_forward != run->second->degree_backward;
  }
  return ran == 0 ? std::nullopt : std::optional(static_cast<double>(apart));
}

MeasuredSteps measured_steps(const commands::FileRun& file, const ModelSetting& run,
                             const std::vector<std::string>& schedules) {
  MeasuredSteps steps;
  for (const std::string& schedule : schedules) steps.predicted[schedule] = steps.measured[schedule] = std::nullopt;
  for (const CaseRecord& record : file.run.cases) {
    if (!is_sound(record) || text_in(record, "cluster") != run.cluster) continue;
    if (text_in(record, "model") != run.model + std::string(kFsmoeSuffix)) continue;
    steps.layers = record.parameters.whole("layers", record.where);
    steps.measured[record.schedule] = total_s(record);
    if (record.prediction.has("total_s"))
      steps.predicted[record.schedule] = record.prediction.number("total_s", record.where);
  }
  return steps;
}

std::string kind_of_run(const commands::FileRun& file) {
  std::set<bool> kinds;
  for (const CaseRecord& record : file.run.cases)
    if (is_sound(record)) kinds.insert(record.emulated);
  require<BadInput>(!kinds.empty(), "{}: found no sound run, expected records of runs (tune, layerbench, modelbench)",
                    file.file);
  require<BadInput>(kinds.size() == 1, "{}: found emulated runs and others, expected one kind", file.file);
  return *kinds.begin() ? "emulated run" : "run";
}

std::string describe_runs(const commands::FileRun& file) {
  const std::string kind = kind_of_run(file);
  std::string text = fmt::format("{}: sound runs of {}", kind, std::filesystem::path(file.file).filename().string());
  if (!file.run.header.argv.empty()) text += fmt::format(" ({})", fmt::join(file.run.header.argv, " "));
  if (kind != "run")
    text +=
        ". Ranks that are threads carry small tensors through every task, and no task ends before its modelled time: "
        "what this tests is the executor and the prediction, not the coefficients";
  return text + ".";
}

namespace {

constexpr size_t kQuietSweeps = 4;

SweptReading sweep_reading(const Reading& reading) {
  const Profile profile = profile_of(reading);
  const Grid grid = grid_of(reading);
  const auto schedules = table5_schedules();
  return {reading, commands::summarise(commands::sweep({profile, grid, schedules, {}, {}}), schedules)};
}

}  // namespace

std::vector<const Schedule*> table5_schedules() {
  std::vector<const Schedule*> chosen;
  for (const std::string_view name : {"tutel", "tutel-improved", "fsmoe-no-iio", "fsmoe"})
    chosen.push_back(&find_schedule(name));
  return chosen;
}

const commands::ScheduleSummary& SweptReading::find(std::string_view schedule) const {
  const auto found = std::ranges::find(schedules, schedule, &commands::ScheduleSummary::schedule);
  require<BadInput>(found != schedules.end(), "table 5: found schedule {}, expected one of its own", schedule);
  return *found;
}

const SweptReading& SweepStore::sweep(const Reading& reading) {
  prepare({reading});
  return swept_.at(reading);
}

void SweepStore::prepare(const std::vector<Reading>& readings) {
  std::vector<Reading> missing;
  for (const Reading& reading : readings)
    if (!swept_.contains(reading) && std::ranges::find(missing, reading) == missing.end()) missing.push_back(reading);
  if (missing.empty()) return;
  std::vector<SweptReading> results(missing.size());
  const size_t workers = std::min<size_t>(missing.size(), std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::exception_ptr> errors(workers);
  std::atomic<size_t> next{0};
  std::optional<Progress> progress;
  if (missing.size() > kQuietSweeps) progress.emplace("sweeps of 1458 layers");
  const auto work = [&](size_t worker) {
    try {
      for (size_t i = next++; i < missing.size(); i = next++) {
        results[i] = sweep_reading(missing[i]);
        if (worker == 0 && progress) progress->at(static_cast<double>(i + 1) / static_cast<double>(missing.size()));
      }
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (size_t w = 1; w < workers; ++w) threads.push_back(start_thread("sweep", [&work, w] { work(w); }));
  work(0);
  threads.clear();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  if (progress) progress->finish();
  for (SweptReading& result : results) swept_.emplace(result.reading, std::move(result));
}

}  // namespace moe::reproduce
