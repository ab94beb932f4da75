#include "moe/cost/pricer.h"

#include <algorithm>
#include <cmath>

namespace moe {
namespace {

bool is_chunked(TaskKind kind) { return kind >= TaskKind::dispatch && kind <= TaskKind::combine; }

double interpolate(const Points& points, double work) {
  const auto upper = std::upper_bound(points.begin(), points.end(), work,
                                      [](double value, const auto& point) { return value < point[0]; });
  if (upper == points.end()) return points.back()[1];
  const auto lower = upper - 1;
  const double share = (work - (*lower)[0]) / ((*upper)[0] - (*lower)[0]);
  return (*lower)[1] + share * ((*upper)[1] - (*lower)[1]);
}

}  // namespace

double LayerPricer::Curve::seconds(double work) const {
  if (points != nullptr && work >= points->front()[0] && work <= points->back()[0]) return interpolate(*points, work);
  return alpha + work * beta;
}

LayerPricer::LayerPricer(const Profile& profile, const Case& shape, PricingOptions options)
    : profile_(profile),
      shape_(shape),
      options_(options),
      groups_(groups_of(shape.parallel)),
      rows_(capacity_rows(shape)),
      gradient_bytes_(moe::gradient_bytes(shape)),
      exact_rows_(capacity_exact(shape)) {
  require<Unpriced>(profile.contention.none(), "profile {}: [contention] factors other than 1 are not replayed yet",
                    profile.name);
  for (const ModuleRow& module : profile.modules)
    if (module.name != "attention") notes_.insert(fmt::format("not priced yet: the row of module {}", module.name));
  const MoeVolumes row = moe_volumes(shape, 1);
  const double rows = shape.rounding == Rounding::exact ? exact_rows_ : static_cast<double>(rows_);
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const auto comm = [&](TaskKind kind, Op op, GroupKind group, double unit, double whole) {
      if (groups_[static_cast<size_t>(group)].network == Network::none) return;
      curve(kind, phase) = comm_curve(op, group);
      curve(kind, phase).unit = unit;
      const CommRow* priced = comm_row(name_of(op), groups_[static_cast<size_t>(group)]);
      if (priced != nullptr) note_range(priced->range_bytes, whole, whole, name_of(op));
    };
    comm(TaskKind::dispatch, Op::alltoall, GroupKind::ep, row.alltoall_bytes, rows * row.alltoall_bytes);
    comm(TaskKind::combine, Op::alltoall, GroupKind::ep, row.alltoall_bytes, rows * row.alltoall_bytes);
    comm(TaskKind::allgather, Op::allgather, GroupKind::esp, row.gathered_bytes, rows * row.gathered_bytes);
    comm(TaskKind::reducescatter, Op::reducescatter, GroupKind::esp, row.gathered_bytes, rows * row.gathered_bytes);
    comm(TaskKind::mp_allgather, Op::allgather, GroupKind::mp, mp_bytes(shape), mp_bytes(shape));
    comm(TaskKind::mp_reducescatter, Op::reducescatter, GroupKind::mp, mp_bytes(shape), mp_bytes(shape));
    comm(TaskKind::gradient, Op::allreduce, GroupKind::dp, 1, static_cast<double>(gradient_bytes_));
    curve(TaskKind::expert, phase) = expert_curve(phase);
    curve(TaskKind::attention, phase) = attention_curve(phase);
    const Work gate = work_of({TaskKind::gate, phase, 0, 0, 1, -1}, shape, {});
    curve(TaskKind::gate, phase) = {gate.gemms * gemm_row().alpha_s, gemm_row().beta_s_per_flop, gate.flops, nullptr};
  }
}

const CommRow* LayerPricer::comm_row(std::string_view op, const Group& group) {
  const CommRow* nearest = nullptr;
  for (const CommRow& row : profile_.comm) {
    if (row.op != op || row.network != group.network || row.algorithm != "direct") continue;
    if (row.ranks == group.size) return &row;
    if (!nearest || std::abs(row.ranks - group.size) < std::abs(nearest->ranks - group.size)) nearest = &row;
  }
  if (nearest != nullptr && options_.nearest)
    notes_.insert(
        fmt::format("nearest: {} over {} ranks priced by the row of {} ranks", op, group.size, nearest->ranks));
  if (nearest == nullptr || options_.nearest) return nearest;
  throw Unpriced(
      fmt::format("profile {}: no {} row for {} ranks on the {} network; the nearest has {} ranks "
                  "(--nearest borrows it)",
                  profile_.name, op, group.size, name_of(group.network), nearest->ranks));
}

LayerPricer::Curve LayerPricer::comm_curve(Op op, GroupKind kind) {
  const Group& group = groups_[static_cast<size_t>(kind)];
  const CommRow* row = comm_row(name_of(op), group);
  if (row != nullptr) return {row->alpha_s, row->beta_s_per_byte, 0, row->points.empty() ? nullptr : &row->points};
  if (op == Op::allreduce && group.network == Network::intra) return allreduce_curve(group);
  throw Unpriced(fmt::format("profile {}: no {} row for {} ranks on the {} network", profile_.name, name_of(op),
                             group.size, name_of(group.network)));
}

LayerPricer::Curve LayerPricer::allreduce_curve(const Group& group) {
  const CommRow *scatter = comm_row("reducescatter", group), *gather = comm_row("allgather", group);
  require<Unpriced>(scatter && gather,
                    "profile {}: no allreduce row for {} ranks on the {} network, and none to derive "
                    "it from",
                    profile_.name, group.size, name_of(group.network));
  notes_.insert("derived: intra allreduce = reducescatter + allgather of the same volume");
  return {scatter->alpha_s + gather->alpha_s, scatter->beta_s_per_byte + gather->beta_s_per_byte, 0, nullptr};
}

const ComputeRow& LayerPricer::gemm_row() const {
  for (const ComputeRow& row : profile_.compute)
    if (row.op == "gemm" && row.dtype == shape_.layer.dtype) return row;
  throw Unpriced(fmt::format("profile {}: no gemm row for {}", profile_.name, name_of(shape_.layer.dtype)));
}

LayerPricer::Curve LayerPricer::expert_curve(Phase phase) {
  const double passes = phase == Phase::backward ? 2 : 1;
  const double flops = passes * moe_volumes(shape_, 1).expert_flops;
  for (const ComputeRow& row : profile_.compute)
    if (row.op == "expert" && row.ffn == shape_.layer.ffn && row.dtype == shape_.layer.dtype)
      return {passes * row.alpha_s, row.beta_s_per_flop, flops, nullptr};
  const ComputeRow& gemm = gemm_row();
  return {passes * gemms_of(shape_.layer.ffn) * gemm.alpha_s, gemm.beta_s_per_flop, flops, nullptr};
}

LayerPricer::Curve LayerPricer::attention_curve(Phase phase) {
  const Work work = work_of({TaskKind::attention, phase, 0, 0, 1, -1}, shape_, {});
  bool profiled = false;
  for (const ModuleRow& row : profile_.modules) {
    if (row.name != "attention" || row.phase != phase) continue;
    profiled = true;
    if (!row.seq || *row.seq == shape_.layer.seq) return {row.alpha_s, row.beta_s_per_flop, work.flops, nullptr};
  }
  if (profiled) notes_.insert(fmt::format("attention priced by gemm: no row for seq {}", shape_.layer.seq));
  const ComputeRow& gemm = gemm_row();
  return {work.gemms * gemm.alpha_s, gemm.beta_s_per_flop, work.flops, nullptr};
}

void LayerPricer::note_range(const std::optional<Range>& range, double smallest, double largest, std::string_view op) {
  if (!range || (smallest >= (*range)[0] && largest <= (*range)[1])) return;
  notes_.insert(fmt::format("outside the fitted range: {} of {} (fitted {} to {})", op, human_bytes(largest),
                            human_bytes((*range)[0]), human_bytes((*range)[1])));
}

double LayerPricer::chunk_seconds(TaskKind kind, Phase phase, double rows) const {
  const Curve& c = curve(kind, phase);
  return c.seconds(rows * c.unit) + profile_.task_overhead_s;
}

double LayerPricer::gradient_seconds(int64_t bytes) const {
  return curve(TaskKind::gradient, Phase::backward).seconds(static_cast<double>(bytes)) + profile_.task_overhead_s;
}

double LayerPricer::dense_seconds(TaskKind kind, Phase phase) const {
  if (kind == TaskKind::order || kind == TaskKind::i_order) return profile_.task_overhead_s;
  const Curve& c = curve(kind, phase);
  return c.seconds(c.unit) + profile_.task_overhead_s;
}

std::vector<double> LayerPricer::gradient_bends() const {
  std::vector<double> bends;
  if (const Points* points = curve(TaskKind::gradient, Phase::backward).points)
    for (const auto& point : *points) bends.push_back(point[0]);
  return bends;
}

void LayerPricer::price(const Structure& structure, const std::vector<GradientSlice>& slices,
                        std::vector<double>& seconds) const {
  seconds.resize(structure.classes.size());
  struct Pair {
    int chunks = 0;
    double longer = 0, shorter = 0;
  };
  std::array<std::array<Pair, kTaskKinds>, 2> known;  // chunks have one of two sizes: price each once
  for (size_t i = 0; i < seconds.size(); ++i) {
    const WorkClass& wc = structure.classes[i];
    if (wc.kind == TaskKind::gradient) {
      seconds[i] = gradient_seconds(slices[static_cast<size_t>(wc.slice)].bytes());
    } else if (!is_chunked(wc.kind)) {
      seconds[i] = dense_seconds(wc.kind, wc.phase);
    } else {
      Pair& pair = known[static_cast<size_t>(wc.phase)][static_cast<size_t>(wc.kind)];
      if (pair.chunks != wc.chunks) {
        const bool exact = shape_.rounding == Rounding::exact;
        const double shorter = exact ? exact_rows_ / wc.chunks : static_cast<double>(rows_ / wc.chunks);
        pair = {wc.chunks, chunk_seconds(wc.kind, wc.phase, exact ? shorter : shorter + 1),
                chunk_seconds(wc.kind, wc.phase, shorter)};
      }
      seconds[i] = wc.chunk < rows_ % wc.chunks ? pair.longer : pair.shorter;
    }
  }
}

std::vector<double> price(const LayerPricer& pricer, const Plan& plan) {
  std::vector<double> seconds;
  pricer.price(*plan.structure, plan.slices, seconds);
  return seconds;
}

}  // namespace moe
