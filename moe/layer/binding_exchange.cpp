// The collectives of a layer's MoE part. Blocks are equal unless the layer drops no token.
#include "moe/layer/binding.h"

namespace moe {
LayerBinding::Side LayerBinding::side(RowsView rows, int chunk, int first, int count) {
  Side side{rows.data.at(rows.layout.piece_offset(chunk, first)), {}};
  for (int piece = first; piece < first + count; ++piece)
    side.bytes.push_back(rows.layout.piece_elements(chunk, piece) * bytes_of(rows.data.dtype()));
  return side;
}

LayerBinding::Side LayerBinding::fanned_side(const PhaseBuffers& b, const RowLayout& home, int chunk) const {
  const ParallelShape& p = rank().shape.parallel;
  Side side{b.fanned.at(p.esp * home.chunk_offset(chunk)), {}};
  for (const int member : members(p, GroupKind::ep_esp, rank().rank))
    side.bytes.push_back(home.piece_elements(chunk, place_in(p, GroupKind::ep, member)) * bytes_of(rank().dtype()));
  return side;
}

void LayerBinding::swap(GroupKind group, Side send, Side receive, CommCall call) {
  if (group == GroupKind::ep)
    return layer_.dispatcher_->exchange({send.data, send.bytes, receive.data, receive.bytes}, call);
  Communicator& comm = layer_.comms_.of(group);
  if (equal_ && !send.only_some) return comm.alltoall(send.data, receive.data, send.bytes.front(), call);
  comm.alltoallv(send.data, std::move(send.bytes), receive.data, std::move(receive.bytes), call);
}

void LayerBinding::gather(GroupKind group, const std::byte* own, Side receive, CommCall call) {
  Communicator& comm = layer_.comms_.of(group);
  if (equal_) return comm.allgather(own, receive.data, receive.bytes.front(), call);
  comm.allgatherv(own, receive.data, std::move(receive.bytes), call);
}

LayerBinding::Fan LayerBinding::fan_of(const RowLayout& home, int chunk, int peer, bool by_peer) const {
  const ParallelShape& p = rank().shape.parallel;
  const int64_t size = home.piece_elements(chunk, peer), offset = home.piece_offset(chunk, peer);
  if (by_peer || !p.ep_inside) return {offset, p.esp * offset, size, size};
  const int64_t begin = home.chunk_offset(chunk);
  return {offset, p.esp * begin + offset - begin, home.chunk_elements(chunk), size};
}

// Parm's dump: every ESP rank of an EP peer gets the rows.
void LayerBinding::dump(const PhaseBuffers& b, const RowLayout& home, int chunk) const {
  for (int peer = 0; peer < rank().shape.parallel.ep; ++peer) {
    const Fan fan = fan_of(home, chunk, peer, false);
    for (int esp = 0; esp < rank().shape.parallel.esp; ++esp)
      math().assign(b.home.part(fan.home, {fan.size}), b.fanned.part(fan.first + esp * fan.step, {fan.size}));
  }
}

// Parm's combine: what the ESP ranks made of a row is added up.
void LayerBinding::sum(const Task& task) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhasePart& p = part(task.phase);
  for (int peer = 0; peer < rank().shape.parallel.ep; ++peer) {
    if (p.cuts.phases && phase_of_peer(rank().shape.parallel, rank().ep, peer) != task.chunk) continue;
    const Fan fan = fan_of(p.layouts.home_back, p.cuts.phases ? 0 : task.chunk, peer, p.cuts.phases);
    const TensorView to = b.home.part(fan.home, {fan.size});
    math().assign(b.fanned.part(fan.first, {fan.size}), to);
    for (int esp = 1; esp < rank().shape.parallel.esp; ++esp)
      math().add(b.fanned.part(fan.first + esp * fan.step, {fan.size}), to);
  }
}

void LayerBinding::exchange(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhaseLayouts& l = part(task.phase).layouts;
  Communicator& comm = layer_.comms_.of(task.group);
  const DType dtype = rank().dtype();
  switch (task.kind) {
    case TaskKind::dispatch:
      return to_experts(task, call);
    case TaskKind::combine:
      return from_experts(task, call);
    case TaskKind::exchange:
      return part(task.phase).cuts.phases ? exchange_phase(task, call) : from_experts(task, call);
    case TaskKind::allgather:
      return gather(task.group, b.peer.at(l.peer.chunk_offset(task.chunk)), side({b.gathered, l.gathered}, task.chunk),
                    call);
    case TaskKind::gather:
      return gather_home(task, call);
    case TaskKind::reducescatter:
      return reduce(task, call);
    case TaskKind::allreduce:
      return comm.allreduce(b.gathered.data(), l.gathered_back.elements(), dtype, call);
    case TaskKind::gradient:
    case TaskKind::expert_gradient: {
      // Slices may end inside an element; cut alike on both sides, they still cover each element once.
      const GradientSlice& slice = plan_.slices[static_cast<size_t>(task.slice)];
      const int64_t begin = slice.begin / bytes_of(dtype), end = slice.end / bytes_of(dtype);
      const bool experts = task.kind == TaskKind::expert_gradient;
      const TensorView all = experts ? layer_.expert_->gradients() : layer_.pending_.view();
      return comm.allreduce(all.at(begin), end - begin, dtype, call);
    }
    default:
      return exchange_dense(task, call);
  }
}

void LayerBinding::to_experts(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhaseLayouts& l = part(task.phase).layouts;
  const int chunk = task.chunk;
  if (task.group == GroupKind::ep_esp) {
    call.stream.launch([this, &b, &l, chunk](void* native) {
      math().use(native);
      dump(b, l.home, chunk);
    });
    return swap(task, fanned_side(b, l.home, chunk), side({b.gathered, l.gathered}, chunk), call);
  }
  const RowsView there = rank().through_peer() ? RowsView{b.peer, l.peer} : RowsView{b.gathered, l.gathered};
  swap(task, side({b.home, l.home}, chunk), side(there, chunk), call);
}

void LayerBinding::from_experts(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhaseLayouts& l = part(task.phase).layouts;
  const int chunk = task.chunk;
  if (task.group == GroupKind::ep_esp)
    return swap(task, side({b.gathered, l.gathered_back}, chunk), fanned_side(b, l.home_back, chunk), call);
  const RowsView there = rank().through_peer() ? RowsView{b.peer, l.peer_back} : RowsView{b.gathered, l.gathered_back};
  swap(task, side(there, chunk), side({b.home, l.home_back}, chunk), call);
}

// One phase of SAA: rows go to the ranks of one EP peer and come from those of another.
void LayerBinding::exchange_phase(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhaseLayouts& l = part(task.phase).layouts;
  const ParallelShape& p = rank().shape.parallel;
  Side send = side({b.gathered, l.gathered_back}, 0, task.chunk * p.esp, p.esp), receive = send;
  const std::vector<int64_t> sent = std::move(send.bytes);
  send.bytes.clear(), receive.bytes.clear();
  send.only_some = true;
  size_t next = 0;
  for (const int member : members(p, GroupKind::ep_esp, rank().rank)) {
    const int peer = place_in(p, GroupKind::ep, member);
    const bool goes = phase_of_peer(rank().shape.parallel, peer, rank().ep) == task.chunk;
    const bool comes = phase_of_peer(rank().shape.parallel, rank().ep, peer) == task.chunk;
    const Fan fan = fan_of(l.home_back, 0, peer, true);
    send.bytes.push_back(goes ? sent[next++] : 0);
    receive.bytes.push_back(comes ? fan.size * bytes_of(rank().dtype()) : 0);
    if (comes && place_in(p, GroupKind::esp, member) == 0) receive.data = b.fanned.at(fan.first);
  }
  swap(task, std::move(send), std::move(receive), call);
}

void LayerBinding::gather_home(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhaseLayouts& l = part(task.phase).layouts;
  const int mp = rank().shape.parallel.mp;
  if (!part(task.phase).cuts.phases)
    return gather(task.group, b.home.at(l.home_back.chunk_offset(task.chunk)), side({b.wide, l.wide}, task.chunk),
                  call);
  int peer = 0;
  while (phase_of_peer(rank().shape.parallel, rank().ep, peer) != task.chunk) ++peer;
  gather(task.group, b.home.at(l.home_back.piece_offset(0, peer)), side({b.wide, l.wide}, 0, task.chunk * mp, mp),
         call);
}

void LayerBinding::reduce(const Task& task, CommCall call) {
  const PhaseBuffers& b = buffers(task.phase);
  const PhaseLayouts& l = part(task.phase).layouts;
  const bool all_chunks = task.chunks < l.gathered_back.degree();
  std::vector<int64_t> blocks;
  for (int piece = 0; piece < l.gathered_back.pieces(); ++piece) {
    blocks.push_back(l.gathered_back.piece_elements(task.chunk, piece));
    for (int chunk = 1; all_chunks && chunk < l.gathered_back.degree(); ++chunk)
      blocks.back() += l.gathered_back.piece_elements(chunk, piece);
  }
  Communicator& comm = layer_.comms_.of(task.group);
  const void* send = b.gathered.at(l.gathered_back.piece_offset(task.chunk, 0));
  void* receive = b.peer.at(l.peer_back.chunk_offset(task.chunk));
  if (equal_) return comm.reducescatter(send, receive, blocks.front(), rank().dtype(), call);
  comm.reducescatterv(send, receive, std::move(blocks), rank().dtype(), call);
}

}  // namespace moe
