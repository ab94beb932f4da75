#include "moe/prices/pricer.h"

#include <algorithm>

#include "moe/base/enum_array.h"
#include "moe/prices/modules.h"
#include "moe/prices/row_finder.h"

namespace moe {

LayerPricer::LayerPricer(const Profile& profile, const LayerCase& shape, PricingOptions options)
    : find_(profile, shape, options),
      outline_(outline_of(shape)),
      rows_(padded_rows(shape)),
      gradient_bytes_(moe::gradient_bytes(shape)),
      all_rows_(planned_rows(shape)) {
  require<BadInput>(shape.parallel.zero <= 1, "zero: found {}, expected 0 or 1: plans gather no shards",
                    shape.parallel.zero);
  for (const ModuleRow& module : profile.modules)
    if (!module_of(module.name)) note({PriceNote::Kind::not_priced, "the row of module " + module.name});
}

const LayerPricer& LayerPricer::dense(int64_t hidden) const {
  std::shared_ptr<LayerPricer>& pricer = dense_[hidden];
  if (!pricer) pricer = std::make_shared<LayerPricer>(profile(), dense_case(shape(), hidden), options());
  return *pricer;
}

const LayerPricer& LayerPricer::whole() const {
  if (shape().layer.window == 0) return *this;
  if (!whole_) whole_ = std::make_shared<LayerPricer>(profile(), whole_case(shape()), options());
  return *whole_;
}

KindPricers kind_pricers(const LayerPricer& moe, const DenseLayers& dense, const LayerSet& whole, int layers) {
  KindPricers pricers{};
  for (int layer = 0; layer < layers; ++layer) {
    const LayerKind kind = layer_kind(dense, whole, layer);
    if (pricers[kind] != nullptr) continue;
    const LayerPricer& own = is_whole(kind) ? moe.whole() : moe;
    pricers[kind] = is_dense(kind) ? &own.dense(dense.hidden) : &own;
  }
  return pricers;
}

const LayerPricer& LayerPricer::part(int part) const {
  std::shared_ptr<LayerPricer>& pricer = parts_[part];
  if (!pricer) pricer = std::make_shared<LayerPricer>(profile(), part_case(shape(), part), options());
  return *pricer;
}

const LayerPricer::Curve& LayerPricer::curve(Flow flow, TaskKind kind, Phase phase) const {
  Curve& known = curves_[flow][phase][kind];
  if (known.known) return known;
  const Work whole = sends_gradients(kind) ? Work{} : whole_work(kind, phase, shape(), flow);
  known.price = find_curve(kind, phase, whole, flow);
  if (phase == Phase::backward && adds_scores(kind)) {
    const bool heads = kind == TaskKind::heads;  // a task that computes only scores
    const Curve& forward = curve(flow, heads ? kind : TaskKind::attention, Phase::forward);
    known.price.add({forward.price.seconds(forward.unit) * (heads ? 1 : scores_flops(shape()) / forward.unit)});
  }
  known.unit = std::max(whole.bytes, whole.flops) / (is_chunked(kind) ? all_rows_ : 1);
  if (sends_gradients(kind)) known.unit = 1;
  known.known = true;
  return known;
}

PriceCurve LayerPricer::find_curve(TaskKind kind, Phase phase, const Work& work, Flow flow) const {
  const bool is_part = is_half(kind) || shares_attention(kind);
  if (shares_attention(kind) && uses_ring()) return part_curve(kind, phase, work, flow);
  if (is_part && find_.task_row(kind, phase) == nullptr) return part_curve(kind, phase, work, flow);
  return whole_curve(kind, phase, work, flow);
}

// Returns whether attention is several tasks, of which this is one: context parallelism separates keys and values.
bool LayerPricer::shares_attention(TaskKind kind) const {
  return shape().parallel.cp > 1 && part_of(kind) == TaskPart::attention && computes(kind);
}

PriceCurve LayerPricer::whole_curve(TaskKind kind, Phase phase, const Work& work, Flow flow) const {
  if (const TaskRow* row = find_.task_row(kind, phase)) return task_curve(*row, kind, work, flow);
  if (kind == TaskKind::recv || kind == TaskKind::optimizer) return {};
  if (kind == TaskKind::gradient) return comm_curve(Op::allreduce, GroupKind::dp, static_cast<double>(gradient_bytes_));
  if (kind == TaskKind::expert_gradient)
    return comm_curve(Op::allreduce, GroupKind::edp, static_cast<double>(expert_gradient_bytes(shape())));
  if (op_of(kind) == Op::copy) return copy_curve();
  if (op_of(kind) == Op::host_copy) return host_copy_curve();
  if (work.group == GroupKind::none) return compute_curve(kind, phase, work);
  PriceCurve c = comm_curve(work.op, work.group, work.bytes);
  if (work.op == Op::alltoall && has(work.group)) add_hook(c, kind, phase);
  return c;
}

void LayerPricer::add_hook(PriceCurve& exchange, TaskKind kind, Phase phase) const {
  const ModuleRow* row = find_.module_row(module_name(kind, shape()), phase);
  if (row == nullptr) return;
  exchange.add({row->alpha_s, row->beta_s_per_byte});
}

std::optional<PriceCurve> LayerPricer::collective(Op op, GroupKind kind, double bytes) const {
  return collective_curve(find_, groups(), op, kind, bytes);
}

PriceCurve LayerPricer::comm_curve(Op op, GroupKind kind, double bytes) const {
  std::optional<PriceCurve> curve = collective(op, kind, bytes);
  if (!curve) refuse_collective(find_, groups(), op, kind);
  return *std::move(curve);
}

double LayerPricer::end_seconds(TaskKind kind, Phase phase, const Work& work) const {
  const double task_s = profile().task_overhead_s;
  if (work.group != GroupKind::none) return comm_curve(work.op, work.group, work.bytes).seconds(work.bytes) + task_s;
  if (const TaskRow* row = find_.task_row(kind, phase)) {
    const TermValues terms = end_terms(kind, shape(), work);
    for (const PriceNote& range : range_notes(*row, terms)) note(range);
    return dot(row->seconds_per_term, terms) + task_s;
  }
  if (kind != TaskKind::head) return task_s;
  if (const auto gpu = gpu_prices()) return gpu->head_seconds(phase, work) + task_s;
  return gemm_seconds(work);
}

// Returns the model of the hardware, and adds a note on its use; empty if the profile has none for the layer's type.
std::optional<GpuPrices> LayerPricer::gpu_prices() const {
  const GpuModel* gpu = profile().gpu_of(shape().layer.dtype);
  if (gpu == nullptr) return std::nullopt;
  note({PriceNote::Kind::modelled, "computations by shape",
        fmt::format(", as {} computes them ([gpu]{}{})", gpu->name, gpu->origin.empty() ? "" : ", ", gpu->origin)});
  return GpuPrices(*gpu, shape());
}

double LayerPricer::gemm_seconds(const Work& gemms) const {
  const ComputeRow row = find_.gemm_row();
  return gemms.gemms * row.alpha_s + gemms.flops * row.beta_s_per_flop + profile().task_overhead_s;
}

// Returns a line over the work's size. For a given layer, each term of the row is either constant or proportional to
// the number of rows, so the price is linear in it.
PriceCurve LayerPricer::task_curve(const TaskRow& row, TaskKind kind, const Work& work, Flow flow) const {
  TaskTerms terms = terms_of(kind, row.phase, shape(), flow);
  terms.row_terms[Term::flop] = work.flops;  // FLOPs of all rows
  for (const PriceNote& range : range_notes(row, terms.share_terms(1))) note(range);
  const double size = std::max(work.bytes, work.flops);
  PriceCurve c{dot(row.seconds_per_term, terms.fixed_terms)};
  (size > 0 ? c.beta : c.alpha) += dot(row.seconds_per_term, terms.row_terms) / (size > 0 ? size : 1);
  return c;
}

PriceCurve LayerPricer::compute_curve(TaskKind kind, Phase phase, const Work& work) const {
  if (const ModuleRow* module = find_.own_module_row(kind, phase)) {
    const double size = std::max(work.bytes, work.flops);
    if (const auto outside = range_note(*module, size)) note(*outside);
    return {module->alpha_s, module->beta()};
  }
  if (const auto gpu = gpu_prices())
    if (auto modelled = gpu->curve(kind, phase, work)) {
      if (work.op == Op::expert) find_.note_fp8();
      return *std::move(modelled);
    }
  if (work.op == Op::none) return {};
  const double passes = phase == Phase::backward ? 2 : 1;
  if (work.op == Op::expert)
    if (const ComputeRow* row = find_.expert_row()) return {passes * row->alpha_s, row->beta_s_per_flop};
  const GatePart& gate = gate_of(shape().layer);
  if (kind == TaskKind::gate && (gate.logits == LogitsBy::cosine || gate.choices == Choices::rows))
    note({PriceNote::Kind::derived, fmt::format("gate {}", gate.name),
          " = a GEMM to one logit per expert, without its other work"});
  const ComputeRow gemm = find_.gemm_row();
  return {work.gemms * gemm.alpha_s, gemm.beta_s_per_flop};
}

// Prices a half of a backward, or a task of attention under context parallelism, as a share of the whole: the share of
// its FLOPs and GEMMs.
PriceCurve LayerPricer::part_curve(TaskKind kind, Phase phase, const Work& part, Flow flow) const {
  const bool shares = shares_attention(kind);
  const TaskKind of = shares ? TaskKind::attention : whole_of(kind);
  Work whole = whole_work(of, phase, shape(), flow);
  if (shares) {
    const auto add = [&](TaskKind other, int count) {
      const Work work = whole_work(other, phase, shape(), flow);
      whole.flops += count * work.flops;
      whole.gemms += work.gemms;
    };
    add(TaskKind::keys_values, 1);
    if (uses_ring()) {
      const double linear_flops = whole.flops;
      add(TaskKind::heads, shape().parallel.ring_blocks());
      if (const auto seconds = modelled_ring_seconds(kind, phase, part.flops / linear_flops)) return {*seconds};
    }
    note({PriceNote::Kind::derived, uses_ring() ? "keys_values, heads, attention" : "keys_values, attention",
          " = their shares of attention, by FLOPs"});
  } else {
    note({PriceNote::Kind::derived, fmt::format("{0}_dx, {0}_dw", name_of(of)),
          " = their shares of the whole backward, by FLOPs"});
  }
  PriceCurve price = whole_curve(of, phase, whole, flow);
  const double share = part.flops / whole.flops;
  price.alpha *= price.beta > 0 && price.knots.empty() ? static_cast<double>(part.gemms) / whole.gemms : share;
  for (auto& [work, seconds] : price.knots) {
    work *= share;
    seconds *= share;
  }
  return price;
}

// Returns the seconds of a task of a ring by the model of the hardware; empty if a row prices attention. The heads'
// kernel is called for one block at a time. `share`: the task's share of attention's FLOPs outside the scores.
std::optional<double> LayerPricer::modelled_ring_seconds(TaskKind kind, Phase phase, double share) const {
  if (find_.task_row(TaskKind::attention, phase) != nullptr) return std::nullopt;
  if (find_.own_module_row(TaskKind::attention, phase) != nullptr) return std::nullopt;
  const auto gpu = gpu_prices();
  if (!gpu) return std::nullopt;
  const auto seq = static_cast<double>(shape().layer.seq);
  const int blocks = shape().parallel.ring_blocks();
  if (kind == TaskKind::heads) return gpu->scores_seconds(phase, seq / blocks) / blocks;
  return share * (gpu->attention_seconds(phase) - gpu->scores_seconds(phase, seq));
}

PriceCurve LayerPricer::copy_curve() const {
  if (const ComputeRow* row = find_.copy_row()) return {row->alpha_s, row->beta_s_per_byte};
  note({PriceNote::Kind::not_priced, "copies", ", for which the profile has no row"});
  return {};
}

PriceCurve LayerPricer::host_copy_curve() const {
  if (const ComputeRow* row = find_.copy_row(Op::host_copy)) return {row->alpha_s, row->beta_s_per_byte};
  const std::string name(name_of(Op::host_copy));
  throw Unpriced(profile().name, fmt::format("no price for {}, a copy between host and device, by which experts are "
                                             "offloaded{}",
                                             name, unusable_reason(profile(), name)));
}

double LayerPricer::chunk_seconds(TaskKind kind, Phase phase, double rows, Flow flow) const {
  const Curve& c = curve(flow, kind, phase);
  return c.price.seconds(rows * c.unit) + profile().task_overhead_s;
}

MinSeconds LayerPricer::seconds_in_parts(TaskKind kind, Phase phase, double rows, double largest, Flow flow) const {
  const Curve& c = curve(flow, kind, phase);
  return c.price.seconds_in_parts(rows * c.unit, largest * c.unit, profile().task_overhead_s);
}

double LayerPricer::gradient_seconds_in_parts(int64_t bytes) const {
  const Curve& c = curve(Flow::sharded, TaskKind::gradient, Phase::backward);
  const double all = static_cast<double>(bytes);
  return c.price.seconds_in_parts(all, all, profile().task_overhead_s).all;
}

double LayerPricer::gradient_seconds(int64_t bytes, TaskKind kind) const {
  const Curve& c = curve(Flow::sharded, kind, Phase::backward);
  return c.price.seconds(static_cast<double>(bytes)) + profile().task_overhead_s;
}

double LayerPricer::dense_seconds(TaskKind kind, Phase phase, Flow flow) const {
  const Curve& c = curve(flow, kind, phase);
  return c.price.seconds(c.unit) + profile().task_overhead_s;
}

// Returns whether the FLOPs of recomputed scores must be added, because the task recomputes them and no measured row
// includes that.
bool LayerPricer::adds_scores(TaskKind kind) const {
  if (!shape().parallel.recomputes_scores()) return false;
  if (profile().gpu_of(shape().layer.dtype) != nullptr) return false;  // the modelled kernel always recomputes scores
  if (kind == TaskKind::attention_dx && !uses_ring() && find_.task_row(kind, Phase::backward) != nullptr) return false;
  if (uses_ring() ? kind != TaskKind::heads : kind != TaskKind::attention && kind != TaskKind::attention_dx)
    return false;
  const std::string name = module_name(TaskKind::attention, shape());
  if (const TaskRow* task = find_.task_row(TaskKind::attention, Phase::backward)) return task->name != name;
  const ModuleRow* module = find_.own_module_row(TaskKind::attention, Phase::backward);
  return module == nullptr || module->name != name;
}

std::optional<double> LayerPricer::saa_seconds() const {
  const ParallelShape& p = shape().parallel;
  if (p.esp != p.mp || p.mp != p.ranks_per_node) return std::nullopt;
  const CommRow* row = find_.comm_row(Op::saa, groups()[GroupKind::ep_esp]);
  if (row == nullptr) return std::nullopt;
  const double bytes = whole_work(TaskKind::combine, Phase::forward, shape(), Flow::fused).bytes;
  return find_.curve_of(*row, bytes).seconds(bytes);
}

std::vector<double> LayerPricer::gradient_breakpoints() const {
  return curve(Flow::sharded, TaskKind::gradient, Phase::backward).price.breakpoints();
}

void LayerPricer::price(const Structure& structure, const std::vector<GradientSlice>& slices,
                        std::vector<double>& seconds) const {
  seconds.resize(structure.tasks.size());
  struct Pair {
    int chunks = 0;
    double longer = 0, shorter = 0;
  };
  // Chunks have at most two different sizes; each is priced once.
  EnumArray<Phase, EnumArray<TaskKind, Pair, kTaskKinds>, 2> known;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Task& task = structure.tasks[i];
    if (task.phase == Phase::step || is_end(task.kind) || (is_ffn(task.kind) && !outline_.dense))
      continue;  // priced with the plan: price(Plan)
    if (sends_gradients(task.kind)) {
      seconds[i] = gradient_seconds(slices[task.slice].bytes(), task.kind);
    } else if (!is_chunked(task.kind)) {
      seconds[i] = dense_seconds(task.kind, task.phase, structure.flow);
    } else {
      Pair& pair = known[task.phase][task.kind];
      if (pair.chunks != task.chunks)
        pair = {task.chunks, part_seconds(task, structure.flow, 1), part_seconds(task, structure.flow, 0)};
      seconds[i] = task.chunk < rows_ % task.chunks ? pair.longer : pair.shorter;
    }
  }
}

// Returns the seconds of a chunk of `task` that has `more` rows more than the shortest chunk. Chunks that are not cut
// by rows are equal; all of SAA's exchanges together cost one AlltoAll.
double LayerPricer::part_seconds(const Task& task, Flow flow, int more) const {
  if (task.kind == TaskKind::exchange) {
    const Curve& c = curve(flow, task.kind, task.phase);
    return c.price.seconds(all_rows_ * c.unit) / task.chunks + profile().task_overhead_s;
  }
  if (shape().rounding == Rounding::exact || traits_of(flow).home_by_peers)
    return chunk_seconds(task.kind, task.phase, all_rows_ / task.chunks, flow);
  return chunk_seconds(task.kind, task.phase, static_cast<double>(rows_ / task.chunks + more), flow);
}

// Prices of a whole plan.

namespace {

// Returns the seconds of each task, priced by the pricer of its layer's kind; `pricer` prices the ends.
std::vector<double> priced(const LayerPricer& pricer, const KindPricers& kinds, const Plan& plan) {
  std::vector<double> seconds;
  pricer.price(*plan.structure, plan.slices, seconds);
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Task& task = plan.structure->tasks[i];
    const LayerPricer* of_layer = kinds[layer_kind(plan.dense, plan.whole, task.layer)];
    const LayerPricer& own = of_layer != nullptr ? *of_layer : pricer;  // an end has no kind
    if (is_end(task.kind))
      seconds[i] = pricer.end_seconds(task.kind, task.phase, plan.works[i]);
    else if (task.phase == Phase::step)
      seconds[i] = step_seconds(own, task.kind, plan.works[i]);
    else if (plan.differs_by_part(task))
      seconds[i] = own.part(plan.part_of(task.micro_batch)).dense_seconds(task.kind, task.phase, plan.structure->flow);
    else if (&own != &pricer && !sends_gradients(task.kind) && !is_chunked(task.kind))
      seconds[i] = own.dense_seconds(task.kind, task.phase, plan.structure->flow);
  }
  return seconds;
}

std::vector<double> priced(const LayerPricer& pricer, const Plan& plan) {
  const KindPricers kinds = kind_pricers(pricer, plan.dense, plan.whole, plan.layers);
  std::vector<double> seconds = priced(pricer, kinds, plan);
  for (const LayerPricer* kind : kinds)
    if (kind != nullptr && kind != &pricer)
      for (const PriceNote& note : kind->notes()) pricer.note(note);
  return seconds;
}

}  // namespace

std::vector<double> price(const LayerPricer& pricer, const Plan& plan) {
  if (plan.shape == pricer.shape()) return priced(pricer, plan);
  return priced(LayerPricer(pricer.profile(), plan.shape, pricer.options()), plan);  // packing changed the case
}

// Prices of a step. Most are derived, because few profiles have rows for a whole stage's group or the optimizer.

class StepPrices {
 public:
  explicit StepPrices(const LayerPricer& pricer) : pricer_(pricer), find_(pricer.rows_of_profile()) {}
  double seconds(TaskKind kind, const Work& work) const;

 private:
  double touching_seconds(TaskKind kind, double bytes) const;
  double collective_seconds(TaskKind kind, const Work& work) const;
  void note(PriceNote note) const { find_.note(std::move(note)); }

  const LayerPricer& pricer_;
  const RowFinder& find_;
};

double step_seconds(const LayerPricer& pricer, TaskKind kind, const Work& work) {
  return StepPrices(pricer).seconds(kind, work);
}

double StepPrices::seconds(TaskKind kind, const Work& work) const {
  if (work.op == Op::none) return 0;
  if (kind == TaskKind::weights || kind == TaskKind::expert_weights || transfers_offloaded_weights(kind))
    return pricer_.dense_seconds(kind, Phase::backward);
  const double seconds = computes(kind) ? touching_seconds(kind, work.bytes) : collective_seconds(kind, work);
  return seconds + find_.profile().task_overhead_s;
}

// Returns the seconds of a task by its own row or, without one, those of a copy of the bytes that it reads and writes.
double StepPrices::touching_seconds(TaskKind kind, double bytes) const {
  if (bytes == 0) return 0;
  for (const TaskRow& row : find_.profile().tasks) {
    if (row.name != name_of(kind) || row.phase != Phase::step || row.dtype != find_.shape().layer.dtype) continue;
    const TermValues terms = memory_pass_terms(kind, bytes);
    for (const PriceNote& range : range_notes(row, terms)) note(range);
    return dot(find_.note_origin(row).seconds_per_term, terms);
  }
  if (runs_on_host(kind)) {
    note({PriceNote::Kind::not_priced, std::string(name_of(kind)), ", for which the profile has no row"});
    return 0;
  }
  if (const ComputeRow* row = find_.copy_row()) {
    note({PriceNote::Kind::derived, std::string(name_of(kind)), " = a copy of what it reads and writes"});
    return row->alpha_s + bytes * row->beta_s_per_byte;
  }
  note({PriceNote::Kind::not_priced, std::string(name_of(kind)),
        ", for which the profile has neither a row nor one of copies"});
  return 0;
}

// Returns the seconds of a collective by a row or a derivation rule; without either, 0 and a note.
double StepPrices::collective_seconds(TaskKind kind, const Work& work) const {
  if (const auto curve = pricer_.collective(work.op, work.group, work.bytes)) return curve->seconds(work.bytes);
  find_.note({PriceNote::Kind::not_priced, std::string(name_of(kind)),
              fmt::format(", {} {} over {} for which the profile has no rows",
                          work.op == Op::allreduce || work.op == Op::allgather ? "an" : "a", name_of(work.op),
                          name_of(work.group))});
  return 0;
}

}  // namespace moe
