#include "moe/simulator/model_bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "moe/base/enum_array.h"
#include "moe/plan/offload.h"
#include "moe/prices/pricer.h"

namespace moe {
namespace {

// The Crossings of consecutive passes: lower bounds on the seconds from each lane or the chain before the passes to
// each lane or the chain after them. It is a matrix over (max, +), so consecutive passes are matrix products.
class LaneDelays {
 public:
  explicit LaneDelays(size_t lanes) : size_(lanes + 1) {
    for (auto& row : min_) row.fill(kNever);
  }
  explicit LaneDelays(const Crossings& crossings) : LaneDelays(crossings.size() - 1) {
    for (size_t a = 0; a < size_; ++a)
      for (size_t b = 0; b < size_; ++b) min_[a][b] = crossings[a][b];
    for (size_t lane = 0; lane + 1 < size_; ++lane)  // a lane that the pass does not use keeps its time
      min_[lane][lane] = std::max(min_[lane][lane], 0.0);
  }
  double at(size_t from, size_t to) const { return min_[from][to]; }
  using Ends = std::array<double, 6>;  // at most four lanes (schedule::StageLanes) and the chain
  void apply_to(Ends& ends) const {
    Ends next;
    next.fill(kNever);
    for (size_t a = 0; a < size_; ++a)
      for (size_t b = 0; b < kMax; ++b) next[b] = std::max(next[b], ends[a] + min_[a][b]);
    ends = next;
  }
  LaneDelays followed_by(const LaneDelays& next) const {
    LaneDelays both = *this;
    for (size_t a = 0; a < size_; ++a) next.apply_to(both.min_[a]);
    return both;
  }
  LaneDelays times(int count) const {
    if (count == 1) return *this;
    const LaneDelays half = times(count / 2), even = half.followed_by(half);
    return count % 2 == 0 ? even : even.followed_by(*this);
  }
  bool operator==(const LaneDelays&) const = default;
  /// Returns the elementwise minimum.
  LaneDelays minimum(const LaneDelays& other) const {
    LaneDelays least = *this;
    for (size_t a = 0; a < size_; ++a)
      for (size_t b = 0; b < size_; ++b) least.min_[a][b] = std::min(min_[a][b], other.min_[a][b]);
    return least;
  }

 private:
  static constexpr size_t kMax = std::tuple_size_v<Ends>;
  static constexpr double kNever = -std::numeric_limits<double>::infinity();
  size_t size_;
  std::array<Ends, kMax> min_;
};

// Bounds of one layer's passes. The last micro-batch's backward, which sends gradients, may have another degree.
struct LayerBounds {
  LaneDelays forward, backward, last_backward;
  bool is_uniform = false;  // last_backward equals backward
};

// The bounds of each kind of layer in a model.
using KindBounds = EnumArray<LayerKind, const LayerBounds*, kLayerKinds>;

// Returns the bounds of a layer for these degrees, by PhaseBound.
LayerBounds layer_bounds(const Schedule& schedule, const LayerPricer& pricer, BoundedDegrees degrees,
                         BoundShapes& shapes) {
  const auto between = [&](Phase phase) {
    BoundShape shape = shapes.get(schedule, pricer.outline(), phase);
    shape.gradient_lane = -1;
    return LaneDelays(PhaseBound(schedule, shape, pricer).crossings(degrees));
  };
  const LaneDelays backward = between(Phase::backward);
  return {between(Phase::forward), backward, backward, true};
}

// The earliest ends of one stage's passes so far, for each lane and, last, for the chain. A pass's first task on a lane
// waits for the previous pass's tasks on that lane, because lanes are FIFO queues and passes are issued one by one. The
// chain's first task waits for the previous chain.
class Stage {
 public:
  explicit Stage(size_t lanes) : lanes_(lanes) {}

  void begin_chain(double at) { ends_[lanes_] = at; }
  double chain() const { return ends_[lanes_]; }
  void pass(const LaneDelays& between) {
    const LaneDelays::Ends before = ends_;
    between.apply_to(ends_);
    for (size_t i = 0; i <= lanes_; ++i)
      if (ends_[i] > before[i]) worked_s_ = std::max(worked_s_, ends_[i]);
  }
  /// Sends the chain's output; returns the end of the send.
  double send(size_t lane, double seconds) { return ends_[lane] = std::max(ends_[lane], chain()) + seconds; }
  /// Receives an output that the neighbour finished sending at `left_s`; returns the end of the receive. Messages
  /// arrive in order, each after the previous pass.
  double receive(double left_s, double seconds) {
    return received_s_ = std::max({received_s_, left_s, chain()}) + seconds;
  }
  /// Returns the end of its passes. A send may still overlap with what follows.
  double worked_s() const { return worked_s_; }

  double first_made = 0;  // end of the first layer that the last micro-batch's backward runs

 private:
  size_t lanes_;
  LaneDelays::Ends ends_{};
  double received_s_ = 0, worked_s_ = 0;
};

/// Seconds of the gathers under ZeRO 1: of a stage's dense weights over DP, and of its experts' weights over EDP.
struct StageGathers {
  StageGathers(const LayerPricer& pricer, const LayerPricer* dense, const ModelShape& model, int stage) {
    const ParallelShape& p = model.shape.parallel;
    if (p.zero == 0) return;
    const int moe = model.moe_in(stage);
    if (p.edp > 1) edp_s = moe * pricer.dense_seconds(TaskKind::expert_weights, Phase::backward);
    if (p.replicas() == 1) return;
    dp_s = moe * pricer.dense_seconds(TaskKind::weights, Phase::backward);
    if (dense != nullptr) dp_s += model.dense_in(stage) * dense->dense_seconds(TaskKind::weights, Phase::backward);
  }
  double dp_s = 0, edp_s = 0;
};

class ModelBound {
 public:
  ModelBound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundShapes& shapes)
      : schedule_(schedule),
        pricer_(pricer),
        model_(model),
        shapes_(shapes),
        split_(model.split()),
        pricers_(kind_pricers(pricer, model.dense, model.whole, model.layers)) {
    const BoundShape& shape = shapes.get(schedule, pricer.outline(), Phase::backward);
    lanes_ = shape.lanes.size();
    gradient_lane_ = shape.gradient_lane;
    transfer_lane_ = shape.transfer_lane;
    if (transfer_lane_ >= 0)
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        send_s_[phase] = pricer.dense_seconds(TaskKind::send, phase, schedule.flow);
        receive_s_[phase] = pricer.dense_seconds(TaskKind::recv, phase, schedule.flow);
      }
    if (!model.dense.has_none(model.layers)) dense_ = &pricer.dense(model.dense.hidden);
  }

  const KindPricers& pricers() const { return pricers_; }

  /// Returns the bound of the iteration for these passes.
  double run(const KindBounds& bounds) {
    if (steps_.empty()) prepare_run();
    bounds_ = bounds;
    stages_.assign(split_.stages, Stage(lanes_));
    sent_.assign(stages_.size(), 0);
    pass_ends_.assign(static_cast<size_t>(split_.chunks()) * static_cast<size_t>(model_.micro_batches), {});
    compose_chunks();
    for (const PipelineStep& step : steps_) run(step);
    double end_s = 0;
    for (size_t s = 0; s < stages_.size(); ++s)
      end_s = std::max(end_s, std::max(stages_[s].worked_s(), sent_[s]) + behind_s_[s]);
    return end_s;
  }

  /// Returns a bound from the busiest lane of any stage: its seconds in every pass, from its first task to its last
  /// one; and of the chain, if passes receive their input, because a receive waits for the previous pass. Before a
  /// stage's first pass, a forward runs through a chunk of each earlier stage, and after its last pass a backward. The
  /// step is excluded.
  double busiest_s(const KindBounds& bounds) {
    bounds_ = bounds;
    compose_chunks();
    double max_s = 0, outside_s = 0;
    for (int stage = 0; stage < split_.stages; ++stage) {
      const Chunk& own = chunks_[stage];
      for (size_t lane = 0; lane < lanes_; ++lane) {
        max_s = std::max(max_s, stage_s(stage, lane, lane));
        const bool is_used = own.forward.at(lanes_, lane) >= 0;  // such a lane also waits for the stage's input
        if (is_used) max_s = std::max(max_s, outside_s + stage_s(stage, lane, lanes_));
      }
      const bool is_last = stage + 1 == split_.stages;
      if (stage > 0 && (alternates() || !is_last)) max_s = std::max(max_s, outside_s + stage_s(stage, lanes_, lanes_));
      outside_s += own.forward.at(lanes_, lanes_) + own.last_backward.at(lanes_, lanes_);
      for (const size_t phase : {0, 1}) outside_s += send_s_[phase] + receive_s_[phase];
    }
    return max_s;
  }

 private:
  struct Chunk {
    LaneDelays forward, backward, last_backward;
  };
  using PassEnds = EnumArray<Phase, double, 2>;  // for forward and backward

  void prepare_run() {
    steps_ = pipeline_steps(model_.order, model_.micro_batches, split_);
    for (int stage = 0; stage < split_.stages; ++stage) behind_s_.push_back(step_s(stage));
    const auto beside_s = [&](const LayerPricer& of) {
      const BoundShape& backward = shapes_.get(schedule_, of.outline(), Phase::backward);
      return PhaseBound(schedule_, backward, of).busy(gradient_lane_);
    };
    if (gradient_lane_ < 0) return;
    beside_gradients_s_ = beside_s(pricer_);
    if (dense_ != nullptr) beside_dense_gradients_s_ = beside_s(*dense_);
  }

  // Returns whether the last stage runs each backward directly after the forward of the same micro-batch.
  bool alternates() const {
    return model_.order == PipelineOrder::one_f_one_b && split_.virtual_stages == 1 && split_.parts == 1;
  }

  // Returns a lower bound on the seconds of all passes of a stage, from the start of the first task on `lane` to the
  // end of the last task on `end`, which is the same lane or the chain.
  double stage_s(int stage, size_t lane, size_t end) const {
    const int before = model_.micro_batches - 1;
    if (alternates() && stage + 1 == split_.stages) {
      const Chunk& chunk = chunks_[stage];
      const double pair_s = chunk.forward.followed_by(chunk.backward).at(lane, lane);
      return before * pair_s + chunk.forward.followed_by(chunk.last_backward).at(lane, end);
    }
    double seconds = 0;
    for (int c = stage; c < split_.chunks(); c += split_.stages) {
      const Chunk& chunk = chunks_[c];
      seconds += (before + 1) * chunk.forward.at(lane, lane) + before * chunk.backward.at(lane, lane) +
                 chunk.last_backward.at(lane, c == stage ? end : lane);
    }
    return seconds;
  }

  // Returns a lower bound on the seconds of the step after a stage's passes and gradients.
  double step_s(int stage) const {
    if (model_.step.planned) return min_step_seconds(schedule_, pricer_, model_, stage);
    const StageGathers gathers(pricer_, dense_, model_, stage);
    return pricer_.dense_seconds(TaskKind::optimizer, Phase::backward) + std::max(gathers.dp_s, gathers.edp_s);
  }

  // Combines the layers of each chunk into one pass. A chunk with the same kinds of layers as the last one reuses its
  // pass.
  void compose_chunks() {
    chunks_.clear();
    std::vector<LayerKind> before, now;
    for (int chunk = 0; chunk < split_.chunks(); ++chunk) {
      const auto [first, last] = layers_of_chunk(split_, chunk);
      now.clear();
      for (int layer = first; layer < last; ++layer) now.push_back(model_.kind(layer));
      const bool is_known = chunk > 0 && now == before;
      chunks_.push_back(is_known ? chunks_.back() : composed(now));
      before.swap(now);
    }
  }

  Chunk composed(const std::vector<LayerKind>& kinds) const {
    std::optional<Chunk> chunk;
    for (size_t i = 0, end = 0; i < kinds.size(); i = end) {
      while (end < kinds.size() && kinds[end] == kinds[i]) ++end;
      const LayerBounds& layer = *bounds_[kinds[i]];
      const int count = static_cast<int>(end - i);
      const auto backward_of = [&](const LaneDelays& own) {
        return (pricer_.outline().recomputes ? layer.forward.followed_by(own) : own).times(count);
      };
      const LaneDelays forward = layer.forward.times(count), backward = backward_of(layer.backward);
      const LaneDelays last_backward = layer.is_uniform ? backward : backward_of(layer.last_backward);
      if (chunk)
        chunk = Chunk{chunk->forward.followed_by(forward), backward.followed_by(chunk->backward),
                      last_backward.followed_by(chunk->last_backward)};
      else
        chunk = Chunk{forward, backward, last_backward};
    }
    return *chunk;
  }

  PassEnds& pass_ends(int chunk, int micro_batch) {
    return pass_ends_[static_cast<size_t>(chunk) * static_cast<size_t>(model_.micro_batches) +
                      static_cast<size_t>(micro_batch)];
  }

  // Returns the time at which a step can begin. A forward follows the forward of the previous chunk; a backward follows
  // its own forward and the backward of the next chunk. Data from another stage is received after this stage's previous
  // pass.
  double ready(const PipelineStep& step, Stage& stage) {
    const bool forward = step.phase == Phase::forward;
    const int from = step.chunk + (forward ? -1 : 1);
    const double own_s = forward ? 0 : pass_ends(step.chunk, step.micro_batch)[0];
    if (from < 0 || from == split_.chunks()) return own_s;
    const double left_s = pass_ends(from, step.micro_batch)[step.phase];
    return std::max(own_s, transfer_lane_ < 0 ? left_s : stage.receive(left_s, receive_s_[step.phase]));
  }

  void run(const PipelineStep& step) {
    Stage& stage = stages_[step.stage(split_)];
    const bool forward = step.phase == Phase::forward;
    stage.begin_chain(ready(step, stage));
    const Chunk& chunk = chunks_[step.chunk];
    const bool sends = !forward && step.micro_batch == last_backward(model_.micro_batches, split_);
    if (sends)
      run_last(step.chunk, stage);
    else
      stage.pass(forward ? chunk.forward : chunk.backward);
    // The end of the send may stand for the end of a forward: its backward follows tasks that wait for this message
    // anyway.
    const bool is_last = step.chunk == (forward ? split_.chunks() - 1 : 0);
    pass_ends(step.chunk, step.micro_batch)[step.phase] =
        transfer_lane_ < 0 || is_last ? stage.chain()
                                      : stage.send(static_cast<size_t>(transfer_lane_), send_s_[step.phase]);
    if (sends && step.chunk < split_.stages && gradient_lane_ >= 0) send(step.chunk, stage.first_made, stage.chain());
  }

  void run_last(int chunk, Stage& stage) {
    const auto [first, last] = layers_of_chunk(split_, chunk);
    for (int layer = last - 1; layer >= first; --layer) {
      const LayerBounds& bounds = *bounds_[model_.kind(layer)];
      if (pricer_.outline().recomputes) stage.pass(bounds.forward);
      stage.pass(bounds.last_backward);
      if (layer == last - 1 && chunk + split_.stages >= split_.chunks()) stage.first_made = stage.chain();
    }
  }

  // Bounds the end of a stage's gradients. No gradients exist before the first layer of its last backward has ended,
  // and the later layers' tasks on the gradient lane begin no earlier. The embedding's gradients are made last. Policy
  // `after` sends everything in one slice after the last layer. The head's gradients are ignored: they exist before all
  // layers and may be hidden.
  void send(int stage, double first_made, double last_made) {
    const int64_t embedding = stage == 0 ? model_.embedding_gradient_bytes : 0;
    const int moe = model_.moe_in(stage), dense = model_.dense_in(stage);
    int64_t bytes = moe * pricer_.gradient_bytes() + embedding;
    if (dense > 0) bytes += dense * dense_->gradient_bytes();
    const bool dense_first = model_.dense.has(nth_backward(split_, stage, 0));
    double beside_s = (dense_first ? moe : moe - 1) * beside_gradients_s_;
    if (dense > 0) beside_s += (dense_first ? dense - 1 : dense) * beside_dense_gradients_s_;
    double& sent = sent_[stage];
    sent = first_made + beside_s + pricer_.gradient_seconds_in_parts(bytes);
    if (embedding > 0) sent = std::max(sent, last_made + pricer_.gradient_seconds_in_parts(embedding));
    if (schedule_.gradients == GradientPolicy::after)
      sent = std::max(sent, last_made + pricer_.gradient_seconds(bytes));
  }

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  const ModelShape& model_;
  BoundShapes& shapes_;
  const StageSplit split_;
  const KindPricers pricers_;
  std::vector<PipelineStep> steps_;
  // Prices gradients and states of dense layers, which are the same with and without a window.
  const LayerPricer* dense_ = nullptr;
  size_t lanes_ = 0;
  int gradient_lane_ = -1, transfer_lane_ = -1;
  EnumArray<Phase, double, 2> send_s_{}, receive_s_{};
  double beside_gradients_s_ = 0, beside_dense_gradients_s_ = 0;  // seconds of a backward on the gradients' lane
  // For each stage: seconds after its passes and gradients.
  std::vector<double> behind_s_;

  KindBounds bounds_{};
  std::vector<Chunk> chunks_;
  std::vector<Stage> stages_;
  std::vector<double> sent_;         // for each stage: the end of its gradients
  std::vector<PassEnds> pass_ends_;  // for each chunk and micro-batch: its end, or the end of its send
};

constexpr int kReplayedDegrees = 16;  // all larger degrees share one bound

/// The passes of one phase of a layer under a schedule.
class LayerPasses {
 public:
  LayerPasses(const Schedule& schedule, const LayerPricer& pricer, Phase phase, BoundShapes& shapes)
      : schedule_(schedule), pricer_(pricer), phase_(phase), shapes_(shapes) {}

  /// Returns the pass of one degree, by replay or, if the schedule's order is searched, by PhaseBound.
  LaneDelays at(int degree) const {
    if (schedule_.searched_order) return bounded({.exact = degree});
    const PassTasks& pass = shapes_.pass(schedule_, pricer_.outline(), phase_, degree);
    return LaneDelays(crossings_of(pass, pass.seconds(pricer_)));
  }
  /// Returns the pass of each degree; `degrees` ascend, and those above kReplayedDegrees share one pass.
  std::vector<LaneDelays> all(std::span<const int> degrees) const {
    std::vector<LaneDelays> passes;
    for (const int degree : degrees) {
      const bool is_beyond = degree > kReplayedDegrees && degrees.size() > 1;
      passes.push_back(is_beyond ? bounded({.min = degree}) : at(degree));
      if (is_beyond) break;
    }
    return passes;
  }
  /// Returns the same, without passes that no element makes faster than another pass.
  std::vector<LaneDelays> undominated(std::span<const int> degrees) const {
    std::vector<LaneDelays> passes;
    const auto is_beaten = [&](const LaneDelays& pass) {
      return std::ranges::any_of(passes, [&](const LaneDelays& other) { return other.minimum(pass) == other; });
    };
    for (const int degree : degrees) {
      const bool is_beyond = degree > kReplayedDegrees && degrees.size() > 1;
      if (is_beyond || degree % 4 == 0) {
        const LaneDelays beyond = bounded({.min = degree});
        if (is_beaten(beyond)) break;
        if (is_beyond) {
          passes.push_back(beyond);
          break;
        }
      }
      if (const LaneDelays pass = at(degree); !is_beaten(pass)) passes.push_back(pass);
    }
    return passes;
  }

 private:
  LaneDelays bounded(BoundedDegrees degrees) const {
    return LaneDelays(
        PhaseBound(schedule_, shapes_.get(schedule_, pricer_.outline(), phase_), pricer_).crossings(degrees));
  }

  const Schedule& schedule_;
  const LayerPricer& pricer_;
  const Phase phase_;
  BoundShapes& shapes_;
};

// Returns all pairs of a forward and a backward pass that the schedule allows. With separate degrees, the last
// micro-batch's backward may have any degree.
std::vector<LayerBounds> pairs_of(const Schedule& schedule, const LayerPasses& forward, const LayerPasses& backward,
                                  EnumArray<Phase, std::span<const int>, 2> degrees) {
  std::vector<LayerBounds> pairs;
  if (schedule.degrees != DegreePolicy::apart) {
    const std::vector<LaneDelays> forwards = forward.all(degrees[0]), backwards = backward.all(degrees[1]);
    for (size_t i = 0; i < forwards.size(); ++i) pairs.push_back({forwards[i], backwards[i], backwards[i], true});
    return pairs;
  }
  const std::vector<LaneDelays> forwards = forward.undominated(degrees[0]),
                                backwards = backward.undominated(degrees[1]);
  LaneDelays last = backwards.front();
  for (const LaneDelays& other : backwards) last = last.minimum(other);
  for (const LaneDelays& f : forwards)
    for (const LaneDelays& b : backwards) pairs.push_back({f, b, last, backwards.size() == 1});
  return pairs;
}

// Returns bounds that hold for all of these pairs.
LayerBounds min_of(std::span<const LayerBounds> pairs) {
  LayerBounds least = pairs.front();
  for (const LayerBounds& other : pairs.subspan(1))
    least = {least.forward.minimum(other.forward), least.backward.minimum(other.backward),
             least.last_backward.minimum(other.last_backward), false};
  return least;
}

// The bounds of all kinds of a model's layers, by PhaseBound.
struct OwnedBounds {
  OwnedBounds(const Schedule& schedule, const KindPricers& pricers, BoundedDegrees degrees, BoundShapes& shapes) {
    for (const LayerKind kind : kAllLayerKinds) {
      if (pricers[kind] == nullptr) continue;
      owned[kind] = layer_bounds(schedule, *pricers[kind], is_dense(kind) ? BoundedDegrees() : degrees, shapes);
      bounds[kind] = &*owned[kind];
    }
  }
  EnumArray<LayerKind, std::optional<LayerBounds>, kLayerKinds> owned;
  KindBounds bounds{};
};

}  // namespace

double min_step_seconds(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, int stage) {
  const LayerCase& c = model.shape;
  const int moe = model.moe_in(stage), dense_layers = model.dense_in(stage);
  const auto sum = [&](GroupKind kind, TaskKind of, double bytes) {
    return pricer.has(kind) ? step_seconds(pricer, of, {Op::allreduce, kind, bytes, 0, 0}) : 0;
  };
  const auto network = [&](GroupKind kind) { return pricer.groups()[kind].network; };
  const LayerPricer* dense = dense_layers > 0 ? &pricer.dense(model.dense.hidden) : nullptr;
  double alike = static_cast<double>(moe * stage_gradient_bytes(c));
  if (dense) alike += static_cast<double>(dense_layers * stage_gradient_bytes(dense->shape()));
  // The stage sum follows all passes unless the first layer is dense and has no norms: then it may overlap with its
  // backward.
  const bool sums_behind = alike > 0 && (!dense || c.layer.norm != Norm::none);
  double seconds = sums_behind ? sum(GroupKind::stage, TaskKind::stage_gradient, alike) : 0;
  // Other sums on the same lane follow the stage sum; sums on other lanes need not.
  const bool one_lane = sums_behind && schedule.lanes != LaneLayout::by_network_gradient;
  const auto behind = [&](GroupKind kind) { return one_lane && network(kind) == network(GroupKind::stage); };
  if (behind(GroupKind::edp) && !schedule.packs_experts)
    seconds += moe * sum(GroupKind::edp, TaskKind::expert_gradient, static_cast<double>(expert_gradient_bytes(c)));
  if (model.step.clips) seconds += sum(GroupKind::world, TaskKind::norm, sizeof(double));
  const bool counts_ends = model.head_gradient_bytes > 0 || model.embedding_gradient_bytes > 0;
  double optimizer_s = 0;                      // seconds of one layer's optimizer task
  if (model.step.optimizer && !counts_ends) {  // otherwise the last task may be an end's, which may be short
    double bytes = optimizer_bytes(c, device_weights(c, step_weights(c)), *model.step.optimizer);
    if (dense) bytes = std::min(bytes, optimizer_bytes(c, step_weights(dense->shape()), *model.step.optimizer));
    optimizer_s = step_seconds(pricer, TaskKind::optimizer, {Op::copy, GroupKind::none, bytes, 0, 0});
  }
  // Gathers follow the sums on their lane. With clipping, optimizers follow the norm, and gathers follow an optimizer.
  const StageGathers gathers(pricer, dense, model, stage);
  const double counted_s = std::max(model.step.clips || behind(GroupKind::dp) ? gathers.dp_s : 0,
                                    model.step.clips || behind(GroupKind::edp) ? gathers.edp_s : 0);
  if (model.step.clips)
    seconds += std::max((moe + dense_layers) * optimizer_s, optimizer_s + counted_s);
  else
    seconds += std::max(optimizer_s, counted_s);
  if (!pricer.has(GroupKind::mp)) return seconds;
  const bool own = traits_of(schedule.flow).holds == Tokens::own;
  const TaskKind last = own ? TaskKind::mp_reducescatter : TaskKind::mp_allreduce;
  return std::max(0.0, seconds - pricer.dense_seconds(last, Phase::backward, schedule.flow));
}

double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                   BoundedDegrees degrees) {
  BoundShapes shapes;
  return model_bound(schedule, pricer, model, degrees, shapes);
}

// Returns the seconds of transfers on the busiest stage's link to the host.
static double host_link_seconds(const LayerPricer& pricer, const ModelShape& model) {
  if (model.shape.parallel.offload == Offload::none) return 0;
  const double fetch_s = pricer.dense_seconds(TaskKind::fetch, Phase::forward);
  const double store_s = pricer.dense_seconds(TaskKind::store, Phase::backward);
  double most = 0;
  for (int stage = 0; stage < model.split().stages; ++stage)
    most =
        std::max(most, fetches_of_stage(model.order, model.micro_batches, model.split(), stage, model.dense) * fetch_s +
                           model.moe_in(stage) * store_s);
  return most;
}

double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundedDegrees degrees,
                   BoundShapes& shapes) {
  ModelBound bound(schedule, pricer, model, shapes);
  const OwnedBounds all(schedule, bound.pricers(), degrees, shapes);
  return std::max(bound.run(all.bounds), host_link_seconds(pricer, model));
}

double busiest_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                     BoundShapes& shapes) {
  ModelBound bound(schedule, pricer, model, shapes);
  return bound.busiest_s(OwnedBounds(schedule, bound.pricers(), {}, shapes).bounds);
}

// Evaluates pairs of degrees in ascending order of busiest_s(), until that bound alone exceeds the best result. The
// pairs are those of one kind of MoE layer; another kind has the passes of the same degrees or, with separate degrees,
// the minimum over all degrees.
double replayed_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                      EnumArray<Phase, std::span<const int>, 2> degrees, BoundShapes& shapes) {
  const auto passes = [&](const LayerPricer& of, Phase phase) { return LayerPasses(schedule, of, phase, shapes); };
  ModelBound bound(schedule, pricer, model, shapes);
  EnumArray<LayerKind, std::vector<LayerBounds>, kLayerKinds> pairs;
  size_t count = 1;
  for (const LayerKind kind : {LayerKind::moe, LayerKind::whole_moe}) {
    const LayerPricer* of = bound.pricers()[kind];
    if (of == nullptr) continue;
    pairs[kind] = pairs_of(schedule, passes(*of, Phase::forward), passes(*of, Phase::backward), degrees);
    if (count > 1 && schedule.degrees == DegreePolicy::apart) pairs[kind] = {min_of(pairs[kind])};
    count = std::max(count, pairs[kind].size());
  }
  for (const LayerKind kind : {LayerKind::dense, LayerKind::whole_dense}) {
    const LayerPricer* of = bound.pricers()[kind];
    if (of == nullptr) continue;
    const LaneDelays backward = passes(*of, Phase::backward).at(1);
    pairs[kind] = {LayerBounds{passes(*of, Phase::forward).at(1), backward, backward, true}};
  }
  const auto bounds_of = [&](size_t i) {
    KindBounds bounds{};
    for (const LayerKind kind : kAllLayerKinds)
      if (!pairs[kind].empty()) bounds[kind] = &pairs[kind][std::min(i, pairs[kind].size() - 1)];
    return bounds;
  };
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < count; ++i) order.emplace_back(bound.busiest_s(bounds_of(i)), i);
  std::ranges::sort(order);
  double min_s = std::numeric_limits<double>::infinity();
  for (const auto& [busiest_s, i] : order) {
    if (busiest_s >= min_s) break;
    min_s = std::min(min_s, bound.run(bounds_of(i)));
  }
  return min_s;
}

}  // namespace moe
