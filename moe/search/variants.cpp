#include "moe/search/variants.h"

#include <algorithm>

namespace moe {
namespace {

// Says whether Parm's t_D1 <= t_D2 (Parm Eqs. 6 and 7): AlltoAlls of E T M N_ESP / N_MP, the MP AllGather of B L M in
// D1, and in D2 the second AlltoAll with the MP AllGather under it. That pair is taken as measured (row saa), and then
// neither side counts the sum over ESP; or as replayed, where both do: what lies between the expert's end and the last
// combine's.
bool first_is_faster(const LayerPricer& pricer, double first_moe_s, double second_moe_s) {
  const double rows = pricer.all_rows();
  const double alltoall_s =
      pricer.has(GroupKind::ep_esp) ? pricer.chunk_seconds(TaskKind::dispatch, Phase::forward, rows, Flow::fused) : 0;
  const double expert_s = pricer.chunk_seconds(TaskKind::expert, Phase::forward, rows, Flow::fused);
  const double gather_s =
      pricer.has(GroupKind::mp) ? pricer.dense_seconds(TaskKind::mp_allgather, Phase::forward, Flow::fused) : 0;
  const std::optional<double> measured = pricer.saa_seconds();
  const double home_s = measured ? alltoall_s : first_moe_s - alltoall_s - expert_s;
  const double overlap_s = measured ? *measured : second_moe_s - alltoall_s - expert_s;
  return home_s + gather_s <= overlap_s * (1 + 1e-9);  // a tie must not hang on the last bit of a sum
}

}  // namespace

LayerResult tune_variants(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          const DegreeChoice& choice) {
  std::vector<LayerResult> results;
  for (const Schedule* variant : schedule.variants) {
    const bool one = variant->degrees == DegreePolicy::one;
    if (one && std::max(choice.forward, choice.backward) > 1) continue;  // another degree was asked for
    LayerResult result = search.tune(*variant, pricer, choice);
    result.schedule = schedule.name;
    result.decision.variant = variant;
    results.push_back(result);
  }
  Bound bound = results.front().bound;
  for (const LayerResult& result : results) bound = lesser_phases(bound, result.bound);
  for (LayerResult& result : results) result.bound = bound;
  if (schedule.flow != Flow::fused) return *std::ranges::min_element(results, {}, &LayerResult::total_s);
  LayerCase routed = pricer.shape();  // the model knows no shared expert
  routed.layer.shared_hidden = 0;
  const LayerPricer alone(pricer.profile(), routed, pricer.options());
  const auto moe_s = [&](size_t i) { return search.tune(*schedule.variants[i], alone, choice).moe_forward_s; };
  return results[first_is_faster(alone, moe_s(0), moe_s(1)) ? 0 : 1];
}

// p doubles while the expert's micro-op is shorter than the AlltoAll's (Lina section 4.2), as long as groups divide and
// the profile has rows for them.
std::vector<LayerResult> tune_packings(search::LayerReplay layer, DegreeChoice choice) {
  const Schedule& schedule = layer.schedule;
  const LayerPricer& pricer = layer.pricer;
  check_choice(schedule, choice);
  check_shape(schedule, pricer.shape());
  std::vector<LayerResult> results{tune_degrees(layer, choice)};
  for (int packing = 1; pricer.shape().parallel.ep % (2 * packing) == 0;) {
    const LayerPricer packed(pricer.profile(), decided_case(pricer.shape(), results.back().decision), pricer.options());
    if (!packed.has(GroupKind::ep)) break;
    const double rows = static_cast<double>(packed.rows()) / results.back().decision.degree_forward;
    if (packed.chunk_seconds(TaskKind::expert, Phase::forward, rows) >=
        packed.chunk_seconds(TaskKind::dispatch, Phase::forward, rows))
      break;
    Decision decision;
    decision.packing = packing *= 2;
    try {
      const LayerPricer next(pricer.profile(), decided_case(pricer.shape(), decision), pricer.options());
      if (choice.fits && !choice.fits(next.shape(), schedule.flow)) break;
      results.push_back(tune_degrees({schedule, next, layer.store}, choice));
    } catch (const Unpriced&) {
      break;  // without a row for the smaller groups Lina could not have measured them either
    }
    results.back().decision.packing = packing;
  }
  return results;
}

// Lina's rule says how far packing may go, and the replay how far it pays: the replicas' gradients cost what the
// AlltoAlls save, and more experts need more memory (the paper then offloads to the host, which no plan does).
LayerResult tune_packed(search::LayerReplay layer, const DegreeChoice& choice) {
  const std::vector<LayerResult> all = tune_packings(layer, choice);
  LayerResult best = all.front();
  for (const LayerResult& result : all)
    if (search::better(result.total_s(), best.total_s())) best = result;
  return best;
}

}  // namespace moe
