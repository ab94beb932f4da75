#include "commands/serve.h"

#include "commands/shared/record_files.h"
#include "commands/shared/results_json.h"
#include "commands/simulate.h"
#include "moe/base/log.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/record/writer.h"
#include "moe/serve/serving.h"
#include "moe/serve/synthetic_routing.h"
#include "moe/shape/model_file.h"

namespace moe::commands {
namespace {

// A layer as serving_plan takes it: what flags leave open has one expert a token and a rank, and no capacity.
struct ServedCase {
  LayerCase shape;
  int layers = 12;
};

ServedCase served_case(const SimulateOptions& o, const Profile& profile) {
  const commands::Selection& s = o.selection;
  const int64_t top_k = s.layer.fields.get(&LayerShape::top_k).value_or(1);
  require<Unsupported>(top_k == 1, "--top-k: found {}, expected one expert a token with --serve", top_k);
  ServedCase served;
  LayerFile base;
  if (!s.layer_file.empty()) base = find_layer(s.layer_file);
  if (!o.model.model.empty()) {
    const Model model = find_model(o.model.model);
    require<Unsupported>(model.dense == DenseRule{},
                         "--serve: found {}, which has dense layers, expected experts in all", model.name);
    base.layer = model.layer;
    base.name = model.name;
    served.layers = model.layers;
  }
  served.layers = o.model.layers.value_or(served.layers);
  const int ranks = profile.nodes * profile.ranks_per_node;
  base.parallel = {};
  base.parallel.mp = base.parallel.esp = 1;
  base.parallel.ep = ranks;
  if (base.layer.top_k != 1 && !(s.layer_file.empty() && o.model.model.empty()))
    log_warning(fmt::format("--serve: {} has top-k {}, served as top-1", base.name, base.layer.top_k));
  base.layer.top_k = 1;
  base.layer.capacity_factor = std::nullopt;
  if (base.layer.experts == 0) base.layer.experts = ranks;
  if (s.layer_file.empty() && o.model.model.empty() && profile.gpu) base.layer.dtype = DType::bfloat16;
  served.shape = commands::chosen_case(s, base, profile.nodes, profile.ranks_per_node);
  return served;
}

// The batches whose routing is profiled, and those that are served.
struct Routed {
  RoutingTrace profiled, served;
  std::string source;
};

Routed routed(const SimulateOptions& o, const ServedCase& served) {
  const ServeFlags& f = o.serve;
  const LayerShape& layer = served.shape.layer;
  const auto experts = static_cast<int>(layer.experts);
  const int64_t tokens = layer.batch * layer.seq * served.shape.parallel.ep;
  RoutingTrace all;
  std::string source;
  if (!f.routing.empty()) {
    all = read_routing_trace(f.routing, experts, tokens);
    require<BadInput>(all.batches() >= 2,
                      "--routing: found {} of {} tokens in {}, expected 2 or more, to profile and "
                      "to serve",
                      counted(static_cast<size_t>(all.batches()), "batch"), tokens, f.routing);
    source = f.routing;
  } else {
    RoutingSource synthetic{.layers = served.layers, .experts = experts, .seed = o.noise.seed.value_or(1)};
    synthetic.skew = f.skew.value_or(synthetic.skew);
    synthetic.correlation = f.correlation.value_or(synthetic.correlation);
    synthetic.drift = f.drift.value_or(synthetic.drift);
    all = draw_routing(synthetic, f.batches.value_or(kServeBatches), tokens);
    source = fmt::format("synthetic (skew {}, correlation {}, drift {}, seed {})", synthetic.skew,
                         synthetic.correlation, synthetic.drift, synthetic.seed);
  }
  const int64_t half = all.batches() / 2;
  return {all.part(0, half), all.part(half, all.batches() - half), source};
}

struct ServedVariant {
  const ServingVariant* variant;
  ServingResult result;
};

struct Percentiles {
  explicit Percentiles(const std::vector<double>& values)
      : p50(quantile(values, 0.5)), p95(quantile(values, 0.95)), p99(quantile(values, 0.99)) {}
  double p50, p95, p99;
};

// The numbers of a variant under the names that JSON and records have.
Fields numbers_of(const ServingResult& r) {
  const Percentiles batch(r.batch_s), layer(r.layer_s), alltoall(r.alltoall_s);
  Fields fields{{"batch_p50_s", batch.p50},
                {"batch_p95_s", batch.p95},
                {"batch_p99_s", batch.p99},
                {"layer_p50_s", layer.p50},
                {"layer_p95_s", layer.p95},
                {"layer_p99_s", layer.p99},
                {"alltoall_p50_s", alltoall.p50},
                {"alltoall_p95_s", alltoall.p95},
                {"alltoall_p99_s", alltoall.p99},
                {"idle_share", mean(r.idle)},
                {"most_idle_share", mean(r.most_idle)}};
  if (r.estimated > 0) {
    fields.set("estimate_accuracy", r.accuracy());
    fields.set("placed_again_share", r.placed_again_share());
  }
  fields.set("device_bytes", r.device_bytes);
  fields.set("host_bytes", r.host_bytes);
  return fields;
}

std::string table_text(const std::vector<ServedVariant>& all) {
  Table table({"variant", "batch p50 ms", "p95 ms", "p99 ms", "p50 over uniform", "p95", "layer p50 ms", "p95 ms",
               "p99 ms", "AlltoAll p50 ms", "p95 ms", "waiting", "estimate right", "placed again", "on a device",
               "on a host"});
  const Percentiles uniform(all.front().result.batch_s);
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e3); };
  for (const auto& [variant, r] : all) {
    const Percentiles batch(r.batch_s), layer(r.layer_s), alltoall(r.alltoall_s);
    const bool estimated = r.estimated > 0;
    table.add({std::string(variant->name), ms(batch.p50), ms(batch.p95), ms(batch.p99),
               fmt::format("{:.3f}x", uniform.p50 / batch.p50), fmt::format("{:.3f}x", uniform.p95 / batch.p95),
               ms(layer.p50), ms(layer.p95), ms(layer.p99), ms(alltoall.p50), ms(alltoall.p95), percent(mean(r.idle)),
               estimated ? percent(r.accuracy()) : "-", estimated ? percent(r.placed_again_share()) : "-",
               human_bytes(static_cast<double>(r.device_bytes)), human_bytes(static_cast<double>(r.host_bytes))});
  }
  return table.text();
}

void write_records(const SimulateOptions& o, const ServedCase& served, const Profile& profile, const Routed& routing,
                   const std::vector<ServedVariant>& all) {
  Fields parameters = commands::parameters_of(served.shape, profile.name, describe(served.shape.layer), {});
  parameters.set("layers", int64_t{served.layers});
  parameters.set("routing", routing.source);
  parameters.set("batches", routing.served.batches());
  parameters.set("path", int64_t{o.serve.path.value_or(kServePath)});
  RecordWriter writer(o.out, {o.asked, {profile.file, o.serve.routing}, {}});
  for (const auto& [variant, result] : all) {
    CaseRecord record;
    record.key = fmt::format("serve/{}", variant->name);
    record.parameters = parameters;
    record.parameters.set("variant", std::string(variant->name));
    record.backend = "none";
    record.prediction = numbers_of(result);
    if (writer.find(record.key) == nullptr) writer.append(record);
  }
  writer.end();
}

Json json_of(const ServedCase& served, const Profile& profile, const Routed& routing, const TraceStatistics& statistics,
             const std::vector<ServedVariant>& all) {
  Json variants = Json::array();
  for (const auto& [variant, result] : all) {
    Json row{{"variant", variant->name}};
    for (const auto& [name, value] : numbers_of(result)) std::visit([&, key = name](auto v) { row[key] = v; }, value);
    row["batch_s"] = result.batch_s;
    variants.push_back(std::move(row));
  }
  return {{"cluster", profile.name},
          {"layer", commands::to_json(served.shape)},
          {"layers", served.layers},
          {"routing", routing.source},
          {"profiled_batches", routing.profiled.batches()},
          {"served_batches", routing.served.batches()},
          {"most_over_least_tokens", statistics.most_over_least},
          {"most_over_mean_tokens", statistics.most_over_mean},
          {"next_expert_share", statistics.pattern_1},
          {"next_two_experts_share", statistics.pattern_2},
          {"variants", std::move(variants)}};
}

}  // namespace

int run_serve(const SimulateOptions& o) {
  const ServeFlags& f = o.serve;
  const bool synthetic = f.routing.empty();
  require<BadInput>(synthetic || !(f.skew || f.correlation || f.drift || f.batches || o.noise.seed || o.model.layers),
                    "--routing: found a trace and a flag of synthetic routing or its layers, expected one of them");
  const Profile profile = commands::chosen_profile(o.selection);
  ServedCase served = served_case(o, profile);
  const Routed routing = routed(o, served);
  served.layers = routing.served.layers;
  ServingSetup setup;
  setup.most_experts = f.pack.value_or(setup.most_experts);
  if (f.swap_gb_per_s) setup.costs.swap_bytes_per_s = 1e9 * *f.swap_gb_per_s;
  const LayerPricer pricer(profile, served.shape, commands::pricing_of(o.selection));
  Serving serving(pricer, setup);
  const int length = f.path.value_or(kServePath);
  require<BadInput>(length < served.layers, "--path-length: found {}, expected less than the layers, {}", length,
                    served.layers);
  const PathProfile paths(routing.profiled, length);
  if (!f.write_profile.empty()) paths.write(f.write_profile);
  std::vector<ServedVariant> all;
  for (const ServingVariant& variant : serving_variants())
    all.push_back({&variant, serving.run(variant, routing.served, &paths)});
  for (const PriceNote& note : serving.notes()) log_info(note.text());
  const TraceStatistics statistics = statistics_of(routing.served);
  const auto write = [&] {
    if (!o.out.empty()) write_records(o, served, profile, routing, all);
  };
  print_with_records(write, [&] {
    if (o.json) {
      fmt::print("{}\n", document_text(json_of(served, profile, routing, statistics, all)));
      return;
    }
    const std::string what = fmt::format(
        "{} on {} ({} x {}), {} served, {} profiled, routing {}", describe(served.shape.layer), profile.name,
        counted(profile.nodes, "node"), profile.ranks_per_node,
        counted(static_cast<size_t>(routing.served.batches()), "batch"), routing.profiled.batches(), routing.source);
    fmt::print("{}\n{}; the most popular expert has {:.2f}x the tokens of the least, {:.2f}x the mean\n\n{}",
               fitted_line(what), counted(static_cast<size_t>(served.layers), "layer"), statistics.most_over_least,
               statistics.most_over_mean, table_text(all));
  });
  return 0;
}

}  // namespace moe::commands
