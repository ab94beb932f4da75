#include "commands/regress/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>

#include "commands/regress/launches.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/table.h"
#include "moe/base/text.h"
#include "moe/base/units.h"

namespace moe::regress {
namespace {

namespace fs = std::filesystem;

std::vector<Run> runs_below(const std::string& folder) {
  std::error_code error;
  require<BadInput>(fs::is_directory(folder, error), "{}: found no such folder, expected a folder with records",
                    folder);
  std::vector<Run> runs;
  for (const std::string& file : record_files(folder, true)) {
    try {
      std::ranges::move(read_runs(file), std::back_inserter(runs));
    } catch (const BadInput& fault) {  // the other files can still be read
      log_warning(fmt::format("skipped a file: {}", fault.what()));
    }
  }
  return runs;
}

std::string commit_text(const SeriesPoint& p) { return p.commit.substr(0, 12) + (p.dirty ? "-dirty" : ""); }

Json to_json(const SeriesPoint& p) {
  return {{"started", p.started}, {"commit", p.commit}, {"dirty", p.dirty}, {"value_s", p.value_s}, {"cases", p.cases}};
}

Json document_of(const std::vector<Series>& all) {
  Json json{{"least_runs", kMinRuns}, {"series", Json::array()}};
  for (const Series& series : all) {
    Json points = Json::array();
    for (const SeriesPoint& p : series.points) points.push_back(to_json(p));
    json["series"].push_back({{"machine", series.machine},
                              {"group", series.group},
                              {"cases", series.cases},
                              {"points", std::move(points)},
                              {"changes", Json::array()}});
  }
  return json;
}

struct CommandOutput {
  int code = 0;
  std::string out;
};

CommandOutput run_script(const std::string& file, const std::string& plot) {
  const char* python = std::getenv("MOETUNE_PYTHON");
  const fs::path script = fs::path(config_dir()).parent_path() / "plots" / "history.py";
  std::string command = fmt::format("exec {} -B {} {}", shell_word(python && *python ? python : "python3"),
                                    shell_word(script.string()), shell_word(file));
  if (!plot.empty()) command += fmt::format(" --out {}", shell_word(plot));
  std::FILE* pipe = ::popen(command.c_str(), "r");
  require<std::runtime_error>(pipe != nullptr, "history: {}: cannot start the script", script.string());
  CommandOutput ended;
  std::array<char, 4096> part{};
  while (const size_t size = std::fread(part.data(), 1, part.size(), pipe)) ended.out.append(part.data(), size);
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (ended.code == 126 || ended.code == 127) ended.code = kNoHardware;  // no such Python, as the shell has printed
  const bool known = ended.code == kOk || ended.code == kBadInput || ended.code == kNoHardware;
  require<std::runtime_error>(known, "history: {}: the script failed", script.string());
  return ended;
}

/// Finds changes by the script and adds them to the document's series. Returns the script's exit code.
int add_changes(Json& document, const std::string& plot) {
  const auto long_enough = [](const Json& series) { return series["points"].size() >= size_t{kMinRuns}; };
  if (plot.empty() && std::ranges::none_of(document["series"], long_enough)) return 0;
  const ScratchFolder scratch;
  const std::string file = scratch.file("series.json");
  write_whole_file(file, "a file for the series", [&](std::ostream& out) { out << document; });
  const CommandOutput ended = run_script(file, plot);
  if (ended.code != 0) return ended.code;
  const Json found = Json::parse(ended.out.substr(0, ended.out.find('\n')));
  for (size_t s = 0; s < found.size(); ++s)
    for (const Json& change : found[s]) {
      Json& series = document["series"][s];
      const Json& point = series["points"][change.at("at").get<size_t>()];
      Json row = change;
      for (const char* name : {"started", "commit", "dirty"}) row[name] = point[name];
      series["changes"].push_back(std::move(row));
    }
  return 0;
}

void print_series(const std::vector<Series>& all, const Json& document) {
  std::string machine;
  Table table({""}), changes({""});
  const auto flush = [&] {
    if (table.empty()) return;
    fmt::print("{}\n\n{}\n", machine, table.text());
    if (!changes.empty()) fmt::print("{}\n", changes.text());
  };
  for (size_t s = 0; s < all.size(); ++s) {
    const Series& series = all[s];
    const Json& found = document["series"][s]["changes"];
    if (s == 0 || series.machine != machine) {
      flush();
      machine = series.machine;
      table = Table({"series", "cases", "runs", "last", "of commit", "changes"});
      changes = Table({"change", "at commit", "started", "before", "after", "ratio"});
    }
    const bool enough = series.points.size() >= size_t{kMinRuns};
    table.add({series.group, fmt::format("{}", series.cases), fmt::format("{}", series.points.size()),
               human_seconds(series.points.back().value_s), commit_text(series.points.back()),
               enough ? fmt::format("{}", found.size()) : "too few runs"});
    for (const Json& change : found) {
      const SeriesPoint& at = series.points[change["at"].get<size_t>()];
      const double before = change["before_s"].get<double>(), after = change["after_s"].get<double>();
      changes.add({series.group, commit_text(at), at.started, human_seconds(before), human_seconds(after),
                   fmt::format("{:.3f}x", after / before)});
    }
  }
  flush();
}

}  // namespace

int run_history(const HistoryOptions& o) {
  CaseFilter filter(o.filter);
  const std::vector<Run> runs = runs_below(o.folder);
  const std::vector<Series> all = series_of(runs, filter, o.by);
  require<BadInput>(!all.empty(), "{}: found no measured case in {} runs, expected records with total_s or seconds",
                    o.folder, runs.size());
  Json document = document_of(all);
  if (const int code = add_changes(document, o.plot); code != 0) return code;
  if (o.json)
    fmt::print("{}\n", document_text(document));
  else
    print_series(all, document);
  return 0;
}

namespace {

/// The time of one case in one run.
struct Observation {
  const Run* run;
  std::string key;
  double log_s;
};

std::string text_of(const Fields& fields, std::string_view name) {
  const Scalar* found = fields.find(name);
  return found ? scalar_text(*found) : "";
}

/// Returns a text that identifies a case: its key, and how it was measured.
std::string identity_of(const CaseRecord& record) {
  std::string text = fmt::format("{} {} {} {}", record.key, record.backend, record.emulated, record.dilation != 1);
  for (const char* name : {"dtype", "algorithm"}) text += fmt::format(" {}", value_of(record, name).value_or(""));
  return text;
}

/// Returns "AMD EPYC, 2 cores, 24.0 GiB, x86_64, threads 2".
std::string machine_text(const RunHeader& run) {
  std::string text = text_of(run.machine, "cpu");
  if (const std::string cores = text_of(run.machine, "cores"); !cores.empty()) text += ", " + cores + " cores";
  if (run.machine.has("memory_bytes")) text += ", " + human_bytes(run.machine.number("memory_bytes", "machine"));
  if (const std::string kind = text_of(run.machine, "architecture"); !kind.empty()) text += ", " + kind;
  for (const auto& [name, value] : run.ranks)
    if (name != "interface") text += fmt::format(", {} {}", name, text_of(run.ranks, name));
  return text.empty() ? "unknown machine" : text;
}

/// The distinct machines of the runs. Runs of one machine may have described it in less detail than others.
class Machines {
 public:
  size_t index_of(const RunHeader& run) {
    const CaseRecord any;
    const auto same = [&](const RunHeader* known) { return !measured_difference(*known, any, run, any); };
    const auto found = std::ranges::find_if(known_, same);
    if (found != known_.end()) return static_cast<size_t>(found - known_.begin());
    known_.push_back(&run);
    return known_.size() - 1;
  }
  std::string text(size_t machine) const {
    const RunHeader& run = *known_[machine];
    const std::string text = machine_text(run), print = text_of(run.machine, "fingerprint");
    return print.empty() ? text : fmt::format("{}: {}", print, text);
  }

 private:
  std::vector<const RunHeader*> known_;
};

/// Splits the times into parts without a common run or case.
std::vector<std::vector<Observation>> joined(const std::vector<Observation>& all) {
  std::map<std::string, size_t> part_of_case;
  std::map<const Run*, size_t> part_of_run;
  std::vector<size_t> above(
      all.size());  // union-find over parts, named by their first entry; a merged part points to another one
  std::iota(above.begin(), above.end(), size_t{0});
  const auto top = [&](size_t part) {
    while (above[part] != part) part = above[part];
    return part;
  };
  for (size_t i = 0; i < all.size(); ++i) {
    above[top(i)] = top(part_of_run.try_emplace(all[i].run, i).first->second);
    above[top(i)] = top(part_of_case.try_emplace(all[i].key, i).first->second);
  }
  std::map<size_t, std::vector<Observation>> parts;
  for (size_t i = 0; i < all.size(); ++i) parts[top(i)].push_back(all[i]);
  std::vector<std::vector<Observation>> out;
  for (auto& [first, part] : parts) out.push_back(std::move(part));
  return out;
}

/// A running mean.
struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) { sum += value, ++count; }
  double value() const { return sum / count; }
};

/// Alternately fits the levels of cases and the values of runs, each to the mean residuals of the other, until the
/// values settle.
Series fitted(const std::vector<Observation>& seen) {
  constexpr int kMaxRounds = 10000;
  constexpr double kSettled = 1e-12;
  std::map<std::string, double> level;
  std::map<const Run*, double> value;
  for (const Observation& s : seen) value[s.run] = 0;
  double moved = 1;
  for (int round = 0; round < kMaxRounds && moved > kSettled; ++round) {
    std::map<std::string, Mean> of_case;
    for (const Observation& s : seen) of_case[s.key].add(s.log_s - value[s.run]);
    for (const auto& [key, mean] : of_case) level[key] = mean.value();
    std::map<const Run*, Mean> of_run;
    for (const Observation& s : seen) of_run[s.run].add(s.log_s - level[s.key]);
    moved = 0;
    for (const auto& [run, mean] : of_run) {
      moved = std::max(moved, std::abs(mean.value() - value[run]));
      value[run] = mean.value();
    }
  }
  Mean levels;
  for (const auto& [key, of_case] : level) levels.add(of_case);
  Series series;
  series.cases = levels.count;
  for (const auto& [run, of_run] : value) {
    const auto cases = std::ranges::count(seen, run, &Observation::run);
    series.points.push_back({run->header.started, text_of(run->header.git, "commit"),
                             text_of(run->header.git, "dirty") == "true", std::exp(levels.value() + of_run),
                             static_cast<int>(cases)});
  }
  std::ranges::sort(series.points, {}, [](const SeriesPoint& p) { return std::tie(p.started, p.commit, p.value_s); });
  return series;
}

}  // namespace

std::vector<Series> series_of(const std::vector<Run>& runs, CaseFilter& filter, const std::string& by) {
  Machines machines;
  std::map<std::pair<size_t, std::string>, std::vector<Observation>> groups;
  bool known = false, any = false;
  for (const Run& run : runs)
    for (const CaseRecord& record : run.cases) {
      if (is_regression_gate_launch(record) || is_repeat(record) || !filter.keeps(record)) continue;
      if (record.status != CaseStatus::ok) continue;
      const MainTime time = main_time(record);
      if (time.fault) continue;
      const auto group = value_of(record, by);
      any = true;
      known = known || group;
      groups[{machines.index_of(run.header), group.value_or("none")}].push_back(
          {&run, identity_of(record), std::log(time.seconds)});
    }
  filter.require_known();
  require<BadInput>(known || !any, "--by: found {}, which no case has, expected a parameter, schedule or family",
                    quoted_text(by));
  std::vector<Series> all;
  for (const auto& [name, seen] : groups)
    for (const std::vector<Observation>& part : joined(seen)) {
      all.push_back(fitted(part));
      all.back().machine = machines.text(name.first);
      all.back().group = name.second;
    }
  return all;
}

}  // namespace moe::regress
