// The verbs that speak other people's formats.
#include "cli/flag_kinds.h"

namespace moe::cli {

void add_export(CLI::App& app, Command& c) {
  exchange::ExportOptions& o = c.export_out;
  CLI::App* verb = add_verb(app, "export", "write a profile, records or a plan in other formats (docs/exchange.md)",
                            " csv testbed-b --per-element");
  verb->add_option("FORMAT", o.format, "of what is written")->type_name(exchange::export_formats())->required();
  verb->add_option("FILE", o.file, "a profile, records or a plan; of otava a folder of records too")
      ->type_name("")
      ->required();
  add_text(*verb, "--cluster", "CLUSTER|FILE", o.cluster, "prices a plan; default: the records' own");
  add_text(*verb, "--only", "NAME", o.only, "of records: this layer, by its name");
  add_text(*verb, "--schedule", "SCHEDULE", o.schedule, "of records: this schedule's plan; default: the fastest");
  begin_group(*verb, kHow);
  verb->add_flag("--per-element", o.per_element, "csv of a profile: betas of a float32 element, as papers print them");
  verb->add_flag("--samples", o.samples, "google-benchmark: every sample as a repetition; default: their median");
  begin_group(*verb, kOutput);
  add_text(*verb, "-o,--out", "FILE", o.out, "default: standard output");
}

void add_import(CLI::App& app, Command& c) {
  exchange::ImportOptions& o = c.import_in;
  CLI::App* verb = add_verb(app, "import", "read measurements of other tools as records for fit",
                            " nccl-tests all_reduce.txt alltoall.txt --out results/imported.jsonl");
  verb->add_option("FORMAT", o.format, "of what is read")->type_name(exchange::import_formats())->required();
  verb->add_option("FILE", o.files, "one or several")->type_name("")->required();
  add_text(*verb, "--cluster", "NAME", o.cluster, "name of the cluster in the records");
  begin_group(*verb, kHow);
  add_text(*verb, "--op", "alltoall|allgather|reducescatter|allreduce|sendrecv", o.op,
           "nccl-tests: the operation, where the file does not say");
  add_text(*verb, "--network", "inter|intra", o.network, "of the groups, where the files do not say");
  add_number(*verb, "--nodes", o.nodes, "of the cluster; default: as the files say", {1, kMostNodes});
  add_number(*verb, "--ranks", o.ranks, "of a group, where the files do not say", {2, 1e6});
  add_number(*verb, "--ranks-per-node", o.ranks_per_node, "of the cluster; default: as the files say",
             {1, kMostRanksPerNode});
  verb->add_flag("--in-place", o.in_place, "nccl-tests: the in-place columns; default: out of place");
  add_text(*verb, "--map", "FILE", o.map, "kineto: CSV of kernel, kind; what kernels of other names do");
  begin_group(*verb, kOutput);
  add_text(*verb, "-o,--out", "FILE", o.out, "the records; of csv-profile the profile");
  add_overwrite(*verb);
}

}  // namespace moe::cli
