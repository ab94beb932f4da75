#include "commands/shared/serving.h"

#include <algorithm>

#include "commands/shared/chosen_model.h"
#include "commands/shared/results_json.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/serve/synthetic_routing.h"
#include "moe/shape/model_file.h"

namespace moe::commands {
namespace {

struct Percentiles {
  explicit Percentiles(const std::vector<double>& values)
      : p50(quantile(values, 0.5)), p95(quantile(values, 0.95)), p99(quantile(values, 0.99)) {}
  double p50, p95, p99;
};

}  // namespace

ServedCase served_case(const ServeRequest& o, const Profile& profile) {
  const Selection& s = o.selection;
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
    base.names_dtype = model.names_dtype;
    if (!model.windowed_layers.empty() && !s.layer.fields.get(&LayerShape::window)) {
      log_warning(fmt::format("--serve: {} has windows of {} tokens in some layers, served without windows", model.name,
                              base.layer.window));
      base.layer.window = 0;
    }
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
  if (!base.names_dtype) base.layer.dtype = default_dtype(profile);
  served.shape = chosen_case(s, base, profile.nodes, profile.ranks_per_node);
  return served;
}

RoutedBatches routed_batches(const ServeRequest& o, ServedCase& served, int64_t tokens) {
  const ServeFlags& f = o.flags;
  const auto experts = static_cast<int>(served.shape.layer.experts);
  require<BadInput>(f.routing.empty() || !(f.skew || f.correlation || f.drift || f.batches || o.seed || o.model.layers),
                    "--routing: found a trace and a flag of synthetic routing or its layers, expected one of them");
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
    SyntheticRouting synthetic{.layers = served.layers, .experts = experts, .seed = o.seed.value_or(1)};
    synthetic.skew = f.skew.value_or(synthetic.skew);
    synthetic.correlation = f.correlation.value_or(synthetic.correlation);
    synthetic.drift = f.drift.value_or(synthetic.drift);
    all = generate_routing(synthetic, f.batches.value_or(o.batches), tokens);
    source = fmt::format("synthetic (skew {}, correlation {}, drift {}, seed {})", synthetic.skew,
                         synthetic.correlation, synthetic.drift, synthetic.seed);
  }
  served.layers = all.layers;
  require<BadInput>(path_length(f) < served.layers, "--path-length: found {}, expected less than the layers, {}",
                    path_length(f), served.layers);
  const int64_t half = all.batches() / 2;
  return {all.part(0, half), all.part(half, all.batches() - half), source};
}

int path_length(const ServeFlags& flags) { return flags.path.value_or(kServePath); }

std::vector<const ServingVariant*> chosen_variants(const ServeFlags& flags) {
  std::vector<const ServingVariant*> chosen;
  for (const std::string& name : flags.variants) find_named(serving_variants(), name, "--variant");
  for (const ServingVariant& variant : serving_variants())
    if (flags.variants.empty() || std::ranges::find(flags.variants, variant.name) != flags.variants.end())
      chosen.push_back(&variant);
  return chosen;
}

ServingSetup serving_setup(const ServeFlags& flags) {
  ServingSetup setup;
  setup.max_experts = flags.pack.value_or(setup.max_experts);
  if (flags.swap_gb_per_s) setup.costs.swap_bytes_per_s = 1e9 * *flags.swap_gb_per_s;
  return setup;
}

double ServedVariant::measured_over_predicted() const {
  std::vector<double> ratios;
  for (size_t i = 0; i < predicted.batch_s.size(); ++i) ratios.push_back(result().batch_s[i] / predicted.batch_s[i]);
  return median(ratios);
}

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
  const bool ran = all.front().measured.has_value();
  std::vector<std::string> heads{"variant", "batch p50 ms", "p95 ms", "p99 ms"};
  if (ran) heads.insert(heads.end(), {"model p50 ms", "error"});
  heads.insert(heads.end(),
               {fmt::format("p50 over {}", all.front().variant->name), "p95", "layer p50 ms", "p95 ms", "p99 ms",
                "AlltoAll p50 ms", "p95 ms", "waiting", "estimate right", "placed again", "on a device", "on a host"});
  Table table(heads);
  const Percentiles first(all.front().result().batch_s);
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e3); };
  for (const ServedVariant& served : all) {
    const ServingResult& r = served.result();
    const Percentiles batch(r.batch_s), layer(r.layer_s), alltoall(r.alltoall_s);
    const bool estimated = r.estimated > 0;
    std::vector<std::string> row{std::string(served.variant->name), ms(batch.p50), ms(batch.p95), ms(batch.p99)};
    if (ran) {
      row.push_back(ms(Percentiles(served.predicted.batch_s).p50));
      row.push_back(fmt::format("{:+.2f} %", 100 * (served.measured_over_predicted() - 1)));
    }
    row.insert(row.end(),
               {fmt::format("{:.3f}x", first.p50 / batch.p50), fmt::format("{:.3f}x", first.p95 / batch.p95),
                ms(layer.p50), ms(layer.p95), ms(layer.p99), ms(alltoall.p50), ms(alltoall.p95), percent(mean(r.idle)),
                estimated ? percent(r.accuracy()) : "-", estimated ? percent(r.placed_again_share()) : "-",
                human_bytes(static_cast<double>(r.device_bytes)), human_bytes(static_cast<double>(r.host_bytes))});
    table.add(std::move(row));
  }
  return table.text();
}

CaseRecord record_of(const ServedVariant& served, const Fields& parameters) {
  CaseRecord record;
  record.key = fmt::format("serve/{}", served.variant->name);
  record.parameters = parameters;
  record.parameters.set("variant", std::string(served.variant->name));
  record.backend = "none";
  record.prediction = numbers_of(served.predicted);
  return record;
}

Fields serving_parameters(const ServeRequest& o, const ServedCase& served, const RoutedBatches& routing,
                          const std::string& cluster) {
  Fields parameters = parameters_of(served.shape, cluster, describe(served.shape.layer), {});
  parameters.set("layers", int64_t{served.layers});
  parameters.set("routing", routing.source);
  parameters.set("batches", routing.served.batches());
  parameters.set("path", int64_t{path_length(o.flags)});
  return parameters;
}

Json serving_json(const ServedCase& served, const RoutedBatches& routing, const std::string& cluster, Json variants) {
  const TraceStatistics statistics = statistics_of(routing.served);
  return {{"cluster", cluster},
          {"layer", to_json(served.shape)},
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

std::string serving_heading(const ServedCase& served, const RoutedBatches& routing, const std::string& where) {
  const TraceStatistics statistics = statistics_of(routing.served);
  const std::string what = fmt::format("{} on {}, {} served, {} profiled, routing {}", describe(served.shape.layer),
                                       where, counted(static_cast<size_t>(routing.served.batches()), "batch"),
                                       routing.profiled.batches(), routing.source);
  return fmt::format("{}\n{}; the most popular expert has {:.2f}x the tokens of the least, {:.2f}x the mean\n",
                     line_within_columns(what), counted(static_cast<size_t>(served.layers), "layer"),
                     statistics.most_over_least, statistics.most_over_mean);
}

}  // namespace moe::commands
