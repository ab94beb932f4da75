#include "moe/search/model_replay.h"

#include <algorithm>

namespace moe::search {
namespace {

constexpr int64_t kKeptTasks = 1'000'000;  // of structures that are kept: some 50 MB
constexpr int64_t kTasksToCompile = 50;    // a task is built and checked in the time of so many replayed ones

// Returns what a plan's structure depends on, makers of slices aside.
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
  const auto network = [&](GroupKind kind) { return pricer.groups()[static_cast<size_t>(kind)].network; };
  made_by_layer_.assign(static_cast<size_t>(model.layers), made_bytes_);
  const bool sends = pricer.has(GroupKind::dp) && !model.dense.none(model.layers);
  const int64_t dense_bytes = sends ? gradient_bytes(dense_case(pricer.shape(), model.dense.hidden)) : 0;
  for (int layer = 0; layer < model.layers && sends; ++layer)
    if (model.dense.has(layer)) made_by_layer_[static_cast<size_t>(layer)] = dense_bytes;
  makers_matter_ = model.step.planned || network(GroupKind::ep) != network(GroupKind::dp);
}

// Returns slices in the order in which plans have them: the last micro-batch's backward passes the chunks of layers
// from the last to the first, and each stage sends in its own order.
std::vector<ModelReplay::Slice> ModelReplay::slices_of(const ModelDecision& decision) const {
  const StageSplit split = model_.split();
  std::vector<Slice> slices;
  std::vector<int64_t> left(static_cast<size_t>(split.stages));
  for (int chunk = split.chunks() - 1; chunk >= 0; --chunk) {
    const auto [first, last] = layers_of_chunk(split, chunk);
    const int stage = chunk % split.stages;
    int64_t& waiting = left[static_cast<size_t>(stage)];
    for (int layer = first; layer < last; ++layer) waiting += made_by_layer_[static_cast<size_t>(layer)];
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

bool ModelReplay::sends_what_waits(const ModelDecision& decision) const {
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

// A slice waits for the layer that makes its last byte, or the head; a layer's step for the slice that ends it.
std::string ModelReplay::makers(const std::vector<Slice>& slices) const {
  const StageSplit split = model_.split();
  std::vector<std::vector<int64_t>> ends;  // by stage, of what its layers make, the last layer's first
  for (int stage = 0; stage < split.stages; ++stage) {
    auto& of_stage = ends.emplace_back();
    const std::vector<int> layers = layers_of_stage(split, stage);
    for (size_t i = layers.size(); i-- > 0;)
      of_stage.push_back((of_stage.empty() ? 0 : of_stage.back()) + made_by_layer_[static_cast<size_t>(layers[i])]);
  }
  std::vector<int64_t> sent(ends.size());
  sent.back() = -head_bytes_;
  std::string makers;
  for (const Slice& slice : slices) {
    const std::vector<int64_t>& of_stage = ends[static_cast<size_t>(slice.stage)];
    const auto holding = [&](int64_t byte) { return std::ranges::upper_bound(of_stage, byte) - of_stage.begin(); };
    int64_t& end = sent[static_cast<size_t>(slice.stage)];
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
  std::vector<size_t> classes(plan.slices.size());
  for (size_t i = 0; i < structure.classes.size(); ++i)
    if (const int slice = structure.classes[i].slice; slice >= 0) classes[static_cast<size_t>(slice)] = i;
  for (const size_t of_slice : classes)  // those that backwards send, and what they leave
    if (structure.classes[of_slice].kind == TaskKind::gradient) c.slice_class.push_back(of_slice);
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
  require_equal(c.slice_class.size(), slices.size(), "slices of a model's plan");
  for (size_t i = 0; i < slices.size(); ++i) c.seconds[c.slice_class[i]] = pricer_.gradient_seconds(slices[i].bytes);
  tasks_ += c.tasks;
  return c.fluid ? c.fluid->makespan(c.seconds, ends_) : c.plain->makespan(c.seconds, ends_);
}

}  // namespace moe::search
