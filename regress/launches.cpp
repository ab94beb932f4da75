#include "regress/launches.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/ranges.h>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/exit_code.h"
#include "moe/base/statistics.h"
#include "moe/record/over_ranks.h"
#include "moe/record/reader.h"
#include "regress/compare_records.h"
#include "regress/process.h"

namespace moe::regress {

namespace fs = std::filesystem;

std::string program_in(const std::string& dir, const std::string& what) {
  const fs::path folder(dir);
  std::error_code ignored;
  if (fs::is_regular_file(folder, ignored) && ::access(dir.c_str(), X_OK) == 0) return fs::absolute(folder);
  for (const char* place : {"build/release/cli/moetune", "cli/moetune", "bin/moetune", "build/plan/cli/moetune"})
    if (fs::is_regular_file(folder / place, ignored)) return fs::absolute(folder / place);
  bad_input(
      "{}: found no built moetune in '{}', expected a checkout where ./moetune was used, a build folder, or the "
      "program",
      what, dir);
}

std::string own_program() { return fs::read_symlink("/proc/self/exe"); }

std::vector<std::string> files_of_program(const std::string& program) {
  std::vector<std::string> files{program};
  if (fs::exists(program + "-run")) files.push_back(program + "-run");
  return files;
}

double CaseTimes::seconds() const { return median(max_over_ranks(samples)); }

std::optional<CaseTimes> times_of(const CaseRecord& record, std::string_view sample) {
  if (record.status != CaseStatus::ok || is_repeat(record)) return std::nullopt;
  for (const Samples& samples : record.samples)
    if (samples.name == sample && !samples.values.empty() && !samples.values.front().empty()) {
      const bool counted = record.summary.has("peak_bytes");
      return CaseTimes{samples.values, counted ? record.summary.number("peak_bytes", record.where) : 0};
    }
  return std::nullopt;
}

Launcher::Launcher(std::vector<std::string> before) : before_(std::move(before)) {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  require<BadInput>(!error, "TMPDIR: {}", error.message());
  std::string name = temporary / "moetune-gate-XXXXXX";
  require<BadInput>(::mkdtemp(name.data()) != nullptr, "{}: cannot be made", name);
  folder_ = name;
}

Launcher::~Launcher() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<std::string> Launcher::argv(const Arm& arm, const LaunchLine& line) const {
  std::vector<std::string> words = before_;
  words.push_back(arm.program);
  words.insert(words.end(), line.words.begin(), line.words.end());
  words.insert(words.end(), arm.flags.begin(), arm.flags.end());
  return words;
}

std::string Launcher::shown(const Arm& arm, const LaunchLine& line) const {
  return fmt::format("{}", fmt::join(argv(arm, line), " "));
}

LaunchEnd Launcher::run(const Arm& arm, const LaunchLine& line, double timeout_s) const {
  const std::string records = folder_ + "/records.jsonl";
  fs::remove(records);
  std::vector<std::string> words = argv(arm, line);
  words.insert(words.end(), {"--out", records});
  const ProcessEnd process = run_process(words, timeout_s);
  LaunchEnd end{process.code, process.timed_out, process.wall_s, process.last_line, {}, {}};
  const bool told = process.code == kOk || process.code == kBadInput;  // or nothing of the line could be run
  if (!told || !fs::exists(records)) return end;
  const std::string prefix = line.name.empty() ? "" : line.name + "/";
  const std::vector<Run> runs = read_runs(records);
  for (const std::string_view sample : {kOfLayers, kOfOps}) {
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

}  // namespace moe::regress
