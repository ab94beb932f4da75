#include <array>
#include <cstdio>
#include <fmt/ranges.h>
#include <sstream>

#include "exchange/formats.h"
#include "exchange/plan_of_record.h"
#include "moe/base/file_text.h"
#include "moe/base/out_file.h"
#include "moe/base/registry.h"
#include "moe/base/statistics.h"
#include "moe/base/whole_file.h"
#include "moe/record/over_ranks.h"

namespace moe::exchange {
namespace {

struct ExportFormat {
  std::string_view name;
  void (*write)(const ExportOptions&, std::ostream&);
  std::string_view flags;  // that it reads, beside --out
};

constexpr std::array<ExportFormat, 10> kExportFormats{{
    {"csv", write_csv, "--per-element"},
    {"tutel", write_tutel, "--only"},
    {"fsmoe", write_fsmoe, "--only"},
    {"megatron", write_megatron, "--only"},
    {"deepspeed", write_deepspeed, "--only"},
    {"google-benchmark", write_google_benchmark, "--samples"},
    {"otava", write_otava_csv, ""},
    {"otava-json", write_otava_json, ""},
    {"plan", write_plan_document, "--cluster --only --schedule"},
    {"chakra", write_chakra, "--cluster --only --schedule"},
}};

// Refuses flags that the format does not read.
void check_read(const ExportFormat& format, const ExportOptions& o) {
  const std::pair<std::string_view, bool> given[] = {{"--cluster", !o.cluster.empty()},
                                                     {"--only", !o.only.empty()},
                                                     {"--schedule", !o.schedule.empty()},
                                                     {"--per-element", o.per_element},
                                                     {"--samples", o.samples}};
  for (const auto& [flag, is_given] : given)
    require<BadInput>(!is_given || format.flags.find(flag) != std::string_view::npos,
                      "{}: found format {}, which has no use for it", flag, format.name);
}

// Refuses a file that no format reads, and a plan where the format is one of records.
void check_file(const ExportFormat& format, const ExportOptions& o) {
  const bool of_plans = format.flags.find("--schedule") != std::string_view::npos;
  require<BadInput>(of_plans || !is_plan(o.file),
                    "{}: found a plan, expected records; of a plan export makes chakra or plan", o.file);
  require_other_file(o.out, {o.file, o.cluster});
}

}  // namespace

std::string export_formats() { return fmt::format("{}", fmt::join(row_names(kExportFormats), "|")); }

int run_export(const ExportOptions& options) {
  const ExportFormat& format = find_named(kExportFormats, options.format, "export");
  check_read(format, options);
  check_file(format, options);
  std::ostringstream text;
  format.write(options, text);
  const std::string all = text.str();
  if (options.out.empty()) {
    std::fwrite(all.data(), 1, all.size(), stdout);
  } else {
    make_folders_above(options.out);
    write_whole_file(options.out, "a file for the export", [&](std::ostream& out) { out << all; });
  }
  return 0;
}

void write_csv(const ExportOptions& options, std::ostream& out) {
  const bool records = unpacked_name(options.file).ends_with(".jsonl") || first_letter(options.file) == '{';
  if (!records) return write_profile_csv(options, out);
  require<BadInput>(!options.per_element, "--per-element: found records, expected a profile with it");
  const Run run = read_last_run(options.file);
  require<BadInput>(!run.cases.empty(), "{}: found a run without cases, expected one with cases", options.file);
  write_record_csv(run, out);
}

std::vector<double> samples_of(const CaseRecord& record) {
  for (const char* name : {"total_s", "seconds"})
    for (const Samples& samples : record.samples)
      if (samples.name == name) return max_over_ranks(samples.values);
  return {};
}

double seconds_of(const CaseRecord& record) {
  for (const char* name : {"total_s", "median_s"})
    if (record.summary.has(name)) return record.summary.number(name, record.where);
  if (const std::vector<double> samples = samples_of(record); !samples.empty()) return median(samples);
  return record.prediction.has("total_s") ? record.prediction.number("total_s", record.where) : 0;
}

}  // namespace moe::exchange
