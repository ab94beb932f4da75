#include "moe/schedule/layer_builder.h"

#include <array>

#include "moe/base/check.h"

namespace moe {
namespace {

Buffer buffer_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::dispatch:
      return Buffer::dispatched;
    case TaskKind::allgather:
      return Buffer::gathered;
    case TaskKind::expert:
      return Buffer::expert_out;
    case TaskKind::reducescatter:
      return Buffer::scattered;
    default:
      return Buffer::combined;
  }
}

constexpr int kCompute = 0;  // the first lane

}  // namespace

LayerBuilder::LayerBuilder(const StructureKey& key) : key_(key) {
  require<BadInput>(key.degree_forward >= 1 && key.degree_backward >= 1,
                    "degree: found {} forward and {} backward, expected >= 1", key.degree_forward, key.degree_backward);
  structure_.lanes.push_back({LaneKind::compute, 0, false, false, {}});
  if (key.schedule->lanes == LaneLayout::one_comm) {
    structure_.lanes.push_back({LaneKind::comm, 0, true, true, {}});
  } else {
    structure_.lanes.push_back({LaneKind::inter, 0, true, false, {}});
    structure_.lanes.push_back({LaneKind::intra, 0, false, true, {}});
  }
}

int LayerBuilder::lane_of(GroupKind group) const {
  if (group == GroupKind::none) return kCompute;
  const Network network = key_.networks[static_cast<size_t>(group)];
  for (size_t lane = 1; lane < structure_.lanes.size(); ++lane)
    if (structure_.lanes[lane].owns(network)) return static_cast<int>(lane);
  return -1;  // a group of one rank
}

bool LayerBuilder::one_lane() const {
  const int ep = lane_of(GroupKind::ep), esp = lane_of(GroupKind::esp);
  return ep >= 0 && ep == esp;
}

int LayerBuilder::add(TaskKind kind, GroupKind group, std::vector<int> after) {
  Task task;
  task.id = static_cast<int>(structure_.tasks.size());
  task.kind = kind;
  task.phase = phase_;
  task.lane = lane_of(group);
  task.group = group;
  task.work_class = static_cast<int>(structure_.classes.size());
  for (const int id : after)
    if (id >= 0) task.after.push_back(id);
  structure_.lanes[static_cast<size_t>(task.lane)].queue.push_back(task.id);
  structure_.classes.push_back({kind, phase_, 0, 0, 1, -1});
  structure_.tasks.push_back(std::move(task));
  return last().id;
}

int LayerBuilder::add_dense(TaskKind kind, GroupKind group, Buffer writes) {
  if (lane_of(group) < 0) return dense_.task;
  const int id = add(kind, group, {dense_.task});
  last().reads.push_back(dense_.data);
  last().writes.push_back(whole(writes));
  dense_ = {id, whole(writes)};
  return id;
}

void LayerBuilder::chunk_task(TaskKind kind, GroupKind group, int c) {
  if (lane_of(group) < 0) return;
  Chain& chain = chunks_[static_cast<size_t>(c)];
  const int id = add(kind, group, {chain.task});
  Task& task = last();
  task.chunk = structure_.classes.back().chunk = c;
  task.chunks = structure_.classes.back().chunks = degree_;
  task.reads.push_back({chain.data.buffer, phase_, 0, c, degree_});
  if (kind == TaskKind::expert) {
    if (phase_ == Phase::forward)
      expert_input_ = chain.data.buffer;
    else
      task.reads.push_back({expert_input_, Phase::forward, 0, c, degree_});  // stored activations
  }
  chain = {id, {buffer_of(kind), phase_, 0, c, degree_}};
  task.writes.push_back(chain.data);
}

void LayerBuilder::gradient(std::vector<int> after) {
  add(TaskKind::gradient, GroupKind::dp, std::move(after));
  last().slice = structure_.classes.back().slice = slice_++;
}

void LayerBuilder::gradient_in_moe() {
  if (phase_ == Phase::backward && key_.slots.in_moe) gradient({forward_end_});
}

void LayerBuilder::moe_part() {
  chunks_.assign(static_cast<size_t>(degree_), dense_);
  key_.schedule->moe_part(*this);
}

void LayerBuilder::forward() {
  phase_ = Phase::forward;
  degree_ = key_.degree_forward;
  dense_ = {-1, whole(Buffer::input)};
  add_dense(TaskKind::mp_allgather, GroupKind::mp, Buffer::gathered_input);
  add_dense(TaskKind::attention, GroupKind::none, Buffer::attention_partial);
  add_dense(TaskKind::mp_reducescatter, GroupKind::mp, Buffer::hidden);
  const Access hidden = dense_.data;
  add_dense(TaskKind::gate, GroupKind::none, Buffer::routing);
  add_dense(TaskKind::order, GroupKind::none, Buffer::ordered);
  last().reads.push_back(hidden);
  moe_part();
  std::vector<int> tails;
  for (const Chain& chain : chunks_) tails.push_back(chain.task);
  moe_output_ = chunks_.front().data.buffer;
  forward_end_ = add(TaskKind::i_order, GroupKind::none, tails);
  for (const Chain& chain : chunks_) last().reads.push_back(chain.data);
  last().reads.push_back(whole(Buffer::routing));
  last().writes.push_back(whole(Buffer::output));
}

void LayerBuilder::backward() {
  phase_ = Phase::backward;
  degree_ = key_.degree_backward;
  const int begin = add(TaskKind::i_order, GroupKind::none, {forward_end_});
  last().reads = {{moe_output_, Phase::forward, 0, 0, 1}, {Buffer::routing, Phase::forward, 0, 0, 1}};
  last().writes = {whole(Buffer::ordered)};
  dense_ = {begin, whole(Buffer::ordered)};
  moe_part();
  // On a lane of its own network the slice runs beside all of the dense part; where the MP collectives share its lane
  // it waits for the first of them, which attention waits for too, and runs beside attention.
  const bool after_mp = lane_of(GroupKind::mp) == lane_of(GroupKind::dp);
  if (key_.slots.beside_dense && !after_mp) gradient({forward_end_});
  std::vector<int> tails;
  for (const Chain& chain : chunks_) tails.push_back(chain.task);
  const int order = add(TaskKind::order, GroupKind::none, tails);
  for (const Chain& chain : chunks_) last().reads.push_back(chain.data);
  last().writes = {whole(Buffer::routing)};
  dense_ = {order, whole(Buffer::routing)};
  add_dense(TaskKind::gate, GroupKind::none, Buffer::hidden);
  add_dense(TaskKind::mp_allgather, GroupKind::mp, Buffer::gathered_input);
  if (key_.slots.beside_dense && after_mp) gradient({forward_end_});
  add_dense(TaskKind::attention, GroupKind::none, Buffer::attention_partial);
  const int end = add_dense(TaskKind::mp_reducescatter, GroupKind::mp, Buffer::input);
  if (key_.slots.after) gradient({end});
}

Structure LayerBuilder::build() {
  if (key_.phases != Phases::backward) forward();
  if (key_.phases != Phases::forward) backward();
  structure_.slices = slice_;
  return std::move(structure_);
}

void one_lane_order(LayerBuilder& b) {
  for (int c = 0; c < b.degree(); ++c) {
    b.dispatch(c);
    b.allgather(c);
    b.expert(c);
  }
  b.gradient_in_moe();
  for (int c = 0; c < b.degree(); ++c) {
    b.reducescatter(c);
    b.combine(c);
  }
}

}  // namespace moe
