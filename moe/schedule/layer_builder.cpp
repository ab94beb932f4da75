#include "moe/schedule/layer_builder.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "moe/base/check.h"

namespace moe {

int LayerBuilder::push_dense(TaskKind kind, Buffer writes) {
  if (lane_of(group_of(schedule_.flow, kind)) < 0) return dense_end();
  const int id = push(kind, dense_.after);
  last().reads.push_back(dense_.data);
  last().writes.push_back(whole_of(writes));
  dense_ = {{id}, whole_of(writes)};
  return id;
}

// Changes the number of chunks; each new chunk waits for all old ones.
void LayerBuilder::regroup(int parts) {
  if (chunks_.size() == static_cast<size_t>(parts)) return;
  std::vector<int> after;
  for (const Chain& chain : chunks_) after.insert(after.end(), chain.after.begin(), chain.after.end());
  Access data = chunks_.front().data;
  data.chunks = parts;
  chunks_.clear();
  for (data.chunk = 0; data.chunk < parts; ++data.chunk) chunks_.push_back({after, data});
}

void LayerBuilder::cut(Task& task, int c, int parts) {
  task.chunk = c;
  task.chunks = parts;
}

void LayerBuilder::part(TaskKind kind, int c, int parts) {
  const GroupKind group = group_of(schedule_.flow, kind);
  if (group != GroupKind::none && lane_of(group) < 0) return;
  regroup(parts);
  Chain& chain = chunks_[c];
  const int id = push(kind, chain.after);
  Task& task = last();
  cut(task, c, parts);
  task.reads.push_back(chain.data);
  if (kind == TaskKind::expert && pass_->phase == Phase::forward) found().expert_input = chain.data.buffer;
  if (is_expert_stage(kind) && pass_->phase == Phase::backward) keep_expert(task);
  chain = {{id}, access(schedule::buffer_of(kind), pass_->phase, c, parts)};
  task.writes.push_back(chain.data);
}

// Adds the activations that an expert task of a backward reads, and records the task as a maker of experts' gradients.
void LayerBuilder::keep_expert(Task& task) {
  task.reads.push_back(access(found().expert_input, Phase::forward, task.chunk, task.chunks));
  if (task.kind == TaskKind::expert_dx) {
    task.writes.push_back(access(Buffer::expert_hidden, Phase::backward, task.chunk, task.chunks));
    input_halves_[task.chunk] = task.id;
  }
  if (!makes_expert_gradients(task.kind)) return;
  if (task.chunk + 1 == task.chunks) last_expert_ = task.id;
  experts_[{pass_->micro_batch, pass_->layer}].push_back(task.id);
}

void LayerBuilder::expert_weights(int c) {
  if (!halves()) return;
  const auto other = input_halves_.find(c);
  require<WrongResult>(other != input_halves_.end(), "schedule {}: expert_dw of chunk {} before its expert_dx",
                       schedule_.name, c);
  push(TaskKind::expert_dw, {other->second});
  Task& task = last();
  cut(task, c, degree());
  task.reads.push_back(access(Buffer::expert_hidden, Phase::backward, c, degree()));
  keep_expert(task);
}

// Adds the shared expert, which waits for the same tasks as the MoE part. Its tasks come first on their lanes, so it
// overlaps with the first exchange. If each MP rank has its own tokens, the tokens are gathered first, because every
// shard of the shared expert processes all of them.
void LayerBuilder::begin_shared(const Access& tokens) {
  shared_ = {};
  if (!shared_expert_) return;
  const Chain before = std::exchange(dense_, {dense_.after, tokens});
  if (traits_of(schedule_.flow).gates == Tokens::own) push_dense(TaskKind::shared_allgather, Buffer::shared_input);
  const Access input = dense_.data;
  push_dense(TaskKind::shared, Buffer::shared_partial);
  if (pass_->phase == Phase::forward)
    found().shared_input = input;
  else
    last().reads.push_back(found().shared_input);  // stored activations
  shared_ = std::exchange(dense_, before);
  if (!schedule_.in_sequence) return;
  end_shared();
  dense_.after.insert(dense_.after.end(), shared_.after.begin(), shared_.after.end());
}

void LayerBuilder::end_shared() {
  if (!shared_expert_) return;
  std::swap(dense_, shared_);
  const bool scatters = traits_of(schedule_.flow).gates == Tokens::own;
  push_dense(scatters ? TaskKind::shared_reducescatter : TaskKind::shared_allreduce, Buffer::shared_sum);
  std::swap(dense_, shared_);
}

// Adds a task that waits for all chunks and reads all of them.
void LayerBuilder::join_chunks(TaskKind kind, Buffer writes) {
  std::vector<int> tails = shared_.after;
  for (const Chain& chain : chunks_) tails.insert(tails.end(), chain.after.begin(), chain.after.end());
  const int id = push(kind, tails);
  for (const Chain& chain : chunks_) last().reads.push_back(chain.data);
  last().writes.push_back(whole_of(writes));
  dense_ = {{id}, whole_of(writes)};
}

void LayerBuilder::attention_forward() {
  const bool own = traits_of(schedule_.flow).holds == Tokens::own;
  if (own) push_dense(TaskKind::mp_allgather, Buffer::gathered_input);
  attention(Buffer::hidden);
}

// Adds attention, gate and order; returns the tokens that the gate reads.
Access LayerBuilder::dense_forward() {
  attention_forward();
  if (traits_of(schedule_.flow).gates == Tokens::esp_groups) push_dense(TaskKind::tokens_allgather, Buffer::tokens);
  const Access hidden = dense_.data;
  push_dense(TaskKind::gate, Buffer::routing);
  push_dense(TaskKind::order, Buffer::ordered);
  last().reads.push_back(hidden);
  return hidden;
}

// Repeats the forward, because only its output was kept. The repetition begins when the gradient of the output exists.
void LayerBuilder::forward_again() {
  Forward& before = found();
  Chain first{dense_.after, before.input};
  first.after.push_back(before.end);
  wait_for_next_attention_dw(first.after);
  const Chain gradient = std::exchange(dense_, first);
  before.pass.is_recompute = true;
  const schedule::Pass* backward = std::exchange(pass_, &before.pass);
  pass_->dense ? ffn_forward() : forward();
  pass_ = backward;
  dense_ = gradient;
}

int LayerBuilder::forward() {
  begin_shared(dense_forward());
  chunks_.assign(degree(), dense_);
  schedule_.moe_part(*this);
  if (!schedule_.in_sequence) end_shared();
  found().moe_output = chunks_.front().data.buffer;
  join_chunks(TaskKind::i_order, Buffer::output);
  last().reads.push_back(whole_of(Buffer::routing));
  if (shared_expert_) last().reads.push_back(shared_.data);
  if (traits_of(schedule_.flow).gathers_tokens()) push_dense(TaskKind::mp_allgather, Buffer::gathered_output);
  found().output = dense_.data.buffer;
  found().end = dense_end();
  return found().end;
}

void LayerBuilder::dense_backward() {
  const FlowTraits& flow = traits_of(schedule_.flow);
  push_dense(TaskKind::gate, Buffer::hidden);
  if (shared_expert_) last().reads.push_back(shared_.data);
  if (flow.gates == Tokens::esp_groups) push_dense(TaskKind::tokens_reducescatter, Buffer::token_gradients);
  if (flow.gates == Tokens::own) push_dense(TaskKind::mp_allgather, Buffer::gathered_input);
  // A slice whose lane has no MP collectives overlaps with the whole dense part. If it shares the lane with them, it
  // waits for the first MP collective, as attention does, and overlaps with attention.
  if (slots().beside_dense && gradients_after_mp()) next_gradient();
  attention(Buffer::input);
}

// For samples in parts: a forward's attention waits for that of the previous part, whose keys and values it reads; a
// backward's waits for the next part, which adds to the gradients of keys and values.
void LayerBuilder::join_parts() {
  attentions_[{pass_->phase, pass_->micro_batch, pass_->layer}] = last().id;
  last().writes.push_back(whole_of(Buffer::keys_values));
  if (const std::optional<int> other = part_waited_for())
    last().reads.push_back({Buffer::keys_values, pass_->phase, pass_->layer, 0, 1, *other});
}

// Under context parallelism, the keys and values of whole samples are gathered before attention, and in a backward
// their gradients are sent back after it. No task of the pass waits for attention_dw, so it overlaps with the sum over
// MP.
void LayerBuilder::attention(Buffer sum) {
  if (ring_blocks_ > 0) return ring_attention(sum);
  const Access input = dense_.data;
  const bool shares = spans(GroupKind::cp), forward = pass_->phase == Phase::forward;
  if (shares && forward) {
    push_dense(TaskKind::keys_values, Buffer::keys_values);
    push_dense(TaskKind::cp_allgather, Buffer::all_keys_values);
  }
  if (const std::optional<int> other = part_waited_for())
    dense_.after.push_back(attentions_.at({pass_->phase, *other, pass_->layer}));
  int id = push_dense(halves() ? TaskKind::attention_dx : TaskKind::attention,
                      shares && !forward ? Buffer::queries_partial : Buffer::attention_partial);
  if (halves()) last().writes.push_back(whole_of(Buffer::attention_hidden));
  if (parts_ > 1) join_parts();
  if (shares && forward) last().reads.push_back(input);
  if (shares && !forward) id = keys_values_backward();
  sum_attention(sum, input, id);
}

// Adds the sum over MP and, in a backward with halves, attention_dw after task `made`. Nothing in the pass waits for
// it.
void LayerBuilder::sum_attention(Buffer sum, const Access& input, int made) {
  const bool own = traits_of(schedule_.flow).holds == Tokens::own;
  push_dense(own ? TaskKind::mp_reducescatter : TaskKind::mp_allreduce, sum);
  if (!halves()) return;
  attention_halves_[{pass_->micro_batch, pass_->layer}] = push(TaskKind::attention_dw, {made});
  last().reads = {input, whole_of(Buffer::attention_hidden)};
}

// A forward computes queries, keys and values before the ring and the output's projection after it; a backward goes in
// the opposite order.
void LayerBuilder::ring_attention(Buffer sum) {
  const Access input = dense_.data;
  int id = -1;
  if (pass_->phase == Phase::forward) {
    push_dense(TaskKind::keys_values, Buffer::keys_values);
    ring();
    id = push_dense(TaskKind::attention, Buffer::attention_partial);
    last().reads.push_back(input);
  } else {
    push_dense(halves() ? TaskKind::attention_dx : TaskKind::attention, Buffer::mixed);
    last().reads.push_back(access(Buffer::mixed, Phase::forward));
    if (halves()) last().writes.push_back(whole_of(Buffer::attention_hidden));
    ring();
    id = push_dense(TaskKind::keys_values, Buffer::attention_partial);
    last().reads.push_back(whole_of(Buffer::queries_partial));
  }
  sum_attention(sum, input, id);
}

// The heads process one block of keys and values at a time, the rank's own block first. Meanwhile each rank sends the
// current block to the next rank and receives the following one. Received blocks alternate between two buffers, so a
// receive waits until the heads have read the previous block in its buffer. In a backward, the gradients of a block
// travel behind it: each rank adds its own while the heads process the next block, and in the end they return to the
// block's rank. Gradients that the heads write also alternate between two buffers.
void LayerBuilder::ring() {
  const Chain begin = dense_;
  const bool forward = pass_->phase == Phase::forward;
  const int blocks = ring_blocks_;
  const auto block = [&](int i) {
    if (i == 0) return access(Buffer::keys_values, Phase::forward);
    return access(Buffer::received_keys_values, pass_->phase, i - 1, blocks - 1);
  };
  const auto part = [&](Buffer buffer, int i) { return access(buffer, pass_->phase, i, blocks); };
  std::vector<int> sends, heads, gradients;
  const auto send_block = [&](int i) {
    sends.push_back(push(TaskKind::cp_send, i == 0 ? begin.after : std::vector{sends.back()}));
    if (i > 1) last().after.push_back(heads[i - 1]);
    cut(last(), i, blocks - 1);
    last().reads = {block(i)};
    last().writes = {block(i + 1)};
  };
  const auto send_gradients = [&](int i) {
    gradients.push_back(push(TaskKind::cp_gradient_send, {heads[i]}));
    cut(last(), i, blocks);
    last().reads = {part(Buffer::all_keys_values, i)};
    if (i > 0) last().after.push_back(gradients[i - 1]);
    if (i > 0) last().reads.push_back(part(Buffer::keys_values, i - 1));
    last().writes = {part(Buffer::keys_values, i)};
  };
  for (int i = 0; i < blocks; ++i) {
    if (i + 1 < blocks) send_block(i);
    if (i > 0 && !forward) send_gradients(i - 1);
    heads.push_back(push(TaskKind::heads, i == 0 ? begin.after : std::vector{sends[i - 1], heads[i - 1]}));
    cut(last(), i, blocks);
    last().reads = {block(i)};
    if (!forward) last().reads.push_back(begin.data);
    if (!forward && i > 1) last().after.push_back(gradients[i - 2]);
    if (i > 0) last().reads.push_back(part(forward ? Buffer::mixed : Buffer::queries_partial, i - 1));
    last().writes = {part(forward ? Buffer::mixed : Buffer::queries_partial, i)};
    if (!forward) last().writes.push_back(part(Buffer::all_keys_values, i));
  }
  if (!forward) send_gradients(blocks - 1);
  dense_ = {{forward ? heads.back() : gradients.back()}, whole_of(forward ? Buffer::mixed : Buffer::keys_values)};
}

// Sums the gradients of keys and values over CP. Each rank then adds the part of its input's gradient that comes from
// its own tokens' keys and values.
int LayerBuilder::keys_values_backward() {
  const Access partial = dense_.data;
  last().writes.push_back(whole_of(Buffer::all_keys_values));
  dense_.data = whole_of(Buffer::all_keys_values);
  push_dense(TaskKind::cp_reducescatter, Buffer::keys_values);
  const int id = push_dense(TaskKind::keys_values, Buffer::attention_partial);
  last().reads.push_back(partial);
  return id;
}

// If no task of the plan makes the output's gradient, the forward's output takes its place. Otherwise, the pass begins
// after the end of the next layer's pass, so the times of a stage's passes add up.
void LayerBuilder::begin_backward() {
  if (dense_.data.phase == Phase::forward) dense_.data = access(found().output, Phase::forward);
  dense_.after.push_back(found().end);
  wait_for_next_attention_dw(dense_.after);
}

// Ends the backward; returns the task after which the dense part's gradients exist.
int LayerBuilder::end_backward() {
  const int end = halves() ? attention_halves_.at({pass_->micro_batch, pass_->layer}) : dense_end();
  send_remaining_pieces();
  if (!slots().after) return end;
  next_gradient(end);
  if (halves()) last().after.push_back(dense_end());
  return end;
}

// Adds a dense layer's feed-forward. It is sharded over MP like attention: every MP rank has the whole input, and the
// same collectives sum the ranks' parts of the output.
void LayerBuilder::ffn(Buffer sum) {
  const bool own = traits_of(schedule_.flow).holds == Tokens::own, forward = pass_->phase == Phase::forward;
  const Access input = dense_.data;
  push_dense(TaskKind::ffn, forward ? Buffer::ffn_partial : Buffer::ffn_input);
  if (forward)
    found().shared_input = input;
  else
    last().reads.push_back(found().shared_input);  // stored activations
  push_dense(own ? TaskKind::ffn_reducescatter : TaskKind::ffn_allreduce, sum);
}

int LayerBuilder::ffn_forward() {
  attention_forward();
  if (traits_of(schedule_.flow).holds == Tokens::own) push_dense(TaskKind::ffn_allgather, Buffer::ffn_input);
  ffn(Buffer::output);
  found().output = dense_.data.buffer;
  found().end = dense_end();
  return found().end;
}

// The whole backward of a dense layer is dense part: a slice that shares a lane with MP collectives waits for the first
// of them. Pieces that go after a layer's last AlltoAll are sent at the start, because a dense layer has no AlltoAll.
int LayerBuilder::ffn_backward() {
  begin_backward();
  const bool own = traits_of(schedule_.flow).holds == Tokens::own;
  if (gradient_lane() != lane_of(GroupKind::dp)) send_remaining_pieces();
  if (schedule_.gradients == GradientPolicy::fixed) pieces_between(gradient_lane(), kAfterMoe, kAfterMoe);
  if (own) push_dense(TaskKind::ffn_allgather, Buffer::ffn_partial);
  if (slots().beside_dense) next_gradient();
  ffn(Buffer::hidden);
  if (own) push_dense(TaskKind::mp_allgather, Buffer::gathered_input);
  attention(Buffer::input);
  return end_backward();
}

int LayerBuilder::backward() {
  begin_backward();
  if (traits_of(schedule_.flow).gates == Tokens::esp_groups) push_dense(TaskKind::tokens_allgather, Buffer::tokens);
  const Access d_output = dense_.data;
  const int begin = push(TaskKind::i_order, dense_.after);
  last().reads = {access(found().moe_output, Phase::forward), access(Buffer::routing, Phase::forward), d_output};
  last().writes = {whole_of(Buffer::ordered)};
  dense_ = {{begin}, whole_of(Buffer::ordered)};
  if (gradient_lane() != lane_of(GroupKind::dp))
    send_remaining_pieces();  // gradients with their own lane start at once
  begin_shared(d_output);
  chunks_.assign(degree(), dense_);
  schedule_.moe_part(*this);
  if (!schedule_.in_sequence) end_shared();
  if (schedule_.gradients == GradientPolicy::fixed) pieces_between(gradient_lane(), kAfterMoe, kAfterMoe);
  if (slots().beside_dense && !gradients_after_mp()) next_gradient();
  join_chunks(TaskKind::order, Buffer::routing);
  dense_backward();
  return end_backward();
}

int LayerBuilder::add(const schedule::Pass& pass) {
  pass_ = &pass;
  begin_slices();
  input_halves_.clear();
  if (offloads_ && !pass.dense) fetch_experts();
  const bool forward_pass = pass.phase == Phase::forward;
  const auto before = outputs_.find({pass.micro_batch, pass.layer + (forward_pass ? -1 : 1)});
  dense_ = {{}, whole_of(Buffer::input)};
  if (!forward_pass) dense_.data.phase = Phase::forward;  // no task of this plan makes the output's gradient
  if (before != outputs_.end() && !before->second[pass.phase].after.empty()) dense_ = before->second[pass.phase];
  const auto sent = sent_.find({pass.phase, pass.micro_batch, pass.layer + (forward_pass ? -1 : 1)});
  if (sent != sent_.end()) dense_ = receive(sent->second);
  if (forward_pass) {
    found().pass = pass;
    found().input = dense_.data;
  } else if (recomputes_) {
    forward_again();
  }
  const int end = pass.dense ? (forward_pass ? ffn_forward() : ffn_backward()) : forward_pass ? forward() : backward();
  outputs_[{pass.micro_batch, pass.layer}][pass.phase] = dense_;
  ended_[pass.stage] = dense_.after;
  pass_ = nullptr;
  return end;
}

}  // namespace moe

namespace moe::schedule {
namespace {

std::vector<Lane> lanes_of(LaneLayout layout, int stage) {
  std::vector<Lane> lanes{{LaneKind::compute, stage, false, false, {}}};
  if (layout == LaneLayout::one_comm) {
    lanes.push_back({LaneKind::comm, stage, true, true, {}});
  } else {
    lanes.push_back({LaneKind::inter, stage, true, false, {}});
    lanes.push_back({LaneKind::intra, stage, false, true, {}});
  }
  if (layout == LaneLayout::by_network_copy) lanes.push_back({LaneKind::copy, stage, false, false, {}});
  return lanes;
}

// Returns whether a task is a collective for gradients or weights, excluding those of experts.
bool shares_dense(TaskKind kind) {
  const TaskPart part = part_of(kind);
  return (part == TaskPart::gradients || part == TaskPart::gradient_norm || part == TaskPart::weights) &&
         traits_of(kind).group != GroupKind::none && traits_of(kind).group != GroupKind::edp;
}

}  // namespace

StageLanes::StageLanes(LaneLayout layout, const GroupNetworks& networks, int stages, bool offloads)
    : layout_(layout), networks_(networks) {
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Lane> lanes = lanes_of(layout, stage);
    const Network gradients = networks[GroupKind::dp];
    if (layout == LaneLayout::by_network_gradient)
      lanes.push_back({LaneKind::gradient, stage, gradients == Network::inter, gradients == Network::intra, {}});
    if (stages > 1) lanes.push_back({LaneKind::receive, stage, false, false, {}});
    if (offloads)
      for (const LaneKind kind : {LaneKind::host_link, LaneKind::host})
        lanes.push_back({kind, stage, false, false, {}});
    lanes_per_stage_ = lanes.size();
    lanes_.insert(lanes_.end(), lanes.begin(), lanes.end());
  }
}

int StageLanes::lane(GroupKind group, int stage) const {
  const size_t first = static_cast<size_t>(stage) * lanes_per_stage_;
  if (group == GroupKind::none) return static_cast<int>(first);  // compute
  const Network network = networks_[group];
  for (size_t lane = first + 1; lane < first + lanes_per_stage_; ++lane)
    if (lanes_[lane].owns(network)) return static_cast<int>(lane);
  return -1;
}

int StageLanes::lane_of_gradients(int stage) const {
  if (layout_ != LaneLayout::by_network_gradient) return lane(GroupKind::dp, stage);
  return lane_of(LaneKind::gradient, stage);
}

int StageLanes::lane_of(LaneKind kind, int stage) const {
  const auto first = lanes_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(stage) * lanes_per_stage_);
  return static_cast<int>(std::ranges::find(first, lanes_.end(), kind, &Lane::kind) - lanes_.begin());
}

// Returns whether a group's collectives use the same network as the gradients, and therefore the same lane.
bool StageLanes::shares_gradients(GroupKind group) const { return networks_[group] == networks_[GroupKind::dp]; }

int StageLanes::lane(TaskKind kind, Flow flow, int stage) const {
  if (kind == TaskKind::recv) return lane_of(LaneKind::receive, stage);
  if (transfers_offloaded_weights(kind)) return lane_of(LaneKind::host_link, stage);
  if (runs_on_host(kind)) return lane_of(LaneKind::host, stage);
  if (shares_dense(kind) && shares_gradients(group_of(flow, kind))) return lane_of_gradients(stage);
  if (!copies(kind)) return lane(group_of(flow, kind), stage);
  const int compute = lane(GroupKind::none, stage);
  return layout_ == LaneLayout::by_network_copy ? compute + 3 : std::max(lane(GroupKind::mp, stage), compute);
}

PassBuilder::PassBuilder(const Schedule& schedule, const LayerBuildOptions& layers)
    : schedule_(schedule),
      lanes_(schedule.lanes, layers.networks, layers.stages, layers.offloads),
      parts_(layers.parts),
      offloads_(layers.offloads) {
  structure_.flow = schedule.flow;
  structure_.lanes = lanes_.all();
}

bool PassBuilder::uses_one_lane() const {
  const int ep = lane_of(GroupKind::ep), esp = lane_of(GroupKind::esp);
  if (ep < 0) return esp >= 0 && esp == lane_of(GroupKind::dp);  // the gradients use ESP's lane
  return ep == esp;
}

int PassBuilder::push(TaskKind kind, const std::vector<int>& after) {
  const GroupKind group = group_of(schedule_.flow, kind);
  const int lane = lanes_.lane(kind, schedule_.flow, pass_->stage);
  if (!sends_gradients(kind) && part_of(kind) != TaskPart::stages && pass_->phase == Phase::backward) {
    LanePieces& pieces = pieces_[lane % lanes_.lanes_per_stage()];
    pieces_between(lane, 0, pieces.passed);
    ++pieces.passed;
  }
  Task task;
  task.id = static_cast<int>(structure_.tasks.size());
  task.kind = kind;
  task.phase = pass_->phase;
  task.micro_batch = pass_->micro_batch;
  task.layer = pass_->layer;
  task.is_recompute = pass_->is_recompute;
  task.lane = lane;
  task.group = group;
  for (const int id : after)
    if (id >= 0) task.after.push_back(id);
  structure_.lanes[lane].queue.push_back(task.id);
  structure_.tasks.push_back(std::move(task));
  if (offloads_ && is_expert(kind)) read_window();
  return last().id;
}

// Adds the fetch of the experts of the pass's layer, unless the window has them. It waits only for the last task that
// reads the same place of the window, so it can overlap with the previous pass.
void PassBuilder::fetch_experts() {
  Window& window = windows_[pass_->stage];
  const ExpertWindow::Use use = window.layers.begin(pass_->layer);
  window.place = use.place;
  if (!use.fetches) return;
  window.fetched[use.place] = push(TaskKind::fetch, {window.read[use.place]});
  last().chunk = use.place;
  last().chunks = kWindowLayers;
}

void PassBuilder::read_window() {
  Window& window = windows_[pass_->stage];
  last().after.push_back(window.fetched[window.place]);
  window.read[window.place] = last().id;
}

bool PassBuilder::is_expert_gradient(size_t place) const {
  return place < pass_->gradients.experts.size() && pass_->gradients.experts[place];
}

// Returns all tasks other than `ready` that contribute to the same gradients: other chunks of experts, and the
// backwards of other micro-batches. Gradients of the dense part count as complete only at the end of a backward, after
// its last sum.
std::vector<int> PassBuilder::made_by_others(int ready) const {
  std::vector<int> others;
  if (ready < 0) return others;
  const Task& last = structure_.tasks[ready];
  const bool half = last.kind == TaskKind::attention_dw;
  for (int micro_batch = 0;; ++micro_batch) {
    const auto found = outputs_.find({micro_batch, last.layer});
    if (found == outputs_.end()) return others;
    const bool experts = makes_expert_gradients(last.kind), own = micro_batch == last.micro_batch;
    const std::vector<int>& all = experts ? experts_.at(found->first) : found->second[Phase::backward].after;
    if (experts || !own || half) std::ranges::remove_copy(all, std::back_inserter(others), ready);
    if (half && !own) others.push_back(attention_halves_.at(found->first));
  }
}

void PassBuilder::gradient(size_t place, int after) {
  int ready = place < pass_->ready.size() ? pass_->ready[place] : after < 0 ? found().end : -1;
  if (made_here(place)) ready = last_expert_;
  std::vector<int> before = made_by_others(ready);
  before.insert(before.begin(), {after, ready});
  push(is_expert_gradient(place) ? TaskKind::expert_gradient : TaskKind::gradient, before);
  last().slice = structure_.tasks.back().slice = first_slice_ + static_cast<int>(place);
  ++structure_.slices;
}

void PassBuilder::gradient_in_moe() {
  if (pass_->phase == Phase::backward && slots().in_moe) next_gradient();
}

bool PassBuilder::made_here(size_t place) const {
  return is_expert_gradient(place) && (place >= pass_->ready.size() || pass_->ready[place] == kMadeHere);
}

// Sends the waiting pieces of a lane in order while their gaps are in [from, to]; stops at a piece whose gradients do
// not exist yet.
void PassBuilder::pieces_between(int lane, int from, int to) {
  const std::vector<int>& gaps = pass_->gradients.gaps;
  for (size_t& next = pieces_[lane % lanes_.lanes_per_stage()].next; next < gaps.size(); ++next) {
    if (lane_of_slice(next) != lane) continue;
    if (gaps[next] < from || gaps[next] > to || (made_here(next) && last_expert_ < 0)) return;
    gradient(next);
  }
}

void PassBuilder::send_remaining_pieces() {
  constexpr int kAll = std::numeric_limits<int>::max();
  pieces_between(gradient_lane(), 0, kAll);
  if (!pass_->gradients.experts.empty()) pieces_between(lane_of(GroupKind::edp), 0, kAll);
}

void PassBuilder::begin_slices() {
  pieces_.assign(lanes_.lanes_per_stage(), {});
  slice_of_pass_ = 0;
  first_slice_ = structure_.slices;
  last_expert_ = -1;
}

// Adds attention_dw of the next layer, if it is on the same stage, to `after`: no other task waits for it.
void PassBuilder::wait_for_next_attention_dw(std::vector<int>& after) const {
  if (sent_.contains({Phase::backward, pass_->micro_batch, pass_->layer + 1})) return;
  const auto behind = attention_halves_.find({pass_->micro_batch, pass_->layer + 1});
  if (behind != attention_halves_.end()) after.push_back(behind->second);
}

// Returns the micro-batch with the previous part of the same samples or, in a backward, with the next part; empty if
// there is none.
std::optional<int> PassBuilder::part_waited_for() const {
  const bool forward = pass_->phase == Phase::forward;
  if (pass_->micro_batch % parts_ == (forward ? 0 : parts_ - 1)) return std::nullopt;
  return pass_->micro_batch + (forward ? -1 : 1);
}

// Adds the previous transfer of the same kind and phase to `after`, because messages between two stages arrive in the
// order in which they were sent.
std::vector<int> PassBuilder::after_last(TaskKind kind, std::vector<int> after) {
  int& last = last_transfers_[{kind, pass_->phase, pass_->stage}];
  after.push_back(last - 1);
  last = static_cast<int>(structure_.tasks.size()) + 1;
  return after;
}

// Adds the receive where its data is first read, so that it delays no earlier task. It begins after the stage's
// previous pass, so its buffer is not needed earlier, and it overlaps with the send of that pass's output.
PassBuilder::Chain PassBuilder::receive(int sent) {
  std::vector<int> after = ended_[pass_->stage];
  after.push_back(sent);
  const int received = push(TaskKind::recv, after_last(TaskKind::recv, std::move(after)));
  last().writes.push_back(whole_of(Buffer::received));
  return {{received}, whole_of(Buffer::received)};
}

Buffer buffer_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::dispatch:
      return Buffer::dispatched;
    case TaskKind::allgather:
      return Buffer::gathered;
    case TaskKind::copy:
      return Buffer::laid_out;
    case TaskKind::expert:
    case TaskKind::expert_dx:
      return Buffer::expert_out;
    case TaskKind::reducescatter:
      return Buffer::scattered;
    case TaskKind::allreduce:
      return Buffer::reduced;
    case TaskKind::exchange:
      return Buffer::exchanged;
    case TaskKind::sum:
      return Buffer::summed;
    case TaskKind::gather:
      return Buffer::home_gathered;
    case TaskKind::home_copy:
      return Buffer::home_laid_out;
    default:
      return Buffer::combined;
  }
}

}  // namespace moe::schedule
