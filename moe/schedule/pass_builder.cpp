#include "moe/schedule/pass_builder.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace moe::schedule {

PassBuilder::PassBuilder(const Schedule& schedule, const LayersBuilt& layers)
    : schedule_(schedule), lanes_(schedule.lanes, layers.networks, layers.stages) {
  structure_.flow = schedule.flow;
  structure_.lanes = lanes_.all();
}

bool PassBuilder::one_lane() const {
  const int ep = lane_of(GroupKind::ep), esp = lane_of(GroupKind::esp);
  if (ep < 0) return esp >= 0 && esp == lane_of(GroupKind::dp);  // gradients share what there is
  return ep == esp;
}

int PassBuilder::push(TaskKind kind, const std::vector<int>& after) {
  const GroupKind group = group_of(schedule_.flow, kind);
  const int lane = lanes_.of(kind, schedule_.flow, pass_->stage);
  const bool between_stages = kind == TaskKind::send || kind == TaskKind::recv;
  if (!sends_gradients(kind) && !between_stages && pass_->phase == Phase::backward) {
    LanePieces& pieces = pieces_[static_cast<size_t>(lane) % lanes_.a_stage()];
    pieces_between(lane, 0, pieces.passed);
    ++pieces.passed;
  }
  Task task;
  task.id = static_cast<int>(structure_.tasks.size());
  task.kind = kind;
  task.phase = pass_->phase;
  task.micro_batch = pass_->micro_batch;
  task.layer = pass_->layer;
  task.again = pass_->again;
  task.lane = lane;
  task.group = group;
  task.work_class = static_cast<int>(structure_.classes.size());
  for (const int id : after)
    if (id >= 0) task.after.push_back(id);
  structure_.lanes[static_cast<size_t>(lane)].queue.push_back(task.id);
  structure_.classes.push_back({kind, task.phase, task.layer, 0, 1, -1});
  structure_.tasks.push_back(std::move(task));
  return last().id;
}

bool PassBuilder::of_experts(size_t place) const {
  return place < pass_->gradients.experts.size() && pass_->gradients.experts[place];
}

// Finds what else adds to the gradients that `ready` made last: all experts' chunks, or other micro-batches' backwards.
// The dense part's are there once a backward has ended all, so that what sends them never runs beside its last sum.
std::vector<int> PassBuilder::made_by_others(int ready) const {
  std::vector<int> others;
  if (ready < 0) return others;
  const Task& last = structure_.tasks[static_cast<size_t>(ready)];
  const bool half = last.kind == TaskKind::attention_dw;
  for (int micro_batch = 0;; ++micro_batch) {
    const auto found = outputs_.find({micro_batch, last.layer});
    if (found == outputs_.end()) return others;
    const bool experts = makes_expert_gradients(last.kind), own = micro_batch == last.micro_batch;
    const std::vector<int>& all =
        experts ? experts_.at(found->first) : found->second[static_cast<size_t>(Phase::backward)].after;
    if (experts || !own || half) std::ranges::remove_copy(all, std::back_inserter(others), ready);
    if (half && !own) others.push_back(attention_halves_.at(found->first));
  }
}

void PassBuilder::gradient(size_t place, int after) {
  int ready = place < pass_->ready.size() ? pass_->ready[place] : after < 0 ? found().end : -1;
  if (made_here(place)) ready = last_expert_;
  std::vector<int> before = made_by_others(ready);
  before.insert(before.begin(), {after, ready});
  push(of_experts(place) ? TaskKind::expert_gradient : TaskKind::gradient, before);
  last().slice = structure_.classes.back().slice = first_slice_ + static_cast<int>(place);
  ++structure_.slices;
}

void PassBuilder::gradient_in_moe() {
  if (pass_->phase == Phase::backward && slots().in_moe) next_gradient();
}

bool PassBuilder::made_here(size_t place) const {
  return of_experts(place) && (place >= pass_->ready.size() || pass_->ready[place] == kMadeHere);
}

// Sends the pieces of a lane whose gaps lie between, in order, as far as they are made.
void PassBuilder::pieces_between(int lane, int from, int to) {
  const std::vector<int>& gaps = pass_->gradients.gaps;
  for (size_t& next = pieces_[static_cast<size_t>(lane) % lanes_.a_stage()].next; next < gaps.size(); ++next) {
    if (lane_of_slice(next) != lane) continue;
    if (gaps[next] < from || gaps[next] > to || (made_here(next) && last_expert_ < 0)) return;
    gradient(next);
  }
}

void PassBuilder::pieces_left() {
  constexpr int kAll = std::numeric_limits<int>::max();
  pieces_between(gradient_lane(), 0, kAll);
  if (!pass_->gradients.experts.empty()) pieces_between(lane_of(GroupKind::edp), 0, kAll);
}

void PassBuilder::begin_slices() {
  pieces_.assign(lanes_.a_stage(), {});
  slice_of_pass_ = 0;
  first_slice_ = structure_.slices;
  last_expert_ = -1;
}

// Waits for the half of attention that no other task waits for, of the layer behind on the same stage.
void PassBuilder::wait_for_weights(std::vector<int>& after) const {
  if (sent_.contains({Phase::backward, pass_->micro_batch, pass_->layer + 1})) return;
  const auto behind = attention_halves_.find({pass_->micro_batch, pass_->layer + 1});
  if (behind != attention_halves_.end()) after.push_back(behind->second);
}

// Messages between two stages arrive in the order sent.
std::vector<int> PassBuilder::behind_last(TaskKind kind, std::vector<int> after) {
  int& last = last_transfers_[{kind, pass_->phase, pass_->stage}];
  after.push_back(last - 1);
  last = static_cast<int>(structure_.tasks.size()) + 1;
  return after;
}

// Adds the receive where it is needed, so that nothing that could run before waits behind it. It begins once the stage
// ended the pass before, and needs no memory earlier; the send of what that pass made runs beside it.
PassBuilder::Chain PassBuilder::receive(int sent) {
  std::vector<int> after = ended_[pass_->stage];
  after.push_back(sent);
  const int received = push(TaskKind::recv, behind_last(TaskKind::recv, std::move(after)));
  last().writes.push_back(whole_of(Buffer::received));
  return {{received}, whole_of(Buffer::received)};
}

}  // namespace moe::schedule
