// The verb that makes a page of records.
#include "cli/flag_kinds.h"

namespace moe::cli {

void add_report(CLI::App& app, Command& c) {
  report::ReportOptions& o = c.report;
  CLI::App* verb = add_verb(app, "report", "write records of any verb as one HTML page that opens offline",
                            " results/tune-testbed-b.jsonl --out report.html");
  verb->add_option("RECORDS", o.records, "files of records, gzipped ones too")->type_name("")->required();
  add_text(*verb, "--cluster", "CLUSTER|FILE", o.cluster,
           "profile that prices the replays; default: what the records' own operations fit, else their cluster");
  begin_group(*verb, kHow);
  add_number(*verb, "--timelines", o.timelines, "layers that the page replays; default: 8", {0, 100});
  begin_group(*verb, kOutput);
  add_text(*verb, "-o,--out", "FILE", o.out, "the page");
}

}  // namespace moe::cli
