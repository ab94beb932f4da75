#include "commands/regress/launches.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/ranges.h>
#include <set>
#include <unistd.h>

#include "commands/regress/compare.h"
#include "commands/regress/process.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "moe/record/reader.h"

namespace moe::regress {

namespace fs = std::filesystem;

std::string program_in_checkout(const std::string& dir, const std::string& what) {
  const fs::path folder(dir);
  std::error_code ignored;
  if (fs::is_regular_file(folder, ignored) && ::access(dir.c_str(), X_OK) == 0) return fs::absolute(folder);
  for (const char* place : {"build/release/moetune", "moetune", "bin/moetune", "build/plan/moetune"})
    if (fs::is_regular_file(folder / place, ignored)) return fs::absolute(folder / place);
  bad_input(
      "{}: found no built moetune in '{}', expected a checkout in which ./moetune was run, a build folder, or the "
      "program",
      what, dir);
}

std::string current_program() { return fs::read_symlink("/proc/self/exe"); }

namespace {

ptrdiff_t metrics_of(const CaseList& list) {
  return std::ranges::count_if(list.launches, [](const LaunchLine& line) { return line.metric.has_value(); });
}

}  // namespace

Arm arm_in_checkout(const std::string& name, const std::string& dir, std::vector<std::string> flags,
                    const CaseList& list, const std::string& what) {
  Arm arm;
  arm.name = name;
  arm.flags = std::move(flags);
  if (const ptrdiff_t metrics = metrics_of(list); metrics > 0) {
    arm.folder = dir.empty() ? fs::current_path().string() : dir;
    require<BadInput>(fs::is_directory(arm.folder), "{}: found '{}', expected a folder in which commands can run", what,
                      dir);
    if (metrics == std::ssize(list.launches)) return arm;
  }
  arm.program = dir.empty() ? current_program() : program_in_checkout(dir, what);
  return arm;
}

std::string text_of(const Arm& arm) {
  const std::string& where = arm.program.empty() ? arm.folder : arm.program;
  return arm.flags.empty() ? where : fmt::format("{} {}", where, fmt::join(arm.flags, " "));
}

std::optional<OutputMetric> metric_of(const std::string& metric, const std::string& unit) {
  require<BadInput>(unit.empty() || !metric.empty(), "--unit: found {} without --metric, expected both",
                    quoted_text(unit));
  if (metric.empty()) return std::nullopt;
  return OutputMetric(metric, unit, "--metric");
}

void prevent_resume(const CaseList& list, Invocation& invocation) {
  if (metrics_of(list) == 0) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  invocation.flags.push_back(
      fmt::format("asked {}", std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
}

std::vector<std::string> files_of_program(const std::string& program) {
  std::vector<std::string> files{program};
  if (fs::exists(program + "-run")) files.push_back(program + "-run");
  return files;
}

std::optional<CaseTimes> times_of(const CaseRecord& record, std::string_view sample) {
  if (record.status != CaseStatus::ok || is_repeat(record)) return std::nullopt;
  for (const Samples& samples : record.samples)
    if (samples.name == sample && !samples.values.empty() && !samples.values.front().empty()) {
      const bool counted = record.summary.has("peak_bytes");
      return CaseTimes{samples.values, counted ? record.summary.number("peak_bytes", record.where) : 0};
    }
  return std::nullopt;
}

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  require<BadInput>(!error, "TMPDIR: {}", error.message());
  path_ = temporary / "moetune-XXXXXX";
  require<BadInput>(::mkdtemp(path_.data()) != nullptr,
                    "{}: cannot be created, expected TMPDIR to be a writable folder", path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<std::string> Launcher::argv(const Arm& arm, const LaunchLine& line) const {
  std::vector<std::string> words = before_;
  if (!line.metric) words.push_back(arm.program);
  words.insert(words.end(), line.words.begin(), line.words.end());
  words.insert(words.end(), arm.flags.begin(), arm.flags.end());
  return words;
}

std::string Launcher::command_text(const Arm& arm, const LaunchLine& line) const {
  return fmt::format("{}", fmt::join(argv(arm, line), " "));
}

LaunchResult Launcher::run(const Arm& arm, const LaunchLine& line, double timeout_s) const {
  if (line.metric) return run_other(arm, line, timeout_s);
  const std::string records = folder_.file("records.jsonl");
  fs::remove(records);
  std::vector<std::string> words = argv(arm, line);
  words.insert(words.end(), {"--out", records});
  const ProcessResult process = run_process(words, timeout_s);
  LaunchResult end{process.code, process.timed_out, process.wall_s, process.last_line, {}, {}};
  const bool told = process.code == kOk || process.code == kBadInput;  // other codes mean that the line could not run
  if (!told || !fs::exists(records)) return end;
  const std::string prefix = line.name.empty() ? "" : line.name + "/";
  const std::vector<Run> runs = read_runs(records);
  for (const std::string_view sample : {kLayerTimeField, kOpTimeField}) {
    for (const Run& run : runs)
      for (const CaseRecord& record : run.cases)
        if (auto times = times_of(record, sample)) end.cases[prefix + record.key] = std::move(*times);
    if (!end.cases.empty()) break;
  }
  for (const Run& run : runs)
    for (const CaseRecord& record : run.cases)
      if (record.status != CaseStatus::ok)
        end.not_ok[prefix + record.key] = fmt::format("{}: {}", name_of(record.status), record.reason);
  return end;
}

LaunchResult Launcher::run_other(const Arm& arm, const LaunchLine& line, double timeout_s) const {
  const OutputMetric::Place place{arm.folder, fs::file_time_type::clock::now()};
  const ProcessResult process = run_process(argv(arm, line), timeout_s, {arm.folder, true});
  LaunchResult end{process.code, process.timed_out, process.wall_s, process.last_line, {}, {}};
  if (process.code != kOk) return end;
  OutputMetric::CommandTimes found = line.metric->in(process.output, place);
  const auto name_of = [&](const std::string& name) {
    if (name.empty()) return line.name.empty() ? "command" : line.name;
    return line.name.empty() ? name : line.name + "/" + name;
  };
  for (auto& [name, times] : found.cases) end.cases[name_of(name)] = std::move(times);
  for (const auto& [name, why] : found.not_ok) end.not_ok[name_of(name)] = why;
  return end;
}

namespace {

std::chrono::year_month_day date_from(const TableReader& table, std::string_view key) {
  const std::string text = table.text(key);
  int year = 0;
  unsigned month = 0, day = 0;
  char beyond = 0;
  const bool read = std::sscanf(text.c_str(), "%4d-%2u-%2u%c", &year, &month, &day, &beyond) == 3;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (!read || !date.ok()) table.fail(key, quoted_text(text), "a date in quotes, \"2030-12-31\"");
  return date;
}

CaseList read_case_list(const std::string& name_or_path) {
  CaseList list;
  list.path = find_config("ci", name_or_path);
  const ConfigFile file = read_toml(list.path);
  const TableReader root(file, {"schema", "launch", "waiver"});
  root.integer("schema", {.min = 1, .max = 1});
  std::set<std::string> names;
  for (const TableReader& table : root.tables("launch", {"name", "command", "demanded", "metric", "unit"})) {
    LaunchLine line{table.name("name"), words_of(table.text("command", false), table.where("command")),
                    table.has("demanded") && table.boolean("demanded")};
    if (table.has("metric"))
      line.metric.emplace(table.text("metric"), table.has("unit") ? table.text("unit") : "", table.where("metric"));
    else if (table.has("unit"))
      table.fail("unit", quoted_text(table.text("unit")), "none without metric");
    if (!names.insert(line.name).second) table.fail("name", quoted_text(line.name), "a different name for each launch");
    list.launches.push_back(std::move(line));
  }
  require<BadInput>(!list.launches.empty(), "{}: launch: found no [[launch]], expected at least one", list.path);
  for (const TableReader& table : root.tables("waiver", {"case", "reason", "until"}))
    list.waivers.push_back({table.text("case"), table.text("reason"), date_from(table, "until")});
  return list;
}

}  // namespace

CaseList case_list_of(const std::string& verb, const std::string& cases, const std::vector<std::string>& command,
                      std::optional<OutputMetric> metric) {
  require<BadInput>(cases.empty() != command.empty(), "{}: found {}, expected either --cases or a command after --",
                    verb, cases.empty() ? "neither" : "both");
  if (!cases.empty()) return read_case_list(cases);
  CaseList one;
  one.launches.push_back({"", command, false, std::move(metric)});
  return one;
}

}  // namespace moe::regress
