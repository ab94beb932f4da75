#include "moe/rows/layer_buffers.h"

#include <algorithm>

namespace moe {

LayerBuffers::LayerBuffers(const RankShape& s, MemorySpace& memory, const LayerBuffers* before)
    : memory_(memory), dtype_(s.dtype()), wire_(wire_type(s.shape.layer)) {
  owned_.reserve(32);
  make_dense(s, forward, before ? &before->forward : nullptr);
  make_dense(s, backward, before ? &before->backward : nullptr);
  const bool norms = s.shape.layer.norm != Norm::none;
  const bool post = is_post(s.shape.layer.norm);
  normed_input = norms && !post ? own({s.mp_tokens(), s.model_dim()}) : forward.mp_input;
  if (s.is_dense())
    normed = norms ? own({s.mp_tokens(), s.model_dim()}) : forward.shared_in;
  else
    normed = norms ? own({s.gated_tokens(), s.model_dim()}) : forward.gate_input;
  for (TensorView* t : {&summed, &d_summed}) *t = post ? own({s.gated_tokens(), s.model_dim()}) : TensorView();
}

TensorView LayerBuffers::own(std::initializer_list<int64_t> shape) {
  return owned_.emplace_back(shape, dtype_, memory_).view();
}

void LayerBuffers::make_dense(const RankShape& s, PhaseBuffers& b, const PhaseBuffers* before) {
  const int64_t held = s.held.count, all = s.mp_tokens(), gated = s.gated_tokens(), m = s.model_dim();
  const int64_t before_own = (s.tokens.first - s.mp_group().first) * m;
  const bool scattered = held < all;  // sharded, MP > 1
  b.input = before ? before->output : own({held, m});
  b.mp_input = scattered ? own({all, m}) : b.input;
  b.mp_partial = own({all, m});
  b.hidden = scattered ? own({held, m}) : b.mp_partial;
  if (s.is_dense()) return make_feed_forward(s, b);
  if (s.traits().gathers_tokens()) {
    b.output = own({held, m});
    b.gate_input = b.hidden.part(before_own, {gated, m});
    b.moe_output = b.output.part(before_own, {gated, m});
  } else if (gated > held) {  // replicated, ESP > 1
    b.gate_input = own({gated, m});
    b.moe_output = own({gated, m});
    b.output = b.moe_output.part(s.esp * held * m, {held, m});
  } else {
    b.gate_input = b.hidden;
    b.output = b.moe_output = own({gated, m});
  }
  if (s.shared.count == 0) return;
  const bool gathers = s.traits().gates == Tokens::own && s.tokens.count < all;
  if (gathers) b.shared_in = own({all, m});
  b.shared_out = own({all, m});
  b.shared_sum = gathers ? own({s.tokens.count, m}) : b.shared_out;
}

// Makes the buffers of a dense layer's feed-forward: it is sharded over MP as attention is, and its tokens come
// together and apart alike.
void LayerBuffers::make_feed_forward(const RankShape& s, PhaseBuffers& b) {
  const int64_t held = s.held.count, all = s.mp_tokens(), m = s.model_dim();
  const bool scattered = held < all;
  b.shared_in = scattered ? own({all, m}) : b.hidden;
  b.shared_out = own({all, m});
  b.output = scattered ? own({held, m}) : b.shared_out;
}

TensorView LayerBuffers::grow(Tensor& tensor, int64_t elements, DType dtype) const {
  if (tensor.view().elements() < elements) tensor = Tensor({elements}, dtype, memory_);
  return tensor;
}

void LayerBuffers::fit(const RankShape& s, Phase phase, const PhaseLayouts& l) {
  PhaseBuffers& b = of(phase);
  PhaseOwners& own = phases_[static_cast<size_t>(phase)];
  const ParallelShape& p = s.shape.parallel;
  const bool fused = s.traits().fused(), by_peer = s.traits().through_peer();
  b.home = grow(own.home, std::max(l.home.elements(), l.home_back.elements()));
  b.fanned = fused && p.esp > 1 ? grow(own.fanned, p.esp * l.home.elements()) : b.home;
  const auto peers = [&] { return grow(own.peer, std::max(l.peer.elements(), l.peer_back.elements())); };
  b.peer = by_peer && p.ep > 1 ? peers() : b.home;
  const bool moved = fused ? p.ep * p.esp > 1 : by_peer ? p.esp > 1 : p.ep > 1;
  const auto all = [&] { return grow(own.gathered, std::max(l.gathered.elements(), l.gathered_back.elements())); };
  b.gathered = moved ? all() : fused ? b.fanned : b.peer;
  b.wide = l.gathers_home() ? grow(own.wide, l.wide.elements()) : b.home;
  b.laid_out = l.laid_out.streams() > 0 ? grow(own.laid_out, l.laid_out.elements()) : b.wide;
  const int64_t m = s.model_dim(), rows = std::max(l.gathered.elements(), l.gathered_back.elements()) / m;
  expert_input = grow(expert_input_, rows * m).part(0, {rows, m});
  rows_in = grow(rows_in_, rows * m).part(0, {rows, m});
  rows_out = grow(rows_out_, rows * m).part(0, {rows, m});
  if (wire_ == dtype_) return;
  int64_t most = 0;
  for (const TensorView& side : {b.home, b.fanned, b.peer, b.gathered}) most = std::max(most, side.elements());
  wire_out = grow(wire_out_, most, wire_);
  wire_in = grow(wire_in_, most, wire_);
}

}  // namespace moe
