#include "commands/serve.h"

#include "commands/shared/record_files.h"
#include "commands/shared/results_json.h"
#include "commands/shared/serving.h"
#include "commands/simulate.h"
#include "moe/base/log.h"
#include "moe/base/units.h"
#include "moe/record/record_json.h"
#include "moe/record/writer.h"

namespace moe::commands {
namespace {

void write_records(const SimulateOptions& o, const Profile& profile, const Fields& parameters,
                   const std::vector<ServedVariant>& all) {
  RecordWriter writer(o.out, {o.invocation, {profile.file, o.serve.routing}, {}});
  for (const ServedVariant& served : all) writer.append_new(record_of(served, parameters));
  writer.end();
}

Json variants_json(const std::vector<ServedVariant>& all) {
  Json variants = Json::array();
  for (const ServedVariant& served : all) {
    Json row{{"variant", served.variant->name}};
    row.update(to_json(numbers_of(served.predicted)));
    row["batch_s"] = served.predicted.batch_s;
    variants.push_back(std::move(row));
  }
  return variants;
}

}  // namespace

int run_serve(const SimulateOptions& o) {
  const ServeRequest request{o.serve, o.selection, o.model, o.noise.seed};
  const std::vector<const ServingVariant*> variants = chosen_variants(o.serve);
  const Profile profile = chosen_profile(o.selection);
  ServedCase served = served_case(request, profile);
  const LayerShape& layer = served.shape.layer;
  const RoutedBatches routing = routed_batches(request, served, layer.batch * layer.seq * served.shape.parallel.ep);
  const LayerPricer pricer(profile, served.shape, pricing_of(o.selection));
  Serving serving(pricer, serving_setup(o.serve));
  const PathProfile paths(routing.profiled, path_length(o.serve));
  if (!o.serve.write_profile.empty()) paths.write(o.serve.write_profile);
  std::vector<ServedVariant> all;
  for (const ServingVariant* variant : variants)
    all.push_back({variant, serving.run(*variant, routing.served, &paths)});
  for (const PriceNote& note : serving.notes()) log_info(note.text());
  const auto write = [&] {
    if (!o.out.empty()) write_records(o, profile, serving_parameters(request, served, routing, profile.name), all);
  };
  print_with_records(write, [&] {
    if (o.json) {
      fmt::print("{}\n", document_text(serving_json(served, routing, profile.name, variants_json(all))));
      return;
    }
    const std::string where =
        fmt::format("{} ({} x {})", profile.name, counted(profile.nodes, "node"), profile.ranks_per_node);
    fmt::print("{}\n{}", serving_heading(served, routing, where), table_text(all));
  });
  return 0;
}

}  // namespace moe::commands
