#include "moe/layer/detail/attention_parts.h"

#include <cmath>
#include <fmt/format.h>

#include "moe/layer/attention.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe {

// Sets cosines and sines of place theta^(-2 j / width), for all j below width / 2 and all places of the rank.
RotaryPositions::RotaryPositions(const PartSetup& setup, int64_t width) : math_(setup.math) {
  const RankShape& rank = setup.rank;
  const LayerShape& layer = rank.shape.layer;
  if (layer.rope_theta == 0) return;
  const int64_t tokens = layer.seq / rank.shape.parallel.cp / layer.parts, first = rank.mp_group().first;
  turns_ = Tensor({tokens, width}, accumulation_type(layer.dtype), math_.memory());
  const HostCopy host(turns_, math_.memory());
  with_element(host.view().dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* row = host.view().as<T>();
    for (int64_t token = 0; token < tokens; ++token, row += width)
      for (int64_t j = 0; j < width / 2; ++j) {
        const int64_t place = sample_order_index(rank.shape, first + token) % layer.seq;
        const double angle = static_cast<double>(place) *
                             std::pow(layer.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(width));
        row[j] = static_cast<T>(std::cos(angle));
        row[j + width / 2] = static_cast<T>(std::sin(angle));
      }
  });
  host.send();
}

void RotaryPositions::rotate(TensorView rows, int64_t head, RotationDirection turn) {
  if (turns_.view().data() != nullptr) math_.rotate(rows, head, turns_, turn);
}

int64_t queries_of(const PartSetup& setup) { return setup.rank.shape.layer.heads / setup.rank.shape.layer.kv_heads; }

HeadsShape heads_shape(const PartSetup& setup, HeadWidths widths) {
  const RankShape& rank = setup.rank;
  const int64_t kv_heads = rank.heads.count / queries_of(setup);
  return {.tokens = rank.mp_tokens(),
          .seq = rank.shape.layer.seq,
          .heads = rank.heads.count,
          .kv_heads = kv_heads,
          .dim = widths.key,
          .value_dim = widths.value,
          .dtype = rank.dtype(),
          .recompute = rank.shape.parallel.recompute != Recompute::none,
          .causal = rank.shape.layer.causal,
          .window = rank.shape.layer.window,
          .ranks = rank.shape.parallel.cp,
          .rank = index_in_group(rank.shape.parallel, GroupKind::cp, rank.rank),
          .parts = static_cast<int>(rank.shape.layer.parts),
          .part = rank.shape.part,
          .rank_stride = rank.mp_tokens() * kv_heads * (widths.key + widths.value)};
}

std::unique_ptr<AttentionHeads> make_heads(const PartSetup& setup, HeadWidths widths) {
  return setup.math.make_heads(heads_shape(setup, widths), setup.memory.store(Lifetime::kept));
}

KeysValuesBuffers::KeysValuesBuffers(const PartSetup& setup, HeadWidths widths) {
  const int64_t tokens = setup.rank.mp_tokens(), heads = setup.rank.heads.count / queries_of(setup);
  const int64_t keys = heads * widths.key, values = heads * widths.value;
  const auto make = [&](Lifetime lifetime, std::string_view name, Phase phase, int64_t ranks) {
    const std::string_view of = phase == Phase::forward ? "k and v" : "dk and dv";
    const TensorView made = setup.memory.store(lifetime).tensor(
        fmt::format("{}{}", name, of), {ranks, tokens * (keys + values)}, setup.rank.dtype(), setup.math.memory());
    return KeysValuesBlock{made, made.part(0, {tokens, keys}), made.part(tokens * keys, {tokens, values})};
  };
  const int blocks = setup.rank.shape.parallel.ring_blocks(), ranks = blocks > 0 ? 1 : setup.rank.shape.parallel.cp;
  for (int place = 0; blocks > 0 && place < 2; ++place) {
    for (const auto& [phase, lifetime] :
         {std::pair{Phase::forward, Lifetime::dense_forward}, {Phase::backward, Lifetime::dense_backward}})
      if (place + 1 < blocks)
        received[phase][place] = make(lifetime, fmt::format("received {} ", place), Phase::forward, 1);
    gradients[place] = make(Lifetime::dense_backward, fmt::format("sent {} ", place), Phase::backward, 1);
  }
  const auto make_phase = [&](Phase phase, Lifetime all, Lifetime apart) {
    gathered[phase] = make(all, "", phase, ranks);
    local[phase] = ranks > 1 ? make(apart, "own ", phase, 1) : gathered[phase];
    for (Attention* part : setup.parts_before) {
      const TensorView of_part = part->local_keys_values(phase);
      earlier_parts[phase].push_back({of_part.part(0, {tokens, keys}), of_part.part(tokens * keys, {tokens, values})});
    }
  };
  make_phase(Phase::forward, Lifetime::kept, Lifetime::dense_forward);
  const bool whole = setup.rank.shape.layer.parts == 1;  // otherwise later parts add to the gradients of earlier ones
  make_phase(Phase::backward, whole ? Lifetime::dense_backward : Lifetime::kept, Lifetime::dense_backward);
}

}  // namespace moe
