#include "tuner/answer/shape_search.h"

#include <algorithm>
#include <chrono>

#include "moe/base/check.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/cost/model_bound.h"

namespace moe::tuner {
namespace {

/// One question of the search: a shape under a schedule.
struct Open {
  size_t shape;
  const Schedule* schedule;
  double bound_s, expert_sums_s;
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

class ShapeSearch {
 public:
  explicit ShapeSearch(const ShapeRequest& request)
      : request_(request), pricing_{true, "--shape"}, capacity_(request.profile.memory_bytes) {}

  FoundShapes run() {
    enumerate();
    found_.shapes = static_cast<int>(shapes_.size()) + found_.too_large;
    open_all();
    std::ranges::sort(open_, {}, &Open::bound_s);
    best_.resize(shapes_.size());
    const auto start = std::chrono::steady_clock::now();
    size_t next = 0;
    for (; next < open_.size() && open_[next].bound_s < least_s_; ++next) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (took.count() > request_.seconds) break;
      plan(open_[next]);
    }
    settle(next);
    return std::move(found_);
  }

 private:
  // Groups first, then how the global batch is cut among and in time.
  void enumerate() {
    const ModelShape& given = request_.chosen.model;
    const ParallelShape& p = given.shape.parallel;
    const int64_t samples = given.shape.layer.batch * p.dp * given.micro_batches;
    const LayerFlags& fixed = request_.fixed;
    for (const int64_t pp : choices(fixed.pp, given.layers == 1 ? 1 : p.ranks()))
      for (const int64_t mp : choices(fixed.mp, p.ranks() / pp))
        for (const int64_t ep : choices(fixed.ep, given.shape.layer.experts))
          for (const int64_t esp : choices(fixed.esp, p.ranks() / pp))
            for (const bool inside : {false, true}) {
              if (p.ranks() % (pp * mp) != 0 || pp > given.layers) continue;
              if (fixed.placement ? inside != p.ep_inside : inside && (ep == 1 || esp == 1)) continue;
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
    const bool one = groups.layers == 1 && groups.shape.parallel.pp == 1;
    for (const int64_t micro_batches : divisors(samples_a_replica)) {
      if (request_.fixed_pipeline ? micro_batches != groups.micro_batches : one && micro_batches > 1) continue;
      for (const PipelineOrder order : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b}) {
        const bool alike = groups.shape.parallel.pp == 1 || micro_batches == 1;
        if (request_.fixed_pipeline ? order != groups.order : alike && order != PipelineOrder::gpipe) continue;
        ModelShape model = groups;
        model.micro_batches = static_cast<int>(micro_batches);
        model.order = order;
        model.shape.layer.batch = samples_a_replica / micro_batches;
        add(std::move(model));
      }
    }
  }

  void add(ModelShape model) {
    try {
      model.shape = complete(model.shape.layer, model.shape.parallel, model.shape.rounding);
    } catch (const BadInput&) {  // it does not divide
      return;
    }
    model.head_gradient_bytes = model.embedding_gradient_bytes = 0;
    add_ends(model, request_.chosen.vocabulary, request_.chosen.tied_embedding);
    MemoryRequest memory = memory_request(model, model.shape, Flow::sharded);
    memory.vocabulary = request_.chosen.vocabulary;
    memory.tied_embedding = request_.chosen.tied_embedding;
    const MemoryEstimate needed = estimate_memory(memory);
    least_memory_ = std::min(least_memory_, needed.total());
    if (capacity_ && misfit(needed, *capacity_)) {
      ++found_.too_large;
      return;
    }
    shapes_.push_back(std::move(model));
  }

  void open_all() {
    std::string reason;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const LayerPricer pricer(request_.profile, shapes_[i].shape, pricing_);
      const size_t before = open_.size();
      for (const Schedule* schedule : request_.schedules) try {
          const double sums_s = expert_sums_s(*schedule, pricer, shapes_[i]);
          open_.push_back({i, schedule, bound_of(*schedule, pricer, shapes_[i]) + sums_s, sums_s});
        } catch (const Unsupported& error) {
          reason = error.what();
        } catch (const BadInput& error) {  // too many tasks
          reason = error.what();
        }
      if (open_.size() == before) ++found_.unpriced;
    }
    require<Unsupported>(!shapes_.empty(), "--shape: none of {} shapes fits: the least needs {}, a rank has {}",
                         found_.shapes, human_bytes(least_memory_), human_bytes(capacity_.value_or(0)));
    require<Unsupported>(!open_.empty(), "--shape: none of {} shapes can be planned: {}", found_.shapes, reason);
  }

  double bound_of(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) const {
    if (schedule.variants.empty())
      return one_layer(model) ? degree_free_bound(schedule, pricer).total_s() : model_bound(schedule, pricer, model);
    double least = std::numeric_limits<double>::infinity();
    for (const Schedule* variant : schedule.variants) least = std::min(least, bound_of(*variant, pricer, model));
    return least;
  }

  double expert_sums_s(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model) const {
    const ParallelShape& p = model.shape.parallel;
    if (p.edp == 1 || schedule.packs_experts) return 0;
    const double layers = static_cast<double>((model.layers + p.pp - 1) / p.pp);  // of the fullest stage
    return layers * pricer.gradient_seconds(expert_gradient_bytes(model.shape), TaskKind::expert_gradient);
  }

  void plan(const Open& open) {
    ChosenModel chosen = request_.chosen;
    chosen.model = shapes_[open.shape];
    RankedSchedule row = ranked({chosen, request_.profile, request_.degrees, pricing_}, *open.schedule);
    if (!row.refused.empty()) return;
    RankedShape found{shapes_[open.shape], std::move(row), open.expert_sums_s};
    std::optional<RankedShape>& best = best_[open.shape];
    if (best && best->total_s() <= found.total_s()) return;
    least_s_ = std::min(least_s_, found.total_s());
    best = std::move(found);
  }

  void settle(size_t next) {
    for (std::optional<RankedShape>& best : best_)
      if (best) found_.ranked.push_back(*std::move(best));
    require<Unsupported>(!found_.ranked.empty(), "--shape: none of {} shapes can be planned within a rank's memory",
                         found_.shapes);
    found_.ruled_out = static_cast<int>(shapes_.size() - found_.ranked.size()) - found_.unpriced;
    std::ranges::stable_sort(found_.ranked, {}, &RankedShape::total_s);
    found_.at_least_s = next < open_.size() ? std::min(least_s_, open_[next].bound_s) : least_s_;
    double least_memory = std::numeric_limits<double>::infinity();
    for (RankedShape& shape : found_.ranked) {
      shape.pareto = shape.best.memory_bytes < least_memory;
      least_memory = std::min(least_memory, shape.best.memory_bytes);
    }
  }

  const ShapeRequest& request_;
  const PricingOptions pricing_;
  const std::optional<double> capacity_;
  std::vector<ModelShape> shapes_;
  std::vector<Open> open_;
  std::vector<std::optional<RankedShape>> best_;  // by shape
  double least_memory_ = std::numeric_limits<double>::infinity();
  double least_s_ = std::numeric_limits<double>::infinity();
  FoundShapes found_;
};

}  // namespace

FoundShapes find_shapes(const ShapeRequest& request) { return ShapeSearch(request).run(); }

std::string describe_shape(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  std::string text = fmt::format("DP {} MP {} EP {} ESP {} PP {}", p.dp, p.mp, p.ep, p.esp, p.pp);
  if (p.ep > 1 && p.esp > 1) text += fmt::format(" {}", placement_name(p));
  text += fmt::format(", {} micro-batch{} of {}", model.micro_batches, model.micro_batches == 1 ? "" : "es",
                      model.shape.layer.batch);
  return model.micro_batches > 1 && p.pp > 1 ? fmt::format("{} ({})", text, name_of(model.order)) : text;
}

std::string text_of(const FoundShapes& found, int top) {
  Table table(
      {"shape", "schedule", "r_f", "r_b", "predicted ms", "expert sums ms", "a rank needs", "least memory so fast"});
  for (const RankedShape& shape : found.ranked) {
    if (top-- <= 0) break;
    const RankedSchedule& best = shape.best;
    table.add({describe_shape(shape.model), std::string(best.schedule->name), fmt::format("{}", best.degree_forward),
               fmt::format("{}", best.degrees_backward.first), fmt::format("{:.3f}", 1e3 * best.total_s()),
               fmt::format("{:.3f}", 1e3 * shape.expert_sums_s), human_bytes(best.memory_bytes),
               shape.pareto ? "yes" : "no"});
  }
  const std::string sure =
      found.gap() <= 0 ? "none is faster" : fmt::format("none is more than {:.1f} % faster", 100 * found.gap());
  return fmt::format(
      "SHAPE  {} shapes of one global batch: {} too large, {} without a price, {} ruled out by a bound; {}\n\n{}",
      found.shapes, found.too_large, found.unpriced, found.ruled_out, sure, table.text());
}

Json json_of(const FoundShapes& found) {
  Json shapes = Json::array();
  for (const RankedShape& shape : found.ranked) {
    Json json = group_sizes(shape.model.shape.parallel);
    json["placement"] = placement_name(shape.model.shape.parallel);
    json["batch"] = shape.model.shape.layer.batch;
    json["micro_batches"] = shape.model.micro_batches;
    json["pipeline"] = name_of(shape.model.order);
    json["schedule"] = shape.best.schedule->name;
    json["total_s"] = shape.best.total_s();
    json["expert_sums_s"] = shape.expert_sums_s;
    json["memory_bytes"] = shape.best.memory_bytes;
    json["pareto"] = shape.pareto;
    shapes.push_back(std::move(json));
  }
  return {{"shapes", found.shapes},
          {"too_large", found.too_large},
          {"unpriced", found.unpriced},
          {"ruled_out", found.ruled_out},
          {"at_least_s", found.at_least_s},
          {"gap", found.gap()},
          {"ranked", shapes}};
}

}  // namespace moe::tuner
