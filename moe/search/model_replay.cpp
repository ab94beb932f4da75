#include "moe/search/detail/model_replay.h"

#include <algorithm>
#include <utility>

namespace moe::search {
namespace {

constexpr int64_t kKeptTasks = 1'000'000;  // limit for the tasks of cached plans: some 50 MB
// Number of tasks that are replayed in the time of building and checking one task.
constexpr int64_t kTasksToCompile = 50;

// Returns a key of everything that a plan's structure depends on, except the makers of slices.
std::string structure_name(const ModelDecision& d, size_t slices) {
  std::string name = std::to_string(d.degree_forward) + ',' + std::to_string(d.degree_backward) + ',';
  name += d.order_forward + '|' + d.order_backward + '|' + std::to_string(slices);
  for (const BackwardDecision& b : d.backwards) {
    name += std::to_string(b.degree);
    name += {b.gar_in_moe_bytes > 0 ? 'm' : '-', b.gar_beside_dense_bytes > 0 ? 'd' : '-'};
    name += b.order;
  }
  return name;
}

}  // namespace

int64_t waiting_bytes(const LayerPricer& pricer, const ModelShape& model) {
  return pricer.has(GroupKind::dp) && model.shape.parallel.pp == 1 ? model.head_gradient_bytes : 0;
}

ModelReplay::ModelReplay(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model)
    : schedule_(schedule),
      pricer_(pricer),
      model_(model),
      made_bytes_(pricer.has(GroupKind::dp) ? pricer.gradient_bytes() : 0),
      head_bytes_(pricer.has(GroupKind::dp) ? model.head_gradient_bytes : 0),
      embedding_bytes_(pricer.has(GroupKind::dp) ? model.embedding_gradient_bytes : 0) {
  const auto network = [&](GroupKind kind) { return pricer.groups()[kind].network; };
  made_by_layer_.assign(model.layers, made_bytes_);
  const bool sends = pricer.has(GroupKind::dp) && !model.dense.has_none(model.layers);
  const int64_t dense_bytes = sends ? gradient_bytes(dense_case(pricer.shape(), model.dense.hidden)) : 0;
  for (int layer = 0; layer < model.layers && sends; ++layer)
    if (model.dense.has(layer)) made_by_layer_[layer] = dense_bytes;
  makers_matter_ = model.step.planned || network(GroupKind::ep) != network(GroupKind::dp);
}

// Returns a decision's slices in the order in which plans number them: as the last micro-batch's backward makes them,
// from the last chunk of layers to the first.
std::vector<ModelReplay::Slice> ModelReplay::slices_of(const ModelDecision& decision) const {
  const StageSplit split = model_.split();
  std::vector<Slice> slices;
  std::vector<int64_t> left(split.stages);
  for (int chunk = split.chunks() - 1; chunk >= 0; --chunk) {
    const auto [first, last] = layers_of_chunk(split, chunk);
    const int stage = chunk % split.stages;
    int64_t& waiting = left[stage];
    for (int layer = first; layer < last; ++layer) waiting += made_by_layer_[layer];
    if (chunk + 1 == split.chunks()) waiting += head_bytes_;
    if (chunk == 0) waiting += embedding_bytes_;
    size_t next = decision_of(model_, last - 1);
    for (int layer = last; layer-- > first;) {
      const BackwardDecision& b = decision.backwards[next++];
      for (const int64_t bytes : {b.gar_in_moe_bytes, b.gar_beside_dense_bytes})
        if (bytes > 0) waiting -= slices.emplace_back(Slice{stage, bytes}).bytes;
    }
    if (chunk == stage && waiting > 0) slices.push_back({stage, waiting});
  }
  return slices;
}

bool ModelReplay::sends_all_waiting_bytes(const ModelDecision& decision) const {
  int64_t waiting = waiting_bytes();
  for (size_t place = 0; place < decision.backwards.size(); ++place) {
    const BackwardDecision& b = decision.backwards[place];
    if (b.gar_in_moe_bytes < 0 || b.gar_beside_dense_bytes < 0) return false;
    waiting -= b.gar_in_moe_bytes + b.gar_beside_dense_bytes;
    if (waiting < 0) return false;
    waiting += made_bytes(place);
  }
  return true;
}

// Returns a key of the dependencies between slices and layers: a slice waits for the layer, or the head, that makes its
// last byte, and a layer's optimizer waits for the slice with the layer's last byte.
std::string ModelReplay::makers(const std::vector<Slice>& slices) const {
  const StageSplit split = model_.split();
  // For each stage, the offsets at which its layers' gradients end, from the last layer on.
  std::vector<std::vector<int64_t>> ends;
  for (int stage = 0; stage < split.stages; ++stage) {
    auto& of_stage = ends.emplace_back();
    const std::vector<int> layers = layers_of_stage(split, stage);
    for (size_t i = layers.size(); i-- > 0;)
      of_stage.push_back((of_stage.empty() ? 0 : of_stage.back()) + made_by_layer_[layers[i]]);
  }
  std::vector<int64_t> sent(ends.size());
  sent.back() = -head_bytes_;
  std::string makers;
  for (const Slice& slice : slices) {
    const std::vector<int64_t>& of_stage = ends[slice.stage];
    const auto holding = [&](int64_t byte) { return std::ranges::upper_bound(of_stage, byte) - of_stage.begin(); };
    int64_t& end = sent[slice.stage];
    end += slice.bytes;
    makers += std::to_string(end <= 0 ? -1 : holding(end - 1)) + ',';
    if (model_.step.planned) makers += std::to_string(end < 0 ? -1 : holding(end)) + ',';
  }
  return makers;
}

ModelReplay::Compiled ModelReplay::compile(const ModelDecision& decision) const {
  const Plan plan = timed_model_plan(schedule_, model_, decision);
  const Structure& structure = *plan.structure;
  Compiled c{static_cast<int64_t>(structure.tasks.size()), price(pricer_, plan), {}, {}, {}};
  std::vector<size_t> senders(plan.slices.size());
  for (size_t i = 0; i < structure.tasks.size(); ++i)
    if (const int slice = structure.tasks[i].slice; slice >= 0) senders[slice] = i;
  for (const size_t sender : senders)  // slices of backwards, and the remaining slice of each stage
    if (structure.tasks[sender].kind == TaskKind::gradient) c.slice_task.push_back(sender);
  const Contention& contention = pricer_.profile().contention;
  if (slows_itself(plan, contention))
    c.fluid.emplace(structure, networks_of(plan.groups), contention);
  else
    c.plain.emplace(structure);
  return c;
}

double ModelReplay::seconds(const ModelDecision& decision) {
  const std::vector<Slice> slices = slices_of(decision);
  std::string name = structure_name(decision, slices.size());
  if (makers_matter_) name += makers(slices);
  auto found = compiled_.find(name);
  if (found == compiled_.end()) {
    if (kept_ > kKeptTasks) compiled_.clear(), kept_ = 0;
    found = compiled_.emplace(name, compile(decision)).first;
    kept_ += found->second.tasks;
    tasks_ += kTasksToCompile * found->second.tasks;
  }
  Compiled& c = found->second;
  require_equal(c.slice_task.size(), slices.size(), "slices of a model's plan");
  for (size_t i = 0; i < slices.size(); ++i) c.seconds[c.slice_task[i]] = pricer_.gradient_seconds(slices[i].bytes);
  tasks_ += c.tasks;
  return c.fluid ? c.fluid->makespan(c.seconds, ends_) : c.plain->makespan(c.seconds, ends_);
}

namespace {

class Descent {
 public:
  Descent(ModelReplay& replay, const DescentMoves& moves, const ModelDecision& from)
      : replay_(replay), moves_(moves), best_(from), seconds_(replay.seconds(from)) {
    last_task_ = replay.tasks() + moves.max_tasks;
  }

  void run() {
    for (bool moved = true; moved && !spent();) {
      moved = degrees_of_all();
      if (!moves_.one_degree) moved |= degrees_of_each();
      moved |= bytes_of_all();
      moved |= bytes_of_each();
    }
  }

  const ModelDecision& best() const { return best_; }
  double seconds() const { return seconds_; }

 private:
  bool spent() const { return replay_.tasks() >= last_task_; }

  bool offer(const ModelDecision& d) {
    if (spent() || !replay_.sends_all_waiting_bytes(d)) return false;
    const double seconds = replay_.seconds(d);
    if (!is_better(seconds, seconds_)) return false;
    best_ = d;
    seconds_ = seconds;
    return true;
  }

  bool degrees_of_all() {
    bool moved = false;
    for (const BackwardOption& option : moves_.backwards) {
      ModelDecision d = best_;
      for (size_t i = 0; i < d.backwards.size(); ++i)
        if (!replay_.is_dense(i)) d.backwards[i].degree = option.degree, d.backwards[i].order = option.order;
      if (moves_.one_degree) d.degree_forward = d.degree_backward = option.degree;
      moved |= offer(d);
      if (moves_.one_degree) continue;
      if (moves_.micro_batches) {
        d = best_;
        d.degree_backward = option.degree;
        d.order_backward = option.order;
        moved |= offer(d);
      }
      if (moves_.forward_too && best_.order_forward.empty()) {
        d = best_;
        d.degree_forward = option.degree;
        moved |= offer(d);
      }
    }
    return moved;
  }

  bool degrees_of_each() {
    bool moved = false;
    for (size_t i = 0; i < best_.backwards.size(); ++i)
      for (const BackwardOption& option : moves_.backwards) {
        if (replay_.is_dense(i)) break;
        ModelDecision d = best_;
        d.backwards[i].degree = option.degree;
        d.backwards[i].order = option.order;
        moved |= offer(d);
      }
    return moved;
  }

  // Places for bytes are numbered: 2 i is the MoE part of backward i, 2 i + 1 beside its dense part; the last is the
  // tail.
  size_t places() const { return 2 * best_.backwards.size() + 1; }
  bool is_place(size_t place) const { return place % 2 == 1 || place + 1 == places() || sends_in_moe(place / 2); }
  bool sends_in_moe(size_t backward) const { return moves_.in_moe && !replay_.is_dense(backward); }

  static auto& bytes_at(auto& decision, size_t place) {
    auto& b = decision.backwards[place / 2];
    return place % 2 == 0 ? b.gar_in_moe_bytes : b.gar_beside_dense_bytes;
  }

  // Returns the number of bytes that may be moved away from a place; for the tail, those of all layers except the last.
  int64_t bytes_in(size_t place) const {
    if (place + 1 < places()) return bytes_at(best_, place);
    int64_t waiting = replay_.waiting_bytes();
    for (size_t i = 0; i + 1 < best_.backwards.size(); ++i) waiting += replay_.made_bytes(i);
    for (const BackwardDecision& b : best_.backwards) waiting -= b.gar_in_moe_bytes + b.gar_beside_dense_bytes;
    return waiting;
  }

  void move(ModelDecision& d, size_t from, size_t to, int64_t bytes) const {
    if (from + 1 < places()) bytes_at(d, from) -= bytes;
    if (to + 1 < places()) bytes_at(d, to) += bytes;
  }

  // Moves bytes from one place to another: first all, then smaller and smaller shares, each repeatedly while it helps.
  // Returns whether any move helped.
  bool bytes_between(size_t from, size_t to) {
    bool moved = false;
    const int64_t all = bytes_in(from), least = std::max(moves_.element_bytes, replay_.made_bytes() / 4096);
    for (int64_t bytes = all; bytes >= least; bytes = bytes / 2 / moves_.element_bytes * moves_.element_bytes)
      while (bytes <= bytes_in(from)) {
        ModelDecision d = best_;
        move(d, from, to, bytes);
        if (!offer(d)) break;
        moved = true;
      }
    return moved;
  }

  bool bytes_of_each() {
    bool moved = false;
    for (size_t from = 0; from < places(); ++from)
      for (size_t to = 0; to < places(); ++to) {
        const bool far = std::max(from, to) - std::min(from, to) > 4 && std::max(from, to) + 1 < places();
        if (from == to || far || !is_place(from) || !is_place(to)) continue;
        moved |= bytes_between(from, to);
      }
    return moved;
  }

  // Moves bytes in all layers at the same time: between both places of each layer, or between one place of each layer
  // and the tail. Returns whether any move helped.
  bool bytes_of_all() {
    if (best_.backwards.size() < 2) return false;
    bool moved = false;
    const auto offer_all = [&](int from_moe, int from_dense, int64_t bytes) {
      ModelDecision d = best_;
      for (size_t i = 1; i < d.backwards.size(); ++i) {
        BackwardDecision& b = d.backwards[i];
        if (sends_in_moe(i)) b.gar_in_moe_bytes = std::max<int64_t>(0, b.gar_in_moe_bytes - from_moe * bytes);
        b.gar_beside_dense_bytes = std::max<int64_t>(0, b.gar_beside_dense_bytes - from_dense * bytes);
      }
      return offer(d);
    };
    const int64_t element = moves_.element_bytes, least = std::max(element, replay_.made_bytes() / 1024);
    for (int64_t bytes = replay_.made_bytes(); bytes >= least; bytes = bytes / 2 / element * element)
      for (const auto& [moe, dense] : {std::pair{1, -1}, {-1, 1}, {1, 0}, {0, 1}, {-1, 0}, {0, -1}}) {
        if (moe != 0 && !moves_.in_moe) continue;
        while (offer_all(moe, dense, bytes)) moved = true;
      }
    return moved;
  }

  ModelReplay& replay_;
  const DescentMoves& moves_;
  ModelDecision best_;
  double seconds_;
  int64_t last_task_;
};

}  // namespace

double descend(ModelReplay& replay, const DescentMoves& moves, ModelDecision& decision) {
  Descent descent(replay, moves, decision);
  descent.run();
  decision = descent.best();
  return descent.seconds();
}

}  // namespace moe::search
