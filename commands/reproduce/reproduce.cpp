#include "commands/reproduce/reproduce.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>

#include "commands/reproduce/measured_runs.h"
#include "commands/reproduce/page.h"
#include "commands/reproduce/report.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/base/files.h"
#include "moe/record/writer.h"

namespace moe::reproduce {
namespace {

std::vector<Report> requested_reports(const ReproduceOptions& o) {
  require<BadInput>(!o.table.empty() + o.audit + o.all == 1,
                    "reproduce: found {}, expected one of TABLE, --audit and --all",
                    o.table.empty() && !o.audit && !o.all ? "none" : "several");
  require<BadInput>(o.assume.empty() || !o.table.empty(), "--assume: found {}, expected a TABLE with it", o.assume);
  require<BadInput>(o.write.empty() || o.all, "--write: found {}, expected --all with it", o.write);
  const bool measured = o.measure || !o.records.empty();
  require<BadInput>(!measured || !o.table.empty(), "--measure, --records: found {}, expected a TABLE with it",
                    o.all ? "--all" : "--audit");
  require<BadInput>(o.runs.empty() || o.table == "training", "--runs: found {}, expected the table training with it",
                    o.runs);
  if (o.all) return all_reports();
  Study study;
  study.runs = o.runs;
  std::optional<commands::FileRun> ran;
  if (measured) study.measured = &ran.emplace(measured_runs(o.table, o.records));
  if (o.audit) return {fsmoe_audit(study)};
  if (o.assume.empty()) return {reproduce(o.table, study)};
  const Assumptions assumed = find_assumptions(o.assume);
  study.assumed = &assumed;
  return {reproduce(o.table, study)};
}

// Returns the files that any table may read: all of configs, sorted, the assumptions and the records.
std::vector<std::string> files_read(const ReproduceOptions& o) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(config_dir()))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  if (!o.assume.empty()) files.push_back(find_config("papers/assume", o.assume));
  if (!o.runs.empty()) files.push_back(o.runs);
  if (o.measure || !o.records.empty()) files.push_back(measured_file(o.table, o.records));
  return files;
}

void write_records(const std::string& path, const ReproduceOptions& o, const std::vector<Report>& reports) {
  RecordWriter writer(path, {o.invocation, files_read(o), {}});
  for (const Report& report : reports)
    for (const CaseRecord& record : records_of(report)) writer.append_new(record);
  writer.end();
}

// True for a terminal, a pipe or a device, to which all pages are written one after the other.
bool is_stream(const std::filesystem::path& file) { return exists(file) && !is_regular_file(file); }

// Returns the folder for the papers' pages: FILE's name without its extension.
std::filesystem::path folder_beside(const std::filesystem::path& file) {
  if (!file.has_extension()) return file.string() + "-pages";
  return std::filesystem::path(file).replace_extension();
}

void write_pages(const std::filesystem::path& file, const std::vector<Report>& reports) {
  const std::vector<MarkdownPage> pages = pages_of(reports, file, folder_beside(file));
  const auto write = [](const std::filesystem::path& path, std::span<const MarkdownPage> texts) {
    write_whole_file(path, "a file for a page (--write)", [&](std::ostream& out) {
      for (const MarkdownPage& page : texts) out << page.text;
    });
  };
  if (is_stream(file)) return write(file, pages);
  for (const MarkdownPage& page : pages) write(page.path, {&page, 1});
}

void print_answer(const std::string& path, const ReproduceOptions& options, const std::vector<Report>& reports) {
  if (options.json) {
    Json documents = Json::array();
    for (const Report& report : reports) documents.push_back(to_json(report));
    Json document = documents.size() == 1 ? documents.front() : Json{{"tables", documents}};
    document["records"] = path;
    fmt::print("{}\n", document_text(document));
    return;
  }
  if (!options.write.empty())
    fmt::print("{}: {} tables\n", options.write, reports.size());
  else
    for (const Report& report : reports) fmt::print("{}", report_text(report, ReportStyle::terminal));
  fmt::print("records: {}\n", path);
}

}  // namespace

int run_reproduce(const ReproduceOptions& options) {
  if (options.all && !options.write.empty() && !is_stream(options.write))
    require_targets(std::array{OutTarget{"--write", folder_beside(options.write), true}});
  const std::vector<Report> reports = requested_reports(options);
  if (!options.write.empty()) write_pages(options.write, reports);
  const std::string what = options.all ? "all" : options.audit ? "audit" : options.table;
  const std::string path = options.out.empty() ? fmt::format("results/reproduce-{}.jsonl", what) : options.out;
  print_with_records([&] { write_records(path, options, reports); }, [&] { print_answer(path, options, reports); });
  return 0;
}

}  // namespace moe::reproduce
