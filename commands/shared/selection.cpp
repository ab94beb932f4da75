#include "commands/shared/selection.h"

#include <algorithm>
#include <array>

#include "moe/base/config_files.h"
#include "moe/base/registry.h"

namespace moe::commands {
namespace {

constexpr std::array<std::string_view, 9> kWholeSystems{"ds-moe", "tutel", "pipemoe+lina", "fsmoe", "fsmoe-dw",
                                                        "parm",   "monta", "lina",         "wave"};

template <class To, class From>
void override_with(To& value, const std::optional<From>& flag) {
  if (flag) value = static_cast<To>(*flag);
}

// Returns whether `is` is true for the schedule or for one of its variants.
template <class Is>
bool any_variant(const Schedule& schedule, Is is) {
  return is(schedule) || std::ranges::any_of(schedule.variants, [&](const Schedule* variant) { return is(*variant); });
}

void check_read(const DegreeChoice& degrees, const std::vector<const Schedule*>& schedules) {
  const auto read_by = [&](auto is) {
    return std::ranges::any_of(schedules, [&](const Schedule* schedule) { return any_variant(*schedule, is); });
  };
  require<BadInput>(
      degrees.min_chunk_bytes == 0 || read_by([](const Schedule& s) { return s.flow == Flow::dropped; }),
      "--min-chunk-bytes: found no schedule of MoNTA's that cuts chunks, expected --schedule monta, -o2 or -o3");
  require<BadInput>(
      degrees.micro_op_bytes == kMicroOpBytes || read_by(sends_pieces),
      "--micro-op-bytes: found no schedule that cuts gradients into pieces, expected --schedule pipemoe+lina or one of "
      "Lina's");
}

}  // namespace

Profile chosen_profile(const Selection& selection) {
  require<BadInput>(selection.cluster != kHostCluster,
                    "--cluster: found {}, this machine's threads, which tune and the benches measure; "
                    "expected a profile, as microbench --cluster {} and fit make one",
                    kHostCluster, kHostCluster);
  return find_profile(selection.cluster, selection.nodes);
}

PricingOptions pricing_of(const Selection& selection) {
  return {selection.nearest, "--nearest", selection.nearest,
          "`moetune fit --compute-from h100-8` takes those of a preset"};
}

std::vector<const Schedule*> chosen_schedules(const Selection& selection, const ScheduleTable& all,
                                              std::string_view by_default) {
  std::vector<const Schedule*> chosen;
  const auto add = [&](const Schedule& schedule) {
    if (std::ranges::find(chosen, &schedule) == chosen.end()) chosen.push_back(&schedule);
  };
  const auto add_named = [&](std::string_view name) {
    if (name != kAllSchedules && name != kDefaultSchedules) return add(find_named(all_schedules(), name, "--schedule"));
    for (const Schedule& schedule : all)
      if (name == kAllSchedules || std::ranges::find(kWholeSystems, schedule.name) != kWholeSystems.end())
        add(schedule);
  };
  if (selection.schedules.empty()) add_named(by_default);
  for (const std::string& name : selection.schedules) add_named(name);
  check_read(selection.degrees, chosen);
  return chosen;
}

LayerCase chosen_case(const Selection& selection, int nodes, int ranks_per_node) {
  LayerFile file;
  if (!selection.layer_file.empty()) file = find_layer(selection.layer_file);
  return chosen_case(selection, std::move(file), nodes, ranks_per_node);
}

LayerCase chosen_case(const Selection& selection, LayerFile file, int nodes, int ranks_per_node) {
  selection.layer.fields.apply_to(file.layer);
  const auto limit = selection.layer.fields.get(&LayerShape::node_limit);
  const int64_t groups = file.layer.router_groups;
  const int64_t places = groups > 0 ? groups : nodes;
  require<BadInput>(
      !limit || *limit<places, "--node-limit: found {}, expected less than the {}, {}", limit.value_or(0), groups> 0
          ? "router's groups"
          : "cluster's nodes",
      places);
  file.parallel.nodes = nodes;
  file.parallel.ranks_per_node = ranks_per_node;
  override_with(file.parallel.dp, selection.layer.dp);
  override_with(file.parallel.cp, selection.layer.cp);
  override_with(file.parallel.cp_exchange, selection.layer.cp_exchange);
  require<BadInput>(selection.layer.cp_exchange != CpExchange::ring || file.parallel.cp > 1,
                    "--cp-exchange: found ring with one CP rank, expected --cp N with it");
  override_with(file.parallel.mp, selection.layer.mp);
  override_with(file.parallel.ep, selection.layer.ep);
  override_with(file.parallel.esp, selection.layer.esp);
  override_with(file.parallel.pp, selection.layer.pp);
  if (selection.layer.placement) file.parallel.ep_inside = ep_inside_from(*selection.layer.placement, "--placement");
  override_with(file.parallel.zero, selection.layer.zero);
  override_with(file.parallel.recompute, selection.layer.recompute);
  override_with(file.parallel.offload, selection.layer.offload);
  if (selection.layer.rounding) file.rounding = selection.layer.rounding;
  try {
    return complete(file.layer, file.parallel, file.rounding.value_or(Rounding::ragged));
  } catch (const BadInput& error) {
    const std::string& where = file.file.empty() ? file.name : file.file;
    if (where.empty() || selection.layer != LayerFlags{}) throw;  // the wrong value may come from a flag
    bad_input("{}: {}", where, error.what());
  }
}

Grid grid_of(const Selection& selection, const std::string& cluster) {
  if (!selection.grid.empty()) return find_grid(selection.grid);
  for (const std::string& name : config_names("grids")) {
    Grid grid = find_grid(name);
    if (grid.cluster == cluster && grid.sample_of.empty()) return grid;
  }
  return find_grid(std::string(kDefaultGrid));
}

}  // namespace moe::commands
