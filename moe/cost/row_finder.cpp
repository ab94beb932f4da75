#include "moe/cost/row_finder.h"

#include <algorithm>

#include "moe/cost/modules.h"

namespace moe {

const CommRow* RowFinder::comm_row(Op op, const Group& group) const {
  const std::string_view algorithm = is_direct(op) ? "direct" : std::string_view(shape_.layer.dispatcher);
  for (const CommRow& row : profile_.comm)
    if (row.op == op && row.network == group.network && row.ranks == group.size && row.algorithm == algorithm)
      return &row;
  return nullptr;
}

const CommRow* RowFinder::nearest_row(Op op, const Group& group) const {
  const CommRow* nearest = nullptr;
  const auto distance = [&](int n) { return std::pair{1.0 * std::max(n, group.size) / std::min(n, group.size), -n}; };
  for (const CommRow& row : profile_.comm)
    if (row.op == op && row.network == group.network && row.algorithm == "direct" &&
        (nearest == nullptr || distance(row.ranks) < distance(nearest->ranks)))
      nearest = &row;
  return nearest;
}

std::string RowFinder::name_with_algorithm(Op op) const {
  return fmt::format("{}{}", name_of(op), is_direct(op) ? "" : " " + shape_.layer.dispatcher);
}

std::string RowFinder::borrowed_note(Op op, const Group& group, const CommRow& row) const {
  return fmt::format("nearest: {} over {} ranks priced by the row of {} ranks", name_with_algorithm(op), group.size,
                     row.ranks);
}

void RowFinder::refuse(Op op, const Group& group) const {
  const CommRow* nearest = nearest_row(op, group);
  const CommRow missing{.op = op,
                        .network = group.network,
                        .ranks = group.size,
                        .algorithm = is_direct(op) ? "direct" : shape_.layer.dispatcher};
  const std::string ranks = options_.nearest && !nearest ? "any number of" : fmt::format("{}", group.size);
  const std::string none =
      fmt::format("profile {}: no {} row for {} ranks on the {} network{}", profile_.name, name_with_algorithm(op),
                  ranks, name_of(group.network), why_unusable(profile_, row_name(missing)));
  if (nearest == nullptr) throw Unpriced(none);
  throw Unpriced(fmt::format("{}; the nearest has {} ranks{}", none, nearest->ranks,
                             options_.borrows.empty() ? "" : fmt::format(" ({} borrows it)", options_.borrows)));
}

cost::PriceCurve RowFinder::curve_of(const CommRow& row, double bytes) const {
  if (const auto outside = range_note(row, bytes)) note(*outside);
  if (row.op == Op::alltoall)
    if (const auto fan_out = fan_out_note(row, shape_)) note(*fan_out);
  return cost::price_curve(used(row));
}

ComputeRow RowFinder::gemm_row() const {
  const ComputeRow* other = nullptr;
  std::string others;
  for (const ComputeRow& row : profile_.compute) {
    if (row.op != Op::gemm) continue;
    if (row.dtype == shape_.layer.dtype) return used(row);
    if (other == nullptr || bytes_of(row.dtype) == bytes_of(shape_.layer.dtype)) other = &row;
    others += fmt::format("{}{}", others.empty() ? "; it has " : ", ", name_of(row.dtype));
  }
  ComputeRow scaled{.op = Op::gemm, .dtype = shape_.layer.dtype};
  if (other != nullptr && !options_.scaled && !options_.borrows.empty())
    others += fmt::format(" ({} scales it)", options_.borrows);
  require<Unpriced>(other != nullptr && options_.scaled, "profile {}: no gemm row for {}{}{}", profile_.name,
                    name_of(scaled.dtype), others, why_unusable(profile_, row_name(scaled)));
  const double width = static_cast<double>(bytes_of(scaled.dtype)) / static_cast<double>(bytes_of(other->dtype));
  scaled.alpha_s = used(*other).alpha_s;
  scaled.beta_s_per_flop = width * other->beta_s_per_flop;
  note(fmt::format("scaled: GEMMs, no modules, of {} from {}", name_of(scaled.dtype), name_of(other->dtype)));
  return scaled;
}

const ComputeRow* RowFinder::expert_row() const {
  const LayerShape& layer = shape_.layer;
  for (const ComputeRow& row : profile_.compute)
    if (row.op == Op::expert && row.ffn == layer.ffn && row.dtype == layer.dtype) return &used(row);
  if (in_fp8(layer.ffn)) note(fmt::format("derived: experts in FP8 = GEMMs of {}", name_of(layer.dtype)));
  return nullptr;
}

const ComputeRow* RowFinder::copy_row() const {
  for (const ComputeRow& row : profile_.compute)
    if (row.op == Op::copy) return &used(row);
  return nullptr;
}

const ModuleRow* RowFinder::module_row(const std::string& name, Phase phase) const {
  bool profiled = false;
  for (const ModuleRow& row : profile_.modules) {
    if (row.name != name || row.phase != phase) continue;
    profiled = true;
    if (!row.seq || *row.seq == shape_.layer.seq) return &used(row);
  }
  for (const std::optional<int64_t> seq : {std::optional<int64_t>(), std::optional(shape_.layer.seq)}) {
    const std::string missing = row_name(ModuleRow{name, phase, seq}), why = why_unusable(profile_, missing);
    if (why.empty()) continue;
    note(fmt::format("{} {}{}", is_priced_by_byte(name) ? "not priced:" : "priced by gemm:", missing, why));
    return nullptr;
  }
  if (profiled) note(fmt::format("{} priced by gemm: no row for seq {}", name, shape_.layer.seq));
  return nullptr;
}

const TaskRow* RowFinder::task_row(TaskKind kind, Phase phase) const {
  if (profile_.tasks.empty() || !has_terms(kind)) return nullptr;
  const auto row_of = [&](std::string_view name) -> const TaskRow* {
    for (const TaskRow& row : profile_.tasks)
      if (row.name == name && row.phase == phase && row.dtype == shape_.layer.dtype) return &used(row);
    return nullptr;
  };
  if (const TaskRow* row = row_of(task_row_name(kind, shape_))) return row;
  if (kind == TaskKind::attention) return row_of(kAttentionModule);
  return kind == TaskKind::shared || kind == TaskKind::ffn ? task_row(TaskKind::expert, phase) : nullptr;
}

const ModuleRow* RowFinder::own_module_row(TaskKind kind, Phase phase) const {
  if (const ModuleRow* row = module_row(module_name(kind, shape_), phase)) return row;
  if (kind == TaskKind::i_order) return module_row(module_name(TaskKind::order, shape_), phase);
  return kind == TaskKind::attention ? module_row(std::string(kAttentionModule), phase) : nullptr;
}

}  // namespace moe
