#include "commands/memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <numeric>

#include "commands/shared/results_json.h"
#include "moe/base/check.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"

namespace moe::commands {
namespace {

MemoryReport report_of(const MemoryOptions& o) {
  const Profile profile = commands::chosen_profile(o.selection);
  MemoryReport report;
  report.cluster = profile.name;
  const commands::ChosenModel chosen = framework_model(o.model, o.selection, profile);
  report.name = chosen.name;
  if (!o.model.framework.empty()) report.framework = o.model.framework;
  MemoryRequest& r = report.request;
  r.shape = chosen.model.shape;
  if (r.shape.parallel.trainer == Trainer::torchtitan && !o.selection.layer.zero)
    r.shape.parallel.zero = kMaxZeroStage;  // FSDP over all replicas
  r.layers = chosen.model.layers;
  r.dense = chosen.model.dense;
  report.whole = chosen.model.whole;
  r.vocabulary = chosen.vocabulary;
  r.tied_embedding = chosen.tied_embedding;
  r.micro_batches = chosen.model.micro_batches;
  r.order = chosen.model.order;
  r.virtual_stages = chosen.model.split().virtual_stages;
  report.capacity_bytes = profile.memory_bytes;
  if (o.memory_gib) report.capacity_bytes = *o.memory_gib * kGiB;
  return report;
}

// If the rank lacks memory, returns what it needs with flags that lower it: "--zero 1 --recompute full: 64.00 GiB".
std::vector<std::string> smaller(const MemoryReport& report) {
  std::vector<std::string> items;
  const MemoryEstimate estimate = estimate_memory(report.request);
  if (!report.capacity_bytes || !memory_refusal(estimate, *report.capacity_bytes)) return items;
  for (const Recompute again : {Recompute::none, Recompute::selective, Recompute::full}) {
    MemoryRequest less = report.request;
    ParallelShape& p = less.shape.parallel;
    if (again < p.recompute || (again == Recompute::full && less.shape.layer.parts > 1)) continue;
    const bool shards = p.zero == 0 && std::max(p.replicas(), p.edp) > 1;  // ZeRO 1 lowers what a rank needs
    std::string flags = shards ? "--zero 1" : "";
    if (again != p.recompute) flags += fmt::format("{}--recompute {}", flags.empty() ? "" : " ", name_of(again));
    if (shards) p.zero = 1;
    p.recompute = again;
    if (offload_refusal(less.shape)) continue;
    const double total = estimate_memory(less).total();
    if (!flags.empty() && total < estimate.total()) items.push_back(fmt::format("{}: {}", flags, human_bytes(total)));
  }
  return items;
}

void print_text(const MemoryReport& report) {
  const MemoryRequest& r = report.request;
  const ParallelShape& p = r.shape.parallel;
  const std::string table = memory_table(report);  // throws before anything is printed
  const std::string what = fmt::format("{} on {} ({} x {}): {}", report.name.empty() ? "layer" : report.name,
                                       report.cluster, counted(p.nodes, "node"), p.ranks_per_node,
                                       describe_layers(r.layers, r.dense, report.whole, r.shape.layer));
  const std::string ends = describe_ends(r.split());
  const std::string how = fmt::format(
      "pp {}{} dp {}{} mp {} ep {} esp {} edp {}; ZeRO {}, {} of {} micro-batches in flight ({}), recompute {}", p.pp,
      ends.empty() ? "" : " " + ends, p.dp, p.cp > 1 ? fmt::format(" cp {}", p.cp) : "", p.mp, p.ep, p.esp, p.edp,
      p.zero, micro_batches_in_flight(r, estimate_memory(r).stage), r.micro_batches,
      describe_order(r.order, r.virtual_stages), name_of(p.recompute));
  const std::string rules = report.framework == "moetune" ? "" : fmt::format(", kept as {} does", report.framework);
  fmt::print("{}\n{}\n\n{}", line_within_columns(what), line_within_columns(how + rules), table);
  if (p.offload != Offload::none)
    fmt::print("{} offloaded: {} of the host's memory\n", name_of(p.offload), human_bytes(estimate_memory(r).host));
  if (const std::vector<std::string> less = smaller(report); !less.empty())
    fmt::print("{}\n", line_within_columns(fmt::format("smaller if less is kept: {}", fmt::join(less, "; "))));
  if (!report.capacity_bytes)
    fmt::print("{} has no memory of a rank: set topology.memory_bytes in the profile, or --memory-gib\n",
               report.cluster);
}

/// Counts of layers over all of Table III, and over only the groups of Table IV.
struct ParmReport {
  ParmCounts table3, table4;
};

ParmReport parm_report(const MemoryOptions& o) {
  const std::vector<Grid> grids{find_grid("parm-a"), find_grid("parm-b")};
  const PartialLayerFields& fields = o.selection.layer.fields;
  ParmAssumptions assumed{fields.get(&LayerShape::top_k), fields.get(&LayerShape::experts)};
  ParmReport report{count_parm_layers(grids, assumed), {}};
  assumed.table4_groups = true;
  report.table4 = count_parm_layers(grids, assumed);
  return report;
}

void print_parm(const MemoryOptions& o, const ParmReport& report) {
  const PartialLayerFields& fields = o.selection.layer.fields;
  const auto experts = fields.get(&LayerShape::experts);
  fmt::print("Parm's layers (INFOCOM'24, Table III) that fit its GPUs, beside the {} it ran\n\n{}\n", kParmLayers,
             parm_table(report.table3));
  fmt::print("the same where N_MP and N_ESP are 2 or 4, of which Table IV has rows\n\n{}\n", parm_table(report.table4));
  fmt::print(
      "assumed, since not printed: k = {}, E = {}, GPT experts, float32, the MoE layer alone; a whole GPU's memory "
      "is free\n",
      fields.get(&LayerShape::top_k).value_or(2), experts ? fmt::format("{}", *experts) : "P / N_ESP");
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

namespace {

constexpr std::array kModels{ActivationModel::printed, ActivationModel::corrected, ActivationModel::counted};

MemoryEstimate estimate_by(const MemoryReport& report, ActivationModel model) {
  MemoryRequest request = report.request;
  request.activations = model;
  return estimate_memory(request);
}

std::string share(const MemoryEstimate& e, std::optional<double> capacity_bytes) {
  if (!capacity_bytes) return "unknown";
  if (memory_refusal(e, *capacity_bytes)) return "does not fit";
  return percent(e.total() / *capacity_bytes, 0);
}

int sum(const std::vector<int>& values) { return std::accumulate(values.begin(), values.end(), 0); }

/// Returns the layer as Parm's testbed would train it; none if its sizes do not divide.
std::optional<MemoryRequest> parm_request(const GridLayer& layer, Rounding rounding, const ParmAssumptions& assumed) {
  MemoryRequest r;
  r.dense_part = false;
  LayerShape shape = layer.shape;
  ParallelShape parallel = *layer.parallel;
  if (assumed.top_k) shape.top_k = *assumed.top_k;
  if (assumed.experts) {
    shape.experts = *assumed.experts;
    parallel.ep = static_cast<int>(std::min<int64_t>(parallel.ep, *assumed.experts));
  }
  try {
    r.shape = complete(std::move(shape), parallel, rounding);
  } catch (const BadInput&) {
    return std::nullopt;
  }
  return r;
}

std::vector<ParmCount> count_methods() {
  std::vector<ParmCount> ways;
  for (const bool optimizer : {false, true}) {
    for (const ActivationModel model : kModels) ways.push_back({model, false, optimizer, {}});
    ways.push_back({ActivationModel::counted, true, optimizer, {}});
  }
  return ways;
}

bool fits(MemoryRequest request, const ParmCount& way, double capacity_bytes) {
  request.activations = way.activations;
  request.flow = way.replicated ? Flow::replicated : Flow::sharded;
  MemoryEstimate e = estimate_memory(request);
  if (!way.optimizer) e.optimizer = 0;
  return !memory_refusal(e, capacity_bytes);
}

std::string label(const ParmCount& way) {
  return fmt::format("{}{}", name_of(way.activations), way.replicated ? ", baseline" : "");
}

}  // namespace

std::string memory_table(const MemoryReport& report) {
  const std::string capacity = report.capacity_bytes ? human_bytes(*report.capacity_bytes) : "a rank";
  Table table({"weights", "gradients", "optimizer", "activations", "buffers", "total", "of " + capacity});
  const MemoryEstimate e = estimate_by(report, ActivationModel::counted);
  table.add({human_bytes(e.weights), human_bytes(e.gradients), human_bytes(e.optimizer), human_bytes(e.activations),
             human_bytes(e.buffers), human_bytes(e.total()), share(e, report.capacity_bytes)});
  return table.text();
}

Json to_json(const MemoryReport& report) {
  const MemoryRequest& r = report.request;
  Json json{{"cluster", report.cluster}, {"framework", report.framework}};
  json["model"] = report.name.empty() ? Json() : Json(report.name);
  json["layers"] = r.layers;
  commands::add_layer_kinds(json, r.dense, report.whole, r.layers);
  json["layer"] = commands::to_json(r.shape);
  json["zero"] = r.shape.parallel.zero;
  json["micro_batches"] = r.micro_batches;
  const double in_flight = micro_batches_in_flight(r, estimate_by(report, ActivationModel::counted).stage);
  json["micro_batches_in_flight"] = r.virtual_stages == 1 ? Json(std::llround(in_flight)) : Json(in_flight);
  json["pipeline"] = name_of(r.order);
  json["virtual_stages"] = r.virtual_stages;
  json["recompute"] = name_of(r.shape.parallel.recompute);
  json["offload"] = name_of(r.shape.parallel.offload);
  json["memory_bytes"] = report.capacity_bytes ? Json(*report.capacity_bytes) : Json();
  json["estimates"] = Json::array();
  for (const ActivationModel model : kModels) {
    const MemoryEstimate e = estimate_by(report, model);
    Json row{{"activations_model", name_of(model)},
             {"stage", e.stage},
             {"weights_bytes", e.weights},
             {"gradients_bytes", e.gradients},
             {"optimizer_bytes", e.optimizer},
             {"activations_bytes", e.activations},
             {"buffers_bytes", e.buffers},
             {"total_bytes", e.total()},
             {"host_bytes", e.host},
             {"fits", nullptr},
             {"reason", nullptr}};
    if (report.capacity_bytes) {
      const auto refusal = memory_refusal(e, *report.capacity_bytes);
      row["fits"] = !refusal;
      if (refusal) row["reason"] = refusal->text();
    }
    json["estimates"].push_back(std::move(row));
  }
  return json;
}

ParmCounts count_parm_layers(const std::vector<Grid>& grids, const ParmAssumptions& assumptions) {
  ParmCounts out;
  out.counts = count_methods();
  for (const Grid& grid : grids) {
    for (const GridLayer& layer : grid.layers) {
      if (assumptions.table4_groups && layer.parallel && std::min(layer.parallel->mp, layer.parallel->esp) < 2)
        continue;
      require<BadInput>(layer.parallel && grid.memory_bytes,
                        "{}: found no [parallel] with memory_bytes, expected one to count what fits", grid.file);
      const std::string column = fmt::format("{} P{}", grid.name, layer.parallel->ranks());
      if (out.columns.empty() || out.columns.back() != column) {
        out.columns.push_back(column);
        out.layers.push_back(0);
        out.shaped.push_back(0);
        for (ParmCount& way : out.counts) way.fits.push_back(0);
      }
      ++out.layers.back();
      const auto request = parm_request(layer, grid.rounding, assumptions);
      if (!request) continue;
      ++out.shaped.back();
      for (ParmCount& way : out.counts) way.fits.back() += fits(*request, way, *grid.memory_bytes);
    }
  }
  return out;
}

std::string parm_table(const ParmCounts& counts) {
  std::vector<std::string> header{"activations", "states"};
  header.insert(header.end(), counts.columns.begin(), counts.columns.end());
  header.insert(header.end(), {"in all", fmt::format("of {}", kParmLayers)});
  Table table(std::move(header));
  const auto add = [&](std::vector<std::string> row, const std::vector<int>& values, const std::string& beside) {
    for (const int value : values) row.push_back(fmt::format("{}", value));
    row.push_back(fmt::format("{}", sum(values)));
    row.push_back(beside);
    table.add(std::move(row));
  };
  add({"(all combinations)", ""}, counts.layers, "");
  add({"(sizes that divide)", ""}, counts.shaped, "");
  for (const ParmCount& way : counts.counts)
    add({label(way), way.optimizer ? "weights, gradients, Adam" : "weights, gradients"}, way.fits,
        fmt::format("{:+d}", sum(way.fits) - kParmLayers));
  return table.text();
}

Json to_json(const ParmCounts& counts) {
  Json json{{"printed", kParmLayers},
            {"columns", counts.columns},
            {"layers", counts.layers},
            {"shaped", counts.shaped},
            {"counts", Json::array()}};
  for (const ParmCount& way : counts.counts)
    json["counts"].push_back({{"activations_model", name_of(way.activations)},
                              {"baseline", way.replicated},
                              {"optimizer", way.optimizer},
                              {"fits", way.fits},
                              {"total", sum(way.fits)}});
  return json;
}

}  // namespace moe::commands
