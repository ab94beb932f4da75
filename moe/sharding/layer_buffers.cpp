#include "moe/sharding/layer_buffers.h"

#include <algorithm>

#include "moe/base/check.h"

namespace moe {

// Makes one phase's buffers. A forward's buffer is kept if its backward reads it; otherwise it serves its part alone.
class LayerBuffers::Maker {
 public:
  Maker(LayerBuffers& buffers, const RankShape& shape, Phase phase, const PhaseBuffers* before, bool last)
      : all_(buffers),
        s_(shape),
        b_(buffers.phase_buffers(phase)),
        before_(before),
        forward_(phase == Phase::forward),
        last_(last) {}

  void make() {
    const int64_t before_own = (s_.tokens.first - s_.mp_group().first) * m();
    const bool scattered = held_tokens() < all();                                             // sharded, MP > 1
    const bool gathers = !s_.traits().gathers_tokens() && s_.gated_tokens() > held_tokens();  // replicated, ESP > 1
    b_.input = before_ ? before_->output : own("input", {held_tokens(), m()});
    b_.mp_input =
        !scattered ? b_.input : all_.make(forward_ ? Lifetime::kept : Lifetime::input_sum, "mp input", {all(), m()});
    b_.mp_partial = dense("mp partial", {all(), m()}, scattered ? kUnread : kRead);
    const bool gated = !s_.is_dense() && !gathers;
    b_.hidden = scattered ? dense("hidden", {held_tokens(), m()}, gated ? kRead : kUnread) : b_.mp_partial;
    if (s_.is_dense()) return make_feed_forward(scattered);
    const int64_t tokens = s_.gated_tokens();
    if (s_.traits().gathers_tokens()) {
      b_.output = output("output", {held_tokens(), m()});
      b_.gate_input = b_.hidden.part(before_own, {tokens, m()});
      b_.moe_output = b_.output.part(before_own, {tokens, m()});
    } else if (gathers) {
      b_.gate_input = dense("gate input", {tokens, m()}, kRead);
      b_.moe_output = output("gated output", {tokens, m()});
      b_.output = b_.moe_output.part(s_.esp * held_tokens() * m(), {held_tokens(), m()});
    } else {
      b_.gate_input = b_.hidden;
      b_.output = b_.moe_output = output("output", {tokens, m()});
    }
    if (s_.shared.count > 0) make_shared(s_.traits().gates == Tokens::own && s_.tokens.count < all());
  }

 private:
  enum Use : uint8_t { kUnread, kRead };  // whether the backward reads the buffer that a forward filled

  void make_shared(bool gathers) {
    if (gathers) b_.shared_in = moe("shared in", {all(), m()}, kRead);
    b_.shared_out = moe("shared out", {all(), m()}, kUnread);
    b_.shared_sum = gathers ? moe("shared sum", {s_.tokens.count, m()}, kUnread) : b_.shared_out;
  }

  // A dense layer's feed-forward is sharded over MP as attention is, and its tokens are gathered and scattered alike.
  void make_feed_forward(bool scattered) {
    b_.shared_in = scattered ? moe("shared in", {all(), m()}, kRead) : b_.hidden;
    b_.output = output("output", {held_tokens(), m()});
    b_.shared_out = scattered ? moe("shared out", {all(), m()}, kUnread) : b_.output;
  }

  int64_t held_tokens() const { return s_.held_tokens.count; }
  int64_t all() const { return s_.mp_tokens(); }
  int64_t m() const { return s_.model_dim(); }

  TensorView own(std::string_view name, std::initializer_list<int64_t> shape) {
    return all_.own_.tensor(fmt::format("{}{}", name, forward_ ? "" : "'s gradient"), shape, all_.dtype_, all_.memory_);
  }
  TensorView output(std::string_view name, std::initializer_list<int64_t> shape) {
    if (last_) return own(name, shape);
    return all_.make(forward_ ? Lifetime::output : Lifetime::output_gradient, name, shape);
  }
  TensorView dense(std::string_view name, std::initializer_list<int64_t> shape, Use use) {
    return make(use, forward_ ? Lifetime::dense_forward : Lifetime::dense_backward, name, shape);
  }
  TensorView moe(std::string_view name, std::initializer_list<int64_t> shape, Use use) {
    return make(use, forward_ ? Lifetime::moe_forward : Lifetime::moe_backward, name, shape);
  }
  TensorView make(Use use, Lifetime meanwhile, std::string_view name, std::initializer_list<int64_t> shape) {
    return all_.make(forward_ && use == kRead ? Lifetime::kept : meanwhile, name, shape);
  }

  LayerBuffers& all_;
  const RankShape& s_;
  PhaseBuffers& b_;
  const PhaseBuffers* before_;
  bool forward_, last_;
};

LayerBuffers::LayerBuffers(const RankShape& s, const LayerMemory& pass, MemorySpace& memory, const LayerBuffers* before,
                           bool last)
    : begins(before == nullptr),
      ends(last),
      memory_(memory),
      pass_(pass),
      dtype_(s.dtype()),
      wire_(wire_type(s.shape.layer)) {
  for (const Phase phase : {Phase::forward, Phase::backward})
    Maker(*this, s, phase, before ? &before->phase_buffers(phase) : nullptr, last).make();
  const bool norms = s.shape.layer.norm != Norm::none;
  const bool post = is_post_norm(s.shape.layer.norm);
  const auto kept = [&](std::string_view name, int64_t rows) {
    return make(Lifetime::kept, name, {rows, s.model_dim()});
  };
  normed_input = norms && !post ? kept("normed input", s.mp_tokens()) : forward.mp_input;
  if (s.is_dense())
    normed = norms ? kept("normed", s.mp_tokens()) : forward.shared_in;
  else
    normed = norms ? kept("normed", s.gated_tokens()) : forward.gate_input;
  if (!post) return;
  summed = kept("summed", s.gated_tokens());
  d_summed = make(Lifetime::moe_backward, "summed", {s.gated_tokens(), s.model_dim()});
}

TensorView LayerBuffers::make(Lifetime lifetime, std::string_view name, std::initializer_list<int64_t> shape) {
  return pass_.store(lifetime).tensor(name, shape, dtype_, memory_);
}

void LayerBuffers::fit(const RankShape& s, Phase phase, const PhaseLayouts& l) {
  PhaseBuffers& b = phase_buffers(phase);
  std::vector<std::shared_ptr<const Tensor>>& grown = grown_[phase];
  grown.clear();
  const bool forward_pass = phase == Phase::forward;
  const Lifetime meanwhile = forward_pass ? Lifetime::moe_forward : Lifetime::moe_backward;
  const auto grow = [&](Lifetime lifetime, std::string_view name, int64_t elements, DType dtype) -> TensorView {
    return *grown.emplace_back(pass_.store(lifetime).grow_to(name, elements, dtype, memory_));
  };
  const auto rows = [&](std::string_view name, int64_t elements, bool read = false) {
    return grow(read && forward_pass ? Lifetime::kept : meanwhile, name, elements, dtype_);
  };
  const ParallelShape& p = s.shape.parallel;
  const bool fused = s.traits().fused(), by_peer = s.traits().through_peer();
  const bool wide = l.gathers_home(), laid_out = l.laid_out.streams() > 0;  // the backward reads the last of them
  b.home = rows("home", std::max(l.home.elements(), l.home_back.elements()), !wide && !laid_out);
  b.fanned = fused && p.esp > 1 ? rows("fanned", p.esp * l.home.elements()) : b.home;
  const auto peers = [&] { return rows("peer", std::max(l.peer.elements(), l.peer_back.elements())); };
  b.peer = by_peer && p.ep > 1 ? peers() : b.home;
  const bool moved = fused ? p.ep * p.esp > 1 : by_peer ? p.esp > 1 : p.ep > 1;
  const auto all = [&] { return rows("gathered", std::max(l.gathered.elements(), l.gathered_back.elements())); };
  b.gathered = moved ? all() : fused ? b.fanned : b.peer;
  b.wide = wide ? rows("wide", l.wide.elements(), !laid_out) : b.home;
  b.laid_out = laid_out ? rows("laid out", l.laid_out.elements(), true) : b.wide;
  const int64_t m = s.model_dim(), count = std::max(l.gathered.elements(), l.gathered_back.elements()) / m;
  if (forward_pass) expert_input = rows("expert input", count * m, true).part(0, {count, m});
  b.rows_in = rows("rows in", count * m).part(0, {count, m});
  b.rows_out = rows("rows out", count * m).part(0, {count, m});
  if (wire_ == dtype_) return;
  int64_t most = 0;
  for (const TensorView& side : {b.home, b.fanned, b.peer, b.gathered}) most = std::max(most, side.elements());
  b.wire_out = grow(meanwhile, "wire out", most, wire_);
  b.wire_in = grow(meanwhile, "wire in", most, wire_);
}

WeightShare weight_share(const std::array<ShardRange, 3>& part, int rank, int ranks) {
  require<BadInput>(rank >= 0 && rank < ranks, "share of a weight: found rank {} of {}, expected one of them", rank,
                    ranks);
  WeightShare share{part, {}};
  if (part[1].count * part[2].count == 0) return share;  // nothing to share out
  const size_t axis = part[1].count > 1 ? 1 : 2;
  const int64_t row = axis == 1 ? part[2].count : 1, rows = part[axis].count;
  const ShardRange own = share_of(rows, ranks, rank);
  share.axes[axis].first += own.first;
  share.axes[axis].count = own.count;
  share.elements = {own.first * row, own.count * row, part[1].count * part[2].count};
  return share;
}

}  // namespace moe
