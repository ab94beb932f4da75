#include "moe/sharding/rank_shape.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

void check_supported(const LayerCase& c) {
  const LayerShape& l = c.layer;
  require<Unsupported>(c.parallel.pp == 1, "pp = {}: a layer lies on one pipeline stage, expected 1", c.parallel.pp);
  require<Unsupported>(l.kv_heads >= c.parallel.mp, "kv-heads = {} over mp = {}: every rank needs a key-value head",
                       l.kv_heads, c.parallel.mp);
  require<Unsupported>(c.rounding != Rounding::exact, "capacity-rounding exact: for planning only, expected another");
}

}  // namespace

ShardRange share_of(int64_t total, int parts, int index) {
  const int64_t base = total / parts, longer = total % parts;
  return {index * base + std::min<int64_t>(index, longer), base + (index < longer ? 1 : 0), total};
}

int64_t RankShape::gated_tokens() const {
  int64_t sum = 0;
  for (const ShardRange& run : gated) sum += run.count;
  return sum;
}

int64_t sample_order_index(const LayerCase& c, int64_t token) {
  const int64_t cp = c.parallel.cp, seq = c.layer.seq, own = seq / cp / c.layer.parts, piece = seq / (2 * cp);
  if (cp == 1) return token / own * seq + c.part * own + token % own;
  const int64_t group = mp_tokens(c), rank = token / group % cp, replica = token / (group * cp);
  const int64_t sample = token % group / own, place = token % own;
  const int64_t begin = (place < piece ? rank : 2 * cp - 1 - rank) * piece;
  return (replica * c.layer.batch + sample) * seq + begin + place % piece;
}

RankShape rank_shape(const LayerCase& c, int rank, Flow flow) {
  check_supported(c);
  const ParallelShape& p = c.parallel;
  require<BadInput>(rank >= 0 && rank < p.ranks(), "rank: found {}, expected 0 to {}", rank, p.ranks() - 1);
  RankShape s;
  s.shape = c;
  s.flow = flow;
  s.rank = rank;
  s.dp = index_in_group(p, GroupKind::dp, rank);
  s.mp = index_in_group(p, GroupKind::mp, rank);
  s.edp = index_in_group(p, GroupKind::edp, rank);
  s.ep = index_in_group(p, GroupKind::ep, rank);
  s.esp = index_in_group(p, GroupKind::esp, rank);
  s.rows = padded_rows(c);
  s.head_dim = head_width(c.layer);
  s.tokens = share_of(s.mp_tokens() * p.replicas(), p.ranks(), rank);
  const auto of_mp_group = [&](int of) { return share_of(s.mp_tokens() * p.replicas(), p.replicas(), of / p.mp); };
  const FlowTraits& traits = traits_of(flow);
  s.held_tokens = traits.holds == Tokens::own ? s.tokens : of_mp_group(rank);
  s.gated = {traits.gates == Tokens::own ? s.tokens : of_mp_group(rank)};
  if (s.gates_esp_groups()) {
    s.gated.clear();
    for (const int of : members(p, GroupKind::esp, rank)) s.gated.push_back(of_mp_group(of));
  }
  s.own_group = s.gated.front() == s.tokens ? 0 : s.first_held_group() + s.mp;
  s.experts = share_of(c.layer.experts, p.ep, s.ep);
  // Query heads follow the key-value heads that they share.
  const int64_t queries = c.layer.heads / c.layer.kv_heads;
  const ShardRange kv = share_of(c.layer.kv_heads, p.mp, s.mp);
  s.heads = {kv.first * queries, kv.count * queries, c.layer.heads};
  s.hidden = share_of(c.layer.hidden, p.esp, s.esp);
  s.shared = share_of(c.layer.shared_hidden, p.mp, s.mp);
  return s;
}

}  // namespace moe
