#include "planner/memory.h"

#include "moe/base/check.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "planner/memory_report.h"

namespace moe::planner {
namespace {

MemoryReport report_of(const MemoryOptions& o) {
  const Profile profile = verbs::chosen_profile(o.selection);
  MemoryReport report;
  report.cluster = profile.name;
  const verbs::ChosenModel chosen = verbs::chosen_model(o.model, o.selection, profile);
  report.name = chosen.name;
  MemoryRequest& r = report.request;
  r.shape = chosen.model.shape;
  r.layers = chosen.model.layers;
  r.dense = chosen.model.dense;
  r.vocabulary = chosen.vocabulary;
  r.tied_embedding = chosen.tied_embedding;
  r.micro_batches = chosen.model.micro_batches;
  r.order = chosen.model.order;
  r.virtual_stages = chosen.model.split().virtual_stages;
  report.capacity_bytes = profile.memory_bytes;
  if (o.memory_gib) report.capacity_bytes = *o.memory_gib * kGiB;
  return report;
}

void print_text(const MemoryReport& report) {
  const MemoryRequest& r = report.request;
  const ParallelShape& p = r.shape.parallel;
  const std::string table = memory_table(report);  // throws before anything is printed
  const std::string what =
      fmt::format("{} on {} ({} x {}): {}", report.name.empty() ? "layer" : report.name, report.cluster,
                  counted(p.nodes, "node"), p.ranks_per_node, describe_layers(r.layers, r.dense, r.shape.layer));
  const std::string how =
      fmt::format("pp {} dp {} mp {} ep {} esp {} edp {}; ZeRO {}, {} of {} micro-batches in flight ({}), recompute {}",
                  p.pp, p.dp, p.mp, p.ep, p.esp, p.edp, p.zero, micro_batches_in_flight(r, estimate_memory(r).stage),
                  r.micro_batches, describe_order(r.order, r.virtual_stages), name_of(p.recompute));
  fmt::print("{}\n{}\n\n{}", fitted_line(what), fitted_line(how), table);
  if (!report.capacity_bytes)
    fmt::print("{} does not say how much memory a rank has: [topology] memory_bytes, or --memory-gib\n",
               report.cluster);
}

/// Counts layers over all of Table III, and over the groups of Table IV alone.
struct ParmReport {
  ParmCounts table3, table4;
};

ParmReport parm_report(const MemoryOptions& o) {
  const std::vector<Grid> grids{find_grid("parm-a"), find_grid("parm-b")};
  ParmAssumptions assumed{o.selection.layer.top_k, o.selection.layer.experts};
  ParmReport report{count_parm_layers(grids, assumed), {}};
  assumed.table4_groups = true;
  report.table4 = count_parm_layers(grids, assumed);
  return report;
}

void print_parm(const MemoryOptions& o, const ParmReport& report) {
  const verbs::LayerFlags& l = o.selection.layer;
  fmt::print("Parm's layers (INFOCOM'24, Table III) that fit its GPUs, beside the {} it ran\n\n{}\n", kParmLayers,
             parm_table(report.table3));
  fmt::print("the same where N_MP and N_ESP are 2 or 4, of which Table IV has rows\n\n{}\n", parm_table(report.table4));
  fmt::print(
      "assumed, since not printed: k = {}, E = {}, GPT experts, float32, the MoE layer alone; a whole GPU's memory "
      "is free\n",
      l.top_k.value_or(2), l.experts ? fmt::format("{}", *l.experts) : "P / N_ESP");
  fmt::print("baseline: DeepSpeed-MoE's replicated tokens, which had to run too\n");
  fmt::print(
      "1296 is also 8 x 162: N_MP, N_ESP in {{2, 4}}, as in Table IV, times B, L, H, M and f, on two clusters\n");
}

}  // namespace

int run_memory(const MemoryOptions& options) {
  if (options.parm) {
    const ParmReport report = parm_report(options);
    if (options.json)
      fmt::print("{}\n",
                 document_text(Json{{"table3", to_json(report.table3)}, {"table4_groups", to_json(report.table4)}}));
    else
      print_parm(options, report);
    return 0;
  }
  const MemoryReport report = report_of(options);
  if (options.json)
    fmt::print("{}\n", document_text(to_json(report)));
  else
    print_text(report);
  return 0;
}

}  // namespace moe::planner
