#include "tuner/answer/shape_bounds.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "moe/base/check.h"
#include "moe/cost/model_bound.h"

namespace moe::tuner {
namespace {

double bound_as_it_is(const Schedule& schedule, const LayerPricer& pricer, const verbs::ChosenModel& chosen,
                      BoundShapes& shapes) {
  if (!one_layer(chosen)) return model_bound(schedule, pricer, chosen.model, {}, shapes);
  return degree_free_bound(schedule, pricer).total_s();
}

}  // namespace

double gemms_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) {
  double least = std::numeric_limits<double>::infinity();
  for (const Schedule* variant : schedule.variants) least = std::min(least, gemms_s(*variant, pricer, model));
  if (!schedule.variants.empty()) return least;
  const double rows = pricer.all_rows();
  std::optional<LayerPricer> dense;
  if (model.dense_in(0) > 0)
    dense.emplace(pricer.profile(), dense_case(model.shape, model.dense.hidden), pricer.options());
  double seconds = 0, dense_s = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const bool halves = schedule.halves_backward && phase == Phase::backward;
    const int times = phase == Phase::forward ? forwards_of(pricer.outline()) : 1;
    const auto whole_s = [&](TaskKind kind) { return pricer.dense_seconds(kind, phase, schedule.flow); };
    const double attention_s =
        halves ? whole_s(TaskKind::attention_dx) + whole_s(TaskKind::attention_dw) : whole_s(TaskKind::attention);
    seconds += times * attention_s;
    if (dense) dense_s += times * (attention_s + dense->dense_seconds(TaskKind::ffn, phase, schedule.flow));
    if (schedule.packs_experts) continue;
    const auto parts_s = [&](TaskKind kind) { return pricer.in_parts(kind, phase, rows, rows, schedule.flow).all; };
    seconds +=
        times * (halves ? parts_s(TaskKind::expert_dx) + parts_s(TaskKind::expert_dw) : parts_s(TaskKind::expert));
  }
  return model.micro_batches * model.moe_in(0) * seconds + model.micro_batches * model.dense_in(0) * dense_s;
}

double plan_bound_s(const Schedule& schedule, const LayerPricer& pricer, const verbs::ChosenModel& chosen,
                    BoundShapes& shapes) {
  double least = std::numeric_limits<double>::infinity();
  for (const Schedule* variant : schedule.variants)
    least = std::min(least, plan_bound_s(*variant, pricer, chosen, shapes));
  if (!schedule.variants.empty()) return least;
  least = bound_as_it_is(schedule, pricer, chosen, shapes);
  if (!schedule.packs_experts) return least;
  for (int packing = 2; chosen.model.shape.parallel.ep % packing == 0; packing *= 2) try {
      verbs::ChosenModel packed = chosen;
      packed.model.shape = decided_case(chosen.model.shape, {.packing = packing});
      const LayerPricer of_packed(pricer.profile(), packed.model.shape, pricer.options());
      least = std::min(least, bound_as_it_is(schedule, of_packed, packed, shapes));
    } catch (const Unsupported&) {  // no such packing, or no price for its groups
      break;
    }
  return least;
}

double head_seconds(const LayerPricer& pricer, const ModelShape& model, int64_t vocabulary, Flow flow) {
  if (vocabulary == 0) return 0;
  using enum TaskKind;
  double seconds = 0;
  const auto add = [&](TaskKind kind, Phase phase) {
    seconds += pricer.end_seconds(kind, phase, end_work(kind, phase, model.shape, flow, vocabulary));
  };
  for (const Phase phase : {Phase::forward, Phase::backward}) add(head, phase);
  if (!pricer.has(GroupKind::mp)) return seconds;
  const bool apart = traits_of(flow).holds == Tokens::own;
  if (apart) add(end_allgather, Phase::forward);
  add(softmax_sums, Phase::forward);
  add(apart ? end_reducescatter : end_allreduce, Phase::backward);
  return seconds;
}

double all_heads_seconds(const ModelShape& model, double head_s, std::optional<double> pass_s) {
  const auto layers = [&](int stage) {
    const auto [first, last] = layers_of_stage(model, stage);
    return last - first;
  };
  const int most = layers(0), fewer = most - layers(model.shape.parallel.pp - 1), others = model.micro_batches - 1;
  if (fewer == 0) return model.micro_batches * head_s;
  if (!pass_s) return head_s;
  const double layer_s = *pass_s / (others * most + model.layers);
  return head_s + others * std::max(0.0, head_s - fewer * layer_s);
}

}  // namespace moe::tuner
