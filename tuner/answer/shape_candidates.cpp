#include "tuner/answer/shape_candidates.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "moe/base/check.h"

namespace moe::tuner {
namespace {

/// What a rank keeps.
struct KeptStates {
  int zero;
  Recompute recompute;
};

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

std::vector<int64_t> choices(const std::optional<int>& fixed, int64_t of) {
  return fixed ? std::vector<int64_t>{*fixed} : divisors(of);
}

// Lists what a rank may keep where no flag says it. ZeRO 1 shares the optimizer's step out and gathers weights; scores,
// or whole forwards, are computed again in every pass.
std::vector<KeptStates> states_of(const ShapeRequest& request) {
  const ParallelShape& p = request.chosen.model.shape.parallel;
  const std::vector<int> zeros = request.fixed.zero ? std::vector<int>{p.zero} : std::vector<int>{0, 1};
  std::vector<Recompute> again{p.recompute};
  if (!request.fixed.recompute) again = {Recompute::none, Recompute::selective, Recompute::full};
  std::vector<KeptStates> states;
  for (const int zero : zeros)
    for (const Recompute recompute : again) states.push_back({zero, recompute});
  return states;
}

class Enumeration {
 public:
  explicit Enumeration(const ShapeRequest& request) : request_(request), states_(states_of(request)) {}

  ShapeCandidates run() {
    enumerate();
    return std::move(found_);
  }

 private:
  // Enumerates groups first, then how the global batch is cut among replicas and into micro-batches.
  void enumerate() {
    const ModelShape& given = request_.chosen.model;
    const ParallelShape& p = given.shape.parallel;
    const int64_t samples = request_.global_batch;
    const verbs::LayerFlags& fixed = request_.fixed;
    for (const int64_t pp : choices(fixed.pp, given.layers == 1 ? 1 : p.ranks()))
      for (const int64_t mp : choices(fixed.mp, p.ranks() / pp))
        for (const int64_t ep : choices(fixed.ep, given.shape.layer.experts))
          for (const int64_t esp : choices(fixed.esp, p.ranks() / pp))
            for (const bool inside : {false, true}) {
              if (p.ranks() % (pp * mp) != 0 || pp > given.layers) continue;
              const bool alike = ep == 1 || esp == 1 || p.nodes == 1;
              if (fixed.placement ? inside != p.ep_inside : inside && alike) continue;
              const int64_t dp = p.ranks() / (pp * mp);
              if (samples % dp != 0 || (fixed.dp && *fixed.dp != dp)) continue;
              ModelShape model = given;
              model.shape.parallel = {.nodes = p.nodes,
                                      .ranks_per_node = p.ranks_per_node,
                                      .dp = 0,
                                      .mp = static_cast<int>(mp),
                                      .ep = static_cast<int>(ep),
                                      .esp = static_cast<int>(esp),
                                      .pp = static_cast<int>(pp),
                                      .ep_inside = inside};
              add_batches(model, samples / dp);
            }
  }

  void add_batches(const ModelShape& groups, int64_t samples_a_replica) {
    const bool one = !request_.chosen.stack && groups.shape.parallel.pp == 1;
    for (const int64_t micro_batches : divisors(samples_a_replica)) {
      if (request_.fixed_micro_batches ? micro_batches != groups.micro_batches : one && micro_batches > 1) continue;
      for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
        const bool one_order = request_.fixed_order || micro_batches == 1;
        if (one_order && order != groups.order) continue;
        ModelShape model = groups;
        model.micro_batches = static_cast<int>(micro_batches);
        model.order = order;
        model.shape.layer.batch = samples_a_replica / micro_batches;
        for (const int chunks : virtual_stages(model)) {
          model.virtual_stages = chunks;
          add(model);
        }
      }
    }
  }

  // Lists how many chunks of layers a stage may have: one, unless a number is asked for that the interleaved order can
  // run.
  std::vector<int> virtual_stages(const ModelShape& model) const {
    const int stages = model.shape.parallel.pp, asked = model.virtual_stages;
    if (stages == 1 || !request_.fixed_virtual_stages || asked == 1) return {1};
    const bool divides = model.order == PipelineOrder::one_f_one_b && model.micro_batches % stages == 0 &&
                         model.layers % (stages * asked) == 0;
    return divides ? std::vector<int>{asked} : std::vector<int>{};
  }

  void add(ModelShape model) {
    try {
      model.shape = complete(model.shape.layer, model.shape.parallel, model.shape.rounding);
      if (model.dense.hidden > 0) dense_case(model.shape, model.dense.hidden);
    } catch (const BadInput&) {  // it does not divide
      return;
    }
    add_ends(model, request_.chosen.vocabulary, request_.chosen.tied_embedding);
    const bool shards = model.shape.parallel.dp > 1 || model.shape.parallel.edp > 1;
    for (const auto& [zero, recompute] : states_) {
      if (zero > 0 && !shards && !request_.fixed.zero) continue;  // the same as without
      model.shape.parallel.zero = zero;
      model.shape.parallel.recompute = recompute;
      const MemoryEstimate needed =
          verbs::memory_of(request_.chosen, memory_request(model, model.shape, Flow::sharded));
      found_.least_bytes = std::min(found_.least_bytes, needed.total());
      if (request_.profile.memory_bytes && misfit(needed, *request_.profile.memory_bytes))
        ++found_.too_large;
      else
        found_.fitting.push_back({model, needed.total()});
    }
  }

  const ShapeRequest& request_;
  const std::vector<KeptStates> states_;
  ShapeCandidates found_;
};

}  // namespace

ShapeCandidates shape_candidates(const ShapeRequest& request) { return Enumeration(request).run(); }

}  // namespace moe::tuner
