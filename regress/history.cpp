#include "regress/history.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/exit_code.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/shell_word.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/base/whole_file.h"
#include "regress/history_series.h"

namespace moe::regress {
namespace {

namespace fs = std::filesystem;

/// Makes a folder, which is removed with this object.
class ScratchFolder {
 public:
  ScratchFolder() : path_((fs::temp_directory_path() / "moetune-history-XXXXXX").string()) {
    require<BadInput>(::mkdtemp(path_.data()) != nullptr, "{}: cannot be made, expected a folder for temporary files",
                      path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<Run> runs_below(const std::string& folder) {
  std::error_code error;
  require<BadInput>(fs::is_directory(folder, error), "{}: found no folder, expected one of records", folder);
  std::vector<Run> runs;
  for (const std::string& file : record_files(folder, true)) {
    try {
      std::ranges::move(read_runs(file), std::back_inserter(runs));
    } catch (const BadInput& fault) {  // one file of many
      log_warning(fmt::format("passed over: {}", fault.what()));
    }
  }
  return runs;
}

std::string shown_commit(const SeriesPoint& p) { return p.commit.substr(0, 12) + (p.dirty ? "-dirty" : ""); }

Json to_json(const SeriesPoint& p) {
  return {{"started", p.started}, {"commit", p.commit}, {"dirty", p.dirty}, {"value_s", p.value_s}, {"cases", p.cases}};
}

Json document_of(const std::vector<Series>& all) {
  Json json{{"least_runs", kLeastRuns}, {"series", Json::array()}};
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

struct Ended {
  int code = 0;
  std::string out;
};

Ended run_script(const std::string& file, const std::string& plot) {
  const char* python = std::getenv("MOETUNE_PYTHON");
  const fs::path script = fs::path(config_dir()).parent_path() / "plots" / "history.py";
  std::string command = fmt::format("exec {} -B {} {}", shell_word(python && *python ? python : "python3"),
                                    shell_word(script.string()), shell_word(file));
  if (!plot.empty()) command += fmt::format(" --out {}", shell_word(plot));
  std::FILE* pipe = ::popen(command.c_str(), "r");
  require<std::runtime_error>(pipe != nullptr, "history: {}: cannot be started", script.string());
  Ended ended;
  std::array<char, 4096> part{};
  while (const size_t size = std::fread(part.data(), 1, part.size(), pipe)) ended.out.append(part.data(), size);
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (ended.code == 126 || ended.code == 127) ended.code = kNoHardware;  // the shell has printed that there is none
  const bool known = ended.code == kOk || ended.code == kBadInput || ended.code == kNoHardware;
  require<std::runtime_error>(known, "history: {}: failed", script.string());
  return ended;
}

/// Puts the changes into the document's series. Returns the script's exit code.
int add_changes(Json& document, const std::string& plot) {
  const auto long_enough = [](const Json& series) { return series["points"].size() >= size_t{kLeastRuns}; };
  if (plot.empty() && std::ranges::none_of(document["series"], long_enough)) return 0;
  const ScratchFolder scratch;
  const std::string file = scratch.file("series.json");
  write_whole_file(file, "a file for the series", [&](std::ostream& out) { out << document; });
  const Ended ended = run_script(file, plot);
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
    const bool enough = series.points.size() >= size_t{kLeastRuns};
    table.add({series.group, fmt::format("{}", series.cases), fmt::format("{}", series.points.size()),
               human_seconds(series.points.back().value_s), shown_commit(series.points.back()),
               enough ? fmt::format("{}", found.size()) : "too few runs"});
    for (const Json& change : found) {
      const SeriesPoint& at = series.points[change["at"].get<size_t>()];
      const double before = change["before_s"].get<double>(), after = change["after_s"].get<double>();
      changes.add({series.group, shown_commit(at), at.started, human_seconds(before), human_seconds(after),
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

}  // namespace moe::regress
