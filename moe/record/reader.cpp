#include "moe/record/reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <ranges>
#include <span>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/record/record_json.h"

namespace moe {
namespace {

namespace fs = std::filesystem;

// Returns the current contents of the file, to which a writer may append meanwhile.
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

/// Iterates over the lines of a text without a list of them, which would be too large for a text of only newlines.
class Lines {
 public:
  Lines(std::string_view text, const std::string& path) : text_(text), path_(&path) {}

  /// Moves to the next line, the first time to the first line. Returns false after the last line.
  bool next() {
    if (behind_ >= text_.size()) return false;
    const size_t end = std::min(text_.find('\n', behind_), text_.size());
    line_ = text_.substr(behind_, end - behind_);
    behind_ = end + 1;
    ++number_;
    return true;
  }
  std::string_view line() const { return line_; }
  std::string where() const { return fmt::format("{}:{}", *path_, number_); }

 private:
  std::string_view text_, line_;
  const std::string* path_;
  size_t behind_ = 0, number_ = 0;
};

/// Returns whether this line may be the incomplete last line of a killed writer: it begins like a record and is no
/// complete JSON.
bool may_be_torn(std::string_view text) {
  constexpr std::string_view kStart = "{\"kind\":\"";
  const size_t size = std::min(text.size(), kStart.size());
  return text.substr(0, size) == kStart.substr(0, size) && !is_complete_json(text);
}

/// Assembles lines into runs.
class Assembler {
 public:
  void add(std::string_view line, const std::string& where) {
    RecordLine record = record_line_from(line, where);
    if (auto* header = std::get_if<RunHeader>(&record)) {
      runs_.emplace_back().header = std::move(*header);
      places_.clear();
      return;
    }
    if (runs_.empty() || runs_.back().ended)
      bad_input("{}: kind: found {} outside a run, expected 'run'", where, quoted_text(line.substr(0, 24)));
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
  std::map<std::string, size_t> places_;  // for each key of the last run, the index of its case
};

constexpr std::string_view kRunStart = R"({"kind":"run")", kEndStart = R"({"kind":"end")";

bool is_run_start(std::string_view text) {
  return text.starts_with(kRunStart) || text.starts_with(R"({"kind":"resume")");
}

/// Returns the runs in the current line of `lines` and all lines after it.
std::vector<Run> runs_from(Lines lines, Assembler runs = {}) {
  bool torn = false;  // lines from first_torn on look torn; they are, if a run begins or the text ends after them
  Lines first_torn = lines;
  do {
    if (is_run_start(lines.line())) torn = false;
    if (may_be_torn(lines.line())) {
      if (!std::exchange(torn, true)) first_torn = lines;
      continue;
    }
    if (torn) runs.add(first_torn.line(), first_torn.where());
    runs.add(lines.line(), lines.where());
  } while (lines.next());
  return runs.take();
}

}  // namespace

std::vector<std::string> record_files(const std::string& path, bool below) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  const auto add = [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    if (without_gz_suffix(entry.path().string()).ends_with(".jsonl") && entry.is_regular_file(ignored))
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
  Lines lines(text, path);
  return lines.next() ? runs_from(lines) : std::vector<Run>();
}

std::optional<Run> read_open_run(const std::string& path) {
  const std::string text = text_of(path);
  Lines lines(text, path);
  if (!lines.next()) return std::nullopt;
  const Lines first = lines;
  Lines start = lines, last = lines;
  const auto whole = [](const Lines& at, std::string_view begin) {
    return at.line().starts_with(begin) && is_complete_json(at.line());
  };
  do {
    if (whole(lines, kRunStart)) start = lines;
    last = lines;
  } while (lines.next());
  Assembler runs;
  // Throws if the file is not a records file.
  if (start.where() != first.where() && !may_be_torn(first.line())) Assembler().add(first.line(), first.where());
  if (last.where() != start.where() && whole(last, kEndStart)) {
    runs.add(start.line(), start.where());
    start = last;
  }
  std::vector<Run> read = runs_from(start, std::move(runs));
  if (read.empty()) return std::nullopt;
  return std::move(read.back());
}

Run read_last_run(const std::string& path) {
  std::vector<Run> runs = read_runs(path);
  require<BadInput>(!runs.empty(), "{}: found no run, expected records with at least one", path);
  return std::move(runs.back());
}

}  // namespace moe
