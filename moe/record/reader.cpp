#include "moe/record/reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <ranges>
#include <span>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/file_text.h"
#include "moe/record/record_json.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

// Reads the file as it stands: a writer that goes on appends to it.
std::string text_of(const std::string& path) {
  std::error_code ignored;
  std::ifstream in;
  if (!fs::is_directory(path, ignored)) in.open(path, std::ios::binary);
  require<BadInput>(in.is_open(), "{}: found no readable file, expected records (JSON Lines)", path);
  std::string text;
  constexpr size_t kAtOnce = 1 << 20;
  for (size_t size = 0; in; text.resize(size += static_cast<size_t>(in.gcount()))) {
    text.resize(size + kAtOnce);
    in.read(text.data() + size, kAtOnce);
  }
  return text;
}

struct Line {
  std::string_view text;
  std::string where;
  bool torn = false;
};

std::vector<Line> lines_of(std::string_view text, const std::string& path) {
  std::vector<Line> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back({text.substr(begin, end - begin), fmt::format("{}:{}", path, lines.size() + 1), false});
    begin = end + 1;
  }
  return lines;
}

/// Says whether a killed writer of ours may have left this: it starts as every line of ours does.
bool may_be_torn(std::string_view text) {
  constexpr std::string_view kStart = "{\"kind\":\"";
  const size_t size = std::min(text.size(), kStart.size());
  return text.substr(0, size) == kStart.substr(0, size) && !is_complete_json(text);
}

/// Puts the lines together to runs.
class Assembler {
 public:
  void add(const Line& line) {
    RecordLine record = record_line_from(line.text, line.where);
    if (auto* header = std::get_if<RunHeader>(&record)) {
      runs_.emplace_back().header = std::move(*header);
      places_.clear();
      return;
    }
    if (runs_.empty() || runs_.back().ended)
      bad_input("{}: kind: found {} outside a run, expected 'run'", line.where, shown(line.text.substr(0, 24)));
    Run& run = runs_.back();
    if (auto* found = std::get_if<CaseRecord>(&record)) {
      add(std::move(*found), run);
    } else if (auto* group = std::get_if<CaseGroup>(&record)) {
      for (CaseRecord& one : group->cases) add(std::move(one), run);
    } else if (std::holds_alternative<ResumeMark>(record)) {
      ++run.resumed;
    } else {
      run.ended = true;
    }
  }
  std::vector<Run> take() { return std::move(runs_); }

 private:
  void add(CaseRecord&& record, Run& run) {
    const auto [place, added] = places_.try_emplace(record.key, run.cases.size());
    if (added)
      run.cases.push_back(std::move(record));
    else
      run.cases[place->second] = std::move(record);
  }

  std::vector<Run> runs_;
  std::map<std::string, size_t> places_;  // of the last run's keys
};

constexpr std::string_view kRunStart = R"({"kind":"run")", kEndStart = R"({"kind":"end")";

bool begins_anew(std::string_view text) {
  return text.starts_with(kRunStart) || text.starts_with(R"({"kind":"resume")");
}

std::vector<Run> runs_of(std::span<Line> lines) {
  bool broken_off = true;  // whether a writer may have been killed in this line: nothing of its run follows at once
  for (Line& line : std::views::reverse(lines)) {
    line.torn = broken_off && may_be_torn(line.text);
    broken_off = line.torn || begins_anew(line.text);
  }
  Assembler runs;
  for (const Line& line : lines)
    if (!line.torn) runs.add(line);
  return runs.take();
}

}  // namespace

std::vector<std::string> record_files(const std::string& path, bool below) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  const auto add = [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    if (unpacked_name(entry.path().string()).ends_with(".jsonl") && entry.is_regular_file(ignored))
      files.push_back(entry.path().string());
  };
  if (below)
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) add(*at);
  else
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) add(*at);
  require<BadInput>(!error, "{}: {}, expected a folder of records", path, error.message());
  require<BadInput>(!files.empty(), "{}: found no *.jsonl, expected records (JSON Lines)", path);
  std::ranges::sort(files);
  return files;
}

std::vector<Run> read_runs(const std::string& path) {
  const std::string text = text_of_file(path, "records (JSON Lines)");
  std::vector<Line> lines = lines_of(text, path);
  return runs_of(lines);
}

std::optional<Run> read_open_run(const std::string& path) {
  const std::string text = text_of(path);
  std::vector<Line> lines = lines_of(text, path);
  const auto whole = [](const Line& line, std::string_view start) {
    return line.text.starts_with(start) && is_complete_json(line.text);
  };
  const auto last = std::ranges::find_if(std::views::reverse(lines), [&](auto& l) { return whole(l, kRunStart); });
  std::span<Line> run = lines;
  if (last != lines.rend()) run = run.subspan(static_cast<size_t>(lines.rend() - last) - 1);
  if (run.size() < lines.size()) runs_of({lines.data(), 1});  // throws where the file is not ours
  std::vector<Line> ends;
  if (run.size() > 1 && whole(run.back(), kEndStart)) run = ends = {run.front(), run.back()};
  std::vector<Run> runs = runs_of(run);
  if (runs.empty()) return std::nullopt;
  return std::move(runs.back());
}

Run read_last_run(const std::string& path) {
  std::vector<Run> runs = read_runs(path);
  require<BadInput>(!runs.empty(), "{}: found no run, expected records with at least one", path);
  return std::move(runs.back());
}

}  // namespace moe
