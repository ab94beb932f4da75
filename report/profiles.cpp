#include "report/profiles.h"

#include <algorithm>
#include <iterator>

#include "moe/base/check.h"
#include "moe/cost/fit.h"
#include "verbs/selection.h"

namespace moe::report {
namespace {

template <class Target>
void take_whole(const Fields& from, std::string_view name, std::optional<Target>& into) {
  if (from.has(name)) into = static_cast<Target>(from.whole(name, "parameters"));
}

void take_text(const Fields& from, std::string_view name, std::optional<std::string>& into) {
  if (from.has(name)) into = from.text(name, "parameters");
}

void take_number(const Fields& from, std::string_view name, std::optional<double>& into) {
  if (from.has(name)) into = from.number(name, "parameters");
}

std::string factor_text(const Scalar& value) {
  return std::visit([](const auto& any) { return fmt::format("{}", any); }, value);
}

LayerFlags flags_of(const Fields& from) {
  LayerFlags flags;
  take_whole(from, "batch", flags.batch);
  take_whole(from, "seq", flags.seq);
  take_whole(from, "model_dim", flags.model_dim);
  take_whole(from, "hidden", flags.hidden);
  take_whole(from, "heads", flags.heads);
  take_whole(from, "kv_heads", flags.kv_heads);
  take_whole(from, "experts", flags.experts);
  take_whole(from, "top_k", flags.top_k);
  if (const Scalar* factor = from.find("capacity_factor")) flags.capacity_factor = factor_text(*factor);
  take_text(from, "ffn", flags.ffn);
  take_text(from, "gate", flags.gate);
  take_text(from, "order", flags.order);
  take_text(from, "dispatcher", flags.dispatcher);
  take_text(from, "hook", flags.hook);
  take_text(from, "norm", flags.norm);
  take_text(from, "dtype", flags.dtype);
  take_text(from, "capacity_rounding", flags.rounding);
  take_text(from, "placement", flags.placement);
  take_number(from, "aux_loss", flags.aux_loss);
  take_number(from, "z_loss", flags.z_loss);
  flags.no_residual = from.has("residual") && from.text("residual", "parameters") == "no";
  take_whole(from, "dp", flags.dp);
  take_whole(from, "mp", flags.mp);
  take_whole(from, "ep", flags.ep);
  take_whole(from, "esp", flags.esp);
  take_whole(from, "pp", flags.pp);
  return flags;
}

}  // namespace

Profile chosen_profile(const std::string& name_or_file, const Run& run, const std::string& cluster) {
  if (!name_or_file.empty()) return find_profile(name_or_file);
  std::vector<CaseRecord> operations;
  std::ranges::copy_if(run.cases, std::back_inserter(operations),
                       [](const CaseRecord& record) { return record.parameters.has("op"); });
  if (!operations.empty()) return fit_profile(operations, cluster, "the operations of these records").profile;
  try {
    return find_profile(cluster);
  } catch (const BadInput&) {
    bad_input("found no profile of the name '{}', expected its file: moetune report ... --cluster FILE", cluster);
  }
}

LayerCase case_of(const Fields& parameters) {
  Selection selection;
  selection.layer = flags_of(parameters);
  return chosen_case(selection, static_cast<int>(parameters.whole("nodes", "parameters")),
                     static_cast<int>(parameters.whole("ranks_per_node", "parameters")));
}

Profile without_starts(Profile profile) {
  for (CommRow& row : profile.comm) {
    for (auto& point : row.points) point[1] = std::max(0.0, point[1] - row.alpha_s);
    row.alpha_s = 0;
  }
  for (ComputeRow& row : profile.compute) row.alpha_s = 0;
  for (ModuleRow& row : profile.modules) row.alpha_s = 0;
  for (TaskRow& row : profile.tasks) row.s_per[static_cast<size_t>(Term::call)] = 0;
  profile.task_overhead_s = 0;
  return profile;
}

}  // namespace moe::report
