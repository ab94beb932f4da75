// Idea: a layout gives the place of a chunk's rows at each station (phase_layouts.h): in packed pieces, one for each
// rank that a collective talks to. So the collectives of all flows have the same form: the chunk's pieces at one
// station, its pieces at the next, and the group between them. Only SAA's phases choose among the pieces: the ranks of
// one EP peer have a block, the others have none.
//
// Invariant: a task only reads and writes the pieces of its own chunk. A piece has the same rows in the same order on
// the rank that sends it and on the rank that receives it. All blocks have one size, unless the layer is dropless: then
// a side's bytes come from counts on which all ranks agreed (RunTimeSizes).
//
// Source: FSMoE, section 2: AlltoAll over EP, AllGather and ReduceScatter over ESP. Parm, sections III-A, III-C and
// III-D: its baseline, one AlltoAll over EP and ESP, SAA's phases. MoNTA, Figures 4 to 9: its baseline, rows that the
// MP ranks share out before the AlltoAll.
#include "moe/layer/binding/row_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace moe::layer {

Side RowExchange::side(RowsView rows, int chunk, int first, int count) {
  Side side{rows.data.at(rows.layout.piece_offset(chunk, first)), {}};
  for (int piece = first; piece < first + count; ++piece)
    side.bytes.push_back(rows.layout.piece_elements(chunk, piece) * bytes_of(rows.data.dtype()));
  return side;
}

Side RowExchange::fanned_side(const PhaseBuffers& b, const RowLayout& home, int chunk) const {
  Side side{b.fanned.at(parallel().esp * home.chunk_offset(chunk)), {}};
  for (const int member : members(parallel(), GroupKind::ep_esp, rank().rank))
    side.bytes.push_back(home.piece_elements(chunk, index_in_group(parallel(), GroupKind::ep, member)) *
                         bytes_of(rank().dtype()));
  return side;
}

RowExchange::FanOut RowExchange::fan_out(const RowLayout& home, int chunk, int peer, bool by_peer) const {
  const int esp = parallel().esp;
  const int64_t size = home.piece_elements(chunk, peer), offset = home.piece_offset(chunk, peer);
  if (by_peer || !parallel().ep_inside) return {offset, esp * offset, size, size};
  const int64_t begin = home.chunk_offset(chunk);
  return {offset, esp * begin + offset - begin, home.chunk_elements(chunk), size};
}

void RowExchange::dump(const PhaseBuffers& b, const RowLayout& home, int chunk) const {
  for (int peer = 0; peer < parallel().ep; ++peer) {
    const FanOut fan = fan_out(home, chunk, peer, false);
    for (int esp = 0; esp < parallel().esp; ++esp)
      layer_.math().assign(b.home.part(fan.home, {fan.size}), b.fanned.part(fan.first + esp * fan.step, {fan.size}));
  }
}

int RowExchange::peer_of(int phase) const {
  int peer = 0;
  while (phase_of_peer(parallel(), rank().ep, peer) != phase) ++peer;
  return peer;
}

void RowExchange::send(GroupKind group, Sides wire, const CommCall& call) {
  auto& [out, in] = wire;
  if (group == GroupKind::ep) return layer_.parts.dispatcher->exchange({out.data, out.bytes, in.data, in.bytes}, call);
  Communicator& comm = layer_.comms.communicator(group);
  if (plan_.equal && !out.has_missing_blocks) return comm.alltoall(out.data, in.data, out.bytes.front(), call);
  comm.alltoallv(out.data, std::move(out.bytes), in.data, std::move(in.bytes), call);
}

void RowExchange::swap(const Task& task, Sides rows, const CommCall& call) {
  if (!hooks_.has_hook()) return send(task.group, std::move(rows), call);
  send(task.group, hooks_.before_exchange(task, rows, call), call);
  hooks_.after_exchange(task, rows, call);
}

void RowExchange::gather(const Task& task, const std::byte* own, Side receive, const CommCall& call) {
  Communicator& comm = layer_.comms.communicator(task.group);
  if (plan_.equal) return comm.allgather(own, receive.data, receive.bytes.front(), call);
  comm.allgatherv(own, receive.data, std::move(receive.bytes), call);
}

void RowExchange::dispatch(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task);
  const PhaseLayouts& l = plan_.layouts(task);
  const int chunk = task.chunk;
  if (task.group == GroupKind::ep_esp) {
    call.stream.launch([this, &b, &l, chunk](void* native) {
      layer_.math().use(native);
      dump(b, l.home, chunk);
    });
    return swap(task, {fanned_side(b, l.home, chunk), side({b.gathered, l.gathered}, chunk)}, call);
  }
  const RowsView there = rank().traits().through_peer() ? RowsView{b.peer, l.peer} : RowsView{b.gathered, l.gathered};
  swap(task, {side({b.home, l.home}, chunk), side(there, chunk)}, call);
}

void RowExchange::combine(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task);
  const PhaseLayouts& l = plan_.layouts(task);
  const int chunk = task.chunk;
  if (task.group == GroupKind::ep_esp)
    return swap(task, {side({b.gathered, l.gathered_back}, chunk), fanned_side(b, l.home_back, chunk)}, call);
  const RowsView there =
      rank().traits().through_peer() ? RowsView{b.peer, l.peer_back} : RowsView{b.gathered, l.gathered_back};
  swap(task, {side(there, chunk), side({b.home, l.home_back}, chunk)}, call);
}

void RowExchange::exchange(const Task& task, CommCall call) {
  if (!plan_.phase(task.phase).cuts.phases) return combine(task, call);
  const PhaseBuffers& b = buffers(task);
  const PhaseLayouts& l = plan_.layouts(task);
  const ParallelShape& p = parallel();
  Side send = side({b.gathered, l.gathered_back}, 0, task.chunk * p.esp, p.esp);
  const std::vector<int64_t> sent = std::exchange(send.bytes, {});
  send.has_missing_blocks = true;
  const int from = peer_of(task.chunk);
  const FanOut fan = fan_out(l.home_back, 0, from, true);
  Side receive{b.fanned.at(fan.first), {}};
  size_t next = 0;
  for (const int member : members(p, GroupKind::ep_esp, rank().rank)) {
    const int peer = index_in_group(p, GroupKind::ep, member);
    const bool goes = phase_of_peer(p, peer, rank().ep) == task.chunk;
    send.bytes.push_back(goes ? sent[next++] : 0);
    receive.bytes.push_back(peer == from ? fan.size * bytes_of(rank().dtype()) : 0);
  }
  swap(task, {std::move(send), std::move(receive)}, call);
}

void RowExchange::allgather(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task);
  const PhaseLayouts& l = plan_.layouts(task);
  gather(task, b.peer.at(l.peer.chunk_offset(task.chunk)), side({b.gathered, l.gathered}, task.chunk), call);
}

void RowExchange::gather_home(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task);
  const PhaseLayouts& l = plan_.layouts(task);
  if (!plan_.phase(task.phase).cuts.phases)
    return gather(task, b.home.at(l.home_back.chunk_offset(task.chunk)), side({b.wide, l.wide}, task.chunk), call);
  const int mp = parallel().mp;
  gather(task, b.home.at(l.home_back.piece_offset(0, peer_of(task.chunk))),
         side({b.wide, l.wide}, 0, task.chunk * mp, mp), call);
}

void RowExchange::reducescatter(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task);
  const PhaseLayouts& l = plan_.layouts(task);
  const bool all_chunks = task.chunks < l.gathered_back.degree();
  std::vector<int64_t> blocks;
  for (int piece = 0; piece < l.gathered_back.pieces(); ++piece) {
    blocks.push_back(l.gathered_back.piece_elements(task.chunk, piece));
    for (int chunk = 1; all_chunks && chunk < l.gathered_back.degree(); ++chunk)
      blocks.back() += l.gathered_back.piece_elements(chunk, piece);
  }
  Communicator& comm = layer_.comms.communicator(task.group);
  const void* from = b.gathered.at(l.gathered_back.piece_offset(task.chunk, 0));
  void* to = b.peer.at(l.peer_back.chunk_offset(task.chunk));
  if (plan_.equal) return comm.reducescatter(from, to, blocks.front(), rank().dtype(), call);
  comm.reducescatterv(from, to, std::move(blocks), rank().dtype(), call);
}

void RowExchange::allreduce(const Task& task, CommCall call) {
  layer_.comms.communicator(task.group)
      .allreduce(buffers(task).gathered.data(), plan_.layouts(task).gathered_back.elements(), rank().dtype(), call);
}

void RowExchange::sum(const Task& task) {
  const PhaseBuffers& b = buffers(task);
  const RowLayout& home = plan_.layouts(task).home_back;
  const bool phases = plan_.phase(task.phase).cuts.phases;
  for (int peer = 0; peer < parallel().ep; ++peer) {
    if (phases && peer != peer_of(task.chunk)) continue;
    const FanOut fan = fan_out(home, phases ? 0 : task.chunk, peer, phases);
    const TensorView to = b.home.part(fan.home, {fan.size});
    layer_.math().assign(b.fanned.part(fan.first, {fan.size}), to);
    for (int esp = 1; esp < parallel().esp; ++esp)
      layer_.math().add(b.fanned.part(fan.first + esp * fan.step, {fan.size}), to);
  }
}

void RowExchange::lay_out(const Task& task) {
  const PhaseBuffers& b = buffers(task);
  const RowLayout &wide = plan_.layouts(task).wide, &laid_out = plan_.layouts(task).laid_out;
  const Rows rows = wide.chunk(task.chunk);
  for (int group = 0; group < wide.streams(); ++group)
    for (int64_t e = 0; e < wide.experts(); ++e) {
      const Rows of = wide.rows_of(group, e, rows);
      if (of.count() == 0) continue;
      const int64_t size = of.count() * rank().model_dim();
      layer_.math().assign(b.wide.part(wide.offset(group, e, of.begin), {size}),
                           b.laid_out.part(laid_out.offset(group, e, of.begin), {size}));
    }
}

TensorView WireHooks::moe_gradient() const {
  if (layer_.parts.output_norm) return layer_.buffers.d_summed;
  return has_hook() ? layer_.hooked : layer_.buffers.backward.moe_output;
}

void WireHooks::begin_moe(Phase phase) const {
  const LayerBuffers& b = layer_.buffers;
  if (has_hook() && phase == Phase::forward) return layer_.parts.hook->before_moe_start(phase, b.forward.gate_input);
  if (has_hook()) {
    layer_.math().assign(b.backward.moe_output, layer_.hooked);  // dY keeps the gradient from the loss
    layer_.parts.hook->before_moe_start(phase, layer_.hooked);
  }
  if (phase == Phase::forward || !layer_.parts.output_norm) return;
  layer_.math().assign(has_hook() ? layer_.hooked : b.backward.moe_output, b.d_summed);
  layer_.parts.output_norm->backward(b.summed, b.d_summed, layer_.into.output);
}

void WireHooks::end_moe(Phase phase) const {
  if (!has_hook()) return;
  const LayerBuffers& b = layer_.buffers;
  layer_.parts.hook->before_moe_end(phase, phase == Phase::forward ? b.forward.moe_output : b.backward.gate_input);
}

WireHooks::Converted WireHooks::converted(const Side& side, TensorView buffer) const {
  const DType own = layer_.shape.dtype();
  const int64_t m = layer_.shape.model_dim();
  const int64_t count = std::reduce(side.bytes.begin(), side.bytes.end()) / bytes_of(own) / m;
  const TensorView rows(side.data, {count, m}, own);
  return {rows, wire_type(layer_.shape.shape.layer) == own ? rows : buffer.part(0, {count, m})};
}

Side WireHooks::wire_side(const Side& rows, TensorView wire) const {
  Side side{wire.as<std::byte>(), rows.bytes, rows.has_missing_blocks};
  for (int64_t& bytes : side.bytes) bytes = bytes / bytes_of(layer_.shape.dtype()) * bytes_of(wire.dtype());
  return side;
}

Sides WireHooks::before_exchange(const Task& task, const Sides& rows, const CommCall& call) const {
  const PhaseBuffers& b = layer_.buffers.phase_buffers(task.phase);
  const Converted out = converted(rows.send, b.wire_out), in = converted(rows.receive, b.wire_in);
  call.stream.launch([this, out, phase = task.phase, dispatches = task.kind == TaskKind::dispatch](void* native) {
    layer_.math().use(native);
    Hook& hook = *layer_.parts.hook;
    if (dispatches)
      hook.before_dispatch(phase, out.rows, out.wire);
    else
      hook.before_combine(phase, out.rows, out.wire);
  });
  return {wire_side(rows.send, out.wire), wire_side(rows.receive, in.wire)};
}

void WireHooks::after_exchange(const Task& task, const Sides& rows, const CommCall& call) const {
  const Converted in = converted(rows.receive, layer_.buffers.phase_buffers(task.phase).wire_in);
  call.stream.launch([this, in, phase = task.phase, dispatches = task.kind == TaskKind::dispatch](void* native) {
    layer_.math().use(native);
    Hook& hook = *layer_.parts.hook;
    if (dispatches)
      hook.after_dispatch(phase, in.wire, in.rows);
    else
      hook.after_combine(phase, in.wire, in.rows);
  });
}

RunTimeSizes::RunTimeSizes(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan) {
  const RankShape& rank = layer.shape;
  if (rank.shape.layer.capacity_factor) return;
  const auto experts = static_cast<size_t>(rank.experts.total);
  const auto held = static_cast<size_t>(rank.held_group_count()) * experts;
  rank_counts_.resize(static_cast<size_t>(rank.shape.parallel.ranks()) * held);
  counts_.members.resize(static_cast<size_t>(layer.comms.communicator(GroupKind::ep_esp).size()) * held);
  counts_.gated.resize(static_cast<size_t>(rank.groups()) * experts);
  device_rank_counts_ = {layer.memory(), static_cast<int64_t>(rank_counts_.size())};
}

void RunTimeSizes::exchange_counts(Stream& stream) {
  const RankShape& rank = layer_.shape;
  if (rank.shape.layer.capacity_factor) return;
  const int64_t experts = rank.experts.total, held = rank.held_group_count() * experts;
  const int64_t* own = layer_.routing.filled_data() + rank.first_held_group() * experts;
  layer_.comms.communicator(GroupKind::none)
      .allgather(own, device_rank_counts_.data(), held * static_cast<int64_t>(sizeof *own),
                 {stream, {}, "counts of rows"});
  stream.synchronize();
  device_rank_counts_.to_host(rank_counts_.data());
  layer_.routing.fetch_filled();
  take_counts();
  for (BoundPhase& phase : plan_.phases) {
    phase.layouts.set_counts(rank, counts_);
    phase.rows.update(phase.layouts.gathered);
  }
  fit();
  place(stream);
}

void RunTimeSizes::place(Stream& stream) {
  if (layer_.memory().kind() == DeviceKind::cpu) return;
  stream.launch([this](void* native) {
    layer_.math().use(native);
    for (BoundPhase& phase : plan_.phases)
      for (RowLayout* layout : phase.layouts.looked_up())
        if (layout->streams() > 0) layer_.device.place(*layout);
  });
  stream.synchronize();
}

void RunTimeSizes::take_counts() {
  const RankShape& rank = layer_.shape;
  if (pads_to_largest_load(rank.shape)) {
    const int64_t largest = padded_rows(rank.shape, *std::ranges::max_element(rank_counts_));
    std::ranges::fill(counts_.members, largest);
    std::ranges::fill(counts_.gated, largest);
    return;
  }
  const int64_t held = rank.held_group_count() * rank.experts.total;
  auto to = counts_.members.begin();
  for (const int member : members(rank.shape.parallel, GroupKind::ep_esp, rank.rank))
    to = std::copy_n(rank_counts_.begin() + member * held, held, to);
  std::ranges::copy(layer_.routing.filled, counts_.gated.begin());
}

void RunTimeSizes::fit() {
  for (const Phase phase : {Phase::forward, Phase::backward})
    layer_.buffers.fit(layer_.shape, phase, plan_.phase(phase).layouts);
  layer_.parts.expert->reserve(plan_.phase(Phase::forward).rows.total());
}

}  // namespace moe::layer
