#include "tuner/reproduce/reproduce_verb.h"

#include <cstdio>
#include <fstream>

#include "moe/base/check.h"
#include "moe/base/config_files.h"
#include "moe/record/writer.h"
#include "tuner/reproduce/report_data.h"
#include "tuner/reproduce/study.h"
#include "tuner/reproduce/tables.h"

namespace moe {
namespace {

// Every table from print alone, then with each example assumption file that is for it; the audit last.
std::vector<Report> all_reports() {
  std::vector<Assumptions> examples;
  for (const std::string& name : config_names("papers/assume")) examples.push_back(find_assumptions(name));
  Study study;
  std::vector<Report> reports;
  for (const PaperTable& table : kPaperTables) {
    study.assumed = nullptr;
    reports.push_back(reproduce(table.name, study));
    for (const Assumptions& example : examples) {
      if (!example.is_for(table.name)) continue;
      study.assumed = &example;
      reports.push_back(reproduce(table.name, study));
      reports.back().key += ", assuming " + example.name;
    }
  }
  study.assumed = nullptr;
  reports.push_back(fsmoe_audit(study));
  return reports;
}

std::vector<Report> asked_for(const ReproduceOptions& o) {
  require<BadInput>(!o.table.empty() + o.audit + o.all == 1,
                    "reproduce: found {}, expected one of TABLE, --audit and --all",
                    o.table.empty() && !o.audit && !o.all ? "none" : "several");
  require<BadInput>(o.assume.empty() || !o.table.empty(), "--assume: found {}, expected a TABLE with it", o.assume);
  require<BadInput>(o.write.empty() || o.all, "--write: found {}, expected --all with it", o.write);
  if (o.all) return all_reports();
  Study study;
  if (o.audit) return {fsmoe_audit(study)};
  if (o.assume.empty()) return {reproduce(o.table, study)};
  const Assumptions assumed = find_assumptions(o.assume);
  study.assumed = &assumed;
  return {reproduce(o.table, study)};
}

std::string page_of(const std::vector<Report>& reports) {
  std::string text = "# What the papers print, beside what moetune computes\n\n";
  text += wrapped(
      "Written by `./moetune reproduce --all --write docs/reproduction.md`; a test holds it to what the command "
      "prints. The papers' numbers are those of configs/papers/. Ours are replays of plans on coefficients that the "
      "papers print, read as each section says; nothing is tuned to make a number fit. What rests on a coefficient "
      "that no paper prints is left open ('-'), or computed from an example of configs/papers/assume/, whose rows are "
      "listed.",
      "");
  text += "\n";
  for (const Report& report : reports) text += report_text(report, ReportStyle::markdown);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

void write_page(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  require<BadInput>(bool(out.flush()), "--write: cannot write {}", path);
}

std::string records_of(const ReproduceOptions& o, const std::vector<Report>& reports) {
  const std::string what = o.all ? "all" : o.audit ? "audit" : o.table;
  const std::string path = o.out.empty() ? fmt::format("results/reproduce-{}.jsonl", what) : o.out;
  RecordWriter writer(path, o.argv, digest_of(fmt::format("reproduce {} {}", what, o.assume)));
  for (const Report& report : reports)
    for (const CaseRecord& record : records_of(report))
      if (writer.find(record.key) == nullptr) writer.append(record);
  writer.end();
  return path;
}

}  // namespace

std::string reproduction_page() { return page_of(all_reports()); }

int run_reproduce(const ReproduceOptions& options) {
  const std::vector<Report> reports = asked_for(options);
  if (!options.write.empty()) write_page(options.write, page_of(reports));
  const std::string path = records_of(options, reports);
  if (options.json) {
    Json documents = Json::array();
    for (const Report& report : reports) documents.push_back(to_json(report));
    Json document = documents.size() == 1 ? documents.front() : Json{{"tables", documents}};
    document["records"] = path;
    fmt::print("{}\n", document.dump(1));
    return 0;
  }
  if (!options.write.empty())
    fmt::print("{}: {} tables\n", options.write, reports.size());
  else
    for (const Report& report : reports) fmt::print("{}", report_text(report, ReportStyle::terminal));
  fmt::print("records: {}\n", path);
  return 0;
}

}  // namespace moe
