#include "tuner/answer/shape_bounds.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "moe/base/check.h"
#include "moe/cost/model_bound.h"

namespace moe::tuner {
namespace {

/// A bound on the time of a model under a schedule that neither chooses nor packs.
using PlainBound = std::function<double(const Schedule&, const LayerPricer&, const ModelShape&)>;

// Returns the least bound of what the schedule chooses among: variants, and packings of experts that fit.
double least_of(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                const DegreeChoice& choice, const PlainBound& bound) {
  double least = std::numeric_limits<double>::infinity();
  for (const Schedule* variant : schedule.variants)
    least = std::min(least, least_of(*variant, pricer, model, choice, bound));
  if (!schedule.variants.empty()) return least;
  least = bound(schedule, pricer, model);
  if (!schedule.packs_experts) return least;
  for (int packing = 2; model.shape.parallel.ep % packing == 0; packing *= 2) try {
      ModelShape packed = model;
      packed.shape = decided_case(model.shape, {.packing = packing});
      if (choice.fits && !choice.fits(packed.shape, schedule.flow)) break;
      least = std::min(least, bound(schedule, LayerPricer(pricer.profile(), packed.shape, pricer.options()), packed));
    } catch (const Unsupported&) {  // no such packing, or no price for its groups
      break;
    }
  return least;
}

/// Seconds of each lane in a layer's pass, and of the busiest.
struct PassLoad {
  PassLoad(const Schedule& schedule, const LayerPricer& pricer, Phase phase, BoundShapes& shapes) {
    const BoundShape& shape = shapes.get(schedule, pricer.outline(), phase);
    const PhaseBound bound(schedule, shape, pricer);
    for (size_t lane = 0; lane < shape.lanes.size(); ++lane) lanes.push_back(bound.busy(static_cast<int>(lane)));
    busiest = std::ranges::max(lanes);
  }
  std::vector<double> lanes;
  double busiest;
};

/// What a layer adds to a bound by lanes: to each lane of its stage for each micro-batch, and to what precedes and
/// follows the last stage's passes.
struct LayerLoad {
  LayerLoad(const Schedule& schedule, const LayerPricer& pricer, BoundShapes& shapes) {
    const int forwards = forwards_of(pricer.outline());
    const PassLoad forward(schedule, pricer, Phase::forward, shapes);
    const PassLoad backward(schedule, pricer, Phase::backward, shapes);
    for (size_t lane = 0; lane < std::min(forward.lanes.size(), backward.lanes.size()); ++lane)
      lanes.push_back(forwards * forward.lanes[lane] + backward.lanes[lane]);
    forward_s = forward.busiest;
    backward_s = (forwards - 1) * forward.busiest + backward.busiest;
  }
  std::vector<double> lanes;
  double forward_s, backward_s;
};

// Returns lane_bound_s of a schedule that neither chooses nor packs.
double plain_lane_bound_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                          BoundShapes& shapes) {
  const LayerLoad moe(schedule, pricer, shapes);
  std::optional<LayerLoad> dense;
  if (!model.dense.none(model.layers)) dense.emplace(schedule, pricer.dense(model.dense.hidden), shapes);
  const auto busiest = [&](int stage) {
    double most = 0;
    for (size_t lane = 0; lane < moe.lanes.size(); ++lane)
      most = std::max(most,
                      model.moe_in(stage) * moe.lanes[lane] + (dense ? model.dense_in(stage) * dense->lanes[lane] : 0));
    return model.micro_batches * most;
  };
  const int last = model.shape.parallel.pp - 1;
  if (last == 0) return busiest(0);
  // The first micro-batch comes through a chunk of each stage before, and the last goes back through them. A half of a
  // backward that nothing waits for may run meanwhile: a layer's at most.
  double before_s = 0;
  for (int chunk = 0; chunk < last; ++chunk) {
    const auto [first, end] = layers_of_chunk(model.split(), chunk);
    const int of_dense = model.dense.in(first, end), of_moe = end - first - of_dense;
    before_s += of_moe * (moe.forward_s + moe.backward_s);
    if (dense) before_s += of_dense * (dense->forward_s + dense->backward_s);
  }
  before_s -= std::max(moe.backward_s, dense ? dense->backward_s : 0);
  return std::max(busiest(0), before_s + busiest(last));
}

}  // namespace

double lane_bound_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                    const DegreeChoice& choice, BoundShapes& shapes) {
  return least_of(schedule, pricer, model, choice,
                  [&](const Schedule& plain, const LayerPricer& of, const ModelShape& m) {
                    return plain_lane_bound_s(plain, of, m, shapes);
                  });
}

double plan_bound_s(const Schedule& schedule, const LayerPricer& pricer, const verbs::ChosenModel& chosen,
                    const DegreeChoice& choice, BoundShapes& shapes) {
  const bool layer = one_layer(chosen);
  return least_of(schedule, pricer, chosen.model, choice,
                  [&](const Schedule& plain, const LayerPricer& of, const ModelShape& m) {
                    return layer ? degree_free_bound(plain, of).total_s() : model_bound(plain, of, m, {}, shapes);
                  });
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
  const StageSplit split = model.split();
  const int most = layers_in(split, 0), fewer = most - layers_in(split, split.stages - 1),
            others = model.micro_batches - 1;
  if (fewer == 0) return model.micro_batches * head_s;
  if (!pass_s) return head_s;
  const double layer_s = *pass_s / (others * most + model.layers);
  return head_s + others * std::max(0.0, head_s - fewer * layer_s);
}

}  // namespace moe::tuner
