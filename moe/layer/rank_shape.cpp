#include "moe/layer/rank_shape.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/layer/element.h"
#include "moe/plan/volumes.h"

namespace moe {
namespace {

void check_supported(const Case& c) {
  const LayerShape& l = c.layer;
  require<BadInput>(c.parallel.pp == 1, "pp = {}: pipeline stages are unsupported yet by the layer, expected 1",
                    c.parallel.pp);
  require<BadInput>(l.kv_heads == l.heads, "kv-heads = {}: unsupported yet by the layer, expected heads = {}",
                    l.kv_heads, l.heads);
  require<BadInput>(l.ffn == Ffn::gpt, "ffn {}: unsupported yet by the layer, expected gpt", name_of(l.ffn));
  require<BadInput>(l.capacity_factor.has_value(),
                    "capacity-factor none: dropless routing is unsupported yet by the layer, expected a number");
  require<BadInput>(c.rounding == Rounding::ragged, "capacity-rounding {}: for planning only, expected ragged",
                    name_of(c.rounding));
  with_element(l.dtype, [](auto) {});
}

}  // namespace

Share share_of(int64_t total, int parts, int index) {
  const int64_t base = total / parts, longer = total % parts;
  return {index * base + std::min<int64_t>(index, longer), base + (index < longer ? 1 : 0), total};
}

RankShape rank_shape(const Case& c, int rank) {
  check_supported(c);
  const ParallelShape& p = c.parallel;
  require<BadInput>(rank >= 0 && rank < p.ranks(), "rank: found {}, expected 0 to {}", rank, p.ranks() - 1);
  RankShape s;
  s.shape = c;
  s.rank = rank;
  s.dp = rank / p.mp;
  s.mp = rank % p.mp;
  s.edp = rank / (p.ep * p.esp);
  s.ep = rank / p.esp % p.ep;
  s.esp = rank % p.esp;
  s.rows = capacity_rows(c);
  s.head_dim = c.layer.model_dim / c.layer.heads;
  s.tokens = share_of(s.group_tokens() * p.dp, p.ranks(), rank);
  s.experts = share_of(c.layer.experts, p.ep, s.ep);
  s.heads = share_of(c.layer.heads, p.mp, s.mp);
  s.hidden = share_of(c.layer.hidden, p.esp, s.esp);
  return s;
}

}  // namespace moe
