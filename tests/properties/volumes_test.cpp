// Bytes, FLOPs and groups of every task of every schedule against the formulas of FSMoE (sections 2 and 4.1), Parm
// (section IV) and MoNTA (Eqs. 3 to 11), written out here from B, L, M, H, E, k, f and the groups' sizes.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "tests/properties/cases.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using conformance::cases;
using conformance::text_of;

// The symbols of the papers, in elements and multiply-accumulates.
struct Symbols {
  explicit Symbols(const LayerCase& c)
      : tokens(static_cast<double>(c.layer.batch * c.layer.seq)),
        m(static_cast<double>(c.layer.model_dim)),
        h(static_cast<double>(c.layer.hidden)),
        e(static_cast<double>(c.layer.experts)),
        mp(c.parallel.mp),
        esp(c.parallel.esp),
        ep(c.parallel.ep),
        g(c.layer.ffn == Ffn::gpt ? 2 : 3) {
    // k f = 2.4 = 12 / 5 of the tokens of an MP rank, spread over E experts; rounded up in whole numbers
    const int64_t top = 12 * c.layer.batch * c.layer.seq, bottom = 5 * c.parallel.mp * c.layer.experts;
    rows = c.rounding == Rounding::exact ? static_cast<double>(top) / static_cast<double>(bottom)
                                         : static_cast<double>((top + bottom - 1) / bottom);
    exact = c.rounding == Rounding::exact;
  }
  // Rows of T_rank of one chunk: floor or ceil, the longer first.
  double chunk(int part, int parts) const {
    if (exact) return rows / parts;
    const auto whole = static_cast<int64_t>(rows);
    return static_cast<double>(whole / parts + (part < whole % parts ? 1 : 0));
  }
  double tokens, m, h, e, mp, esp, ep, g, rows = 0;
  bool exact = false;
};

struct Expected {
  Op op = Op::none;
  GroupKind group = GroupKind::none;
  double elements = 0, macs = 0;
};

Expected dense(const Symbols& s, const LayerCase& c, Flow flow, const Task& task) {
  const double passes = task.phase == Phase::backward ? 2 : 1, blm = s.tokens * s.m;
  switch (task.kind) {
    case TaskKind::mp_allgather:
      return {Op::allgather, GroupKind::mp, blm};
    case TaskKind::mp_reducescatter:
      return {Op::reducescatter, GroupKind::mp, blm};
    case TaskKind::mp_allreduce:
      return {Op::allreduce, GroupKind::mp, blm};
    case TaskKind::shared_allgather:
      return {Op::allgather, GroupKind::mp, blm};
    case TaskKind::shared_reducescatter:
      return {Op::reducescatter, GroupKind::mp, blm};
    case TaskKind::shared_allreduce:
      return {Op::allreduce, GroupKind::mp, blm};
    case TaskKind::shared:
      return {Op::expert, GroupKind::none, 0, passes * s.g * blm * static_cast<double>(c.layer.shared_hidden) / s.mp};
    case TaskKind::tokens_allgather:  // Parm Eq. 1: AG_ESP(B L M N_ESP)
      return {Op::allgather, GroupKind::esp, blm * s.esp};
    case TaskKind::tokens_reducescatter:
      return {Op::reducescatter, GroupKind::esp, blm * s.esp};
    case TaskKind::attention:
    case TaskKind::attention_dx:
    case TaskKind::attention_dw: {
      const double kv = static_cast<double>(c.layer.kv_heads) / static_cast<double>(c.layer.heads);
      const double projections = (2 + 2 * kv) * s.tokens * s.m * s.m / s.mp;
      const double scores = 2 * s.tokens * static_cast<double>(c.layer.seq) * s.m / s.mp;
      if (task.kind == TaskKind::attention_dx) return {Op::attention, GroupKind::none, 0, projections + 2 * scores};
      if (task.kind == TaskKind::attention_dw) return {Op::attention, GroupKind::none, 0, projections};
      return {Op::attention, GroupKind::none, 0, passes * (projections + scores)};
    }
    case TaskKind::gate: {
      const double gated = flow == Flow::sharded || flow == Flow::fused ? s.tokens / s.mp  // each its own tokens
                           : flow == Flow::replicated                   ? s.tokens * s.esp
                                                                        : s.tokens;
      return {Op::gemm, GroupKind::none, 0, passes * gated * s.m * s.e};
    }
    case TaskKind::order:
    case TaskKind::i_order: {  // E T_rank M of each group of tokens; on the way out of flows that split after it, its
                               // own
      const bool out = (task.kind == TaskKind::order) == (task.phase == Phase::forward);
      const std::map<Flow, double> groups{{Flow::sharded, 1},   {Flow::replicated, s.mp * s.esp},
                                          {Flow::fused, 1},     {Flow::fused_gated, out ? 1 : s.mp},
                                          {Flow::tensor, s.mp}, {Flow::dropped, out ? 1 : s.mp}};
      return {Op::none, GroupKind::none, groups.at(flow) * s.e * s.rows * s.m};
    }
    default:
      return {};
  }
}

// n = E T_rank M of the chunk; T = N_MP T_rank.
Expected moe(const Symbols& s, Flow flow, const Task& task) {
  const bool by_peers = flow == Flow::fused_gated;
  const double n = (by_peers ? s.rows / task.chunks : s.chunk(task.chunk, task.chunks)) * s.e * s.m;
  const double etm = n * s.mp;
  const double passes = task.phase == Phase::backward ? 2 : 1;
  const bool fused = flow == Flow::fused || flow == Flow::fused_gated;
  const GroupKind exchange = fused ? GroupKind::ep_esp : GroupKind::ep;
  const GroupKind gathers = flow == Flow::dropped ? GroupKind::mp : GroupKind::esp;
  switch (task.kind) {
    case TaskKind::dispatch:
    case TaskKind::combine:
    case TaskKind::exchange: {
      const std::map<Flow, double> elements{{Flow::sharded, n},
                                            {Flow::replicated, etm * s.esp},
                                            {Flow::fused, etm * s.esp / s.mp},
                                            {Flow::fused_gated, etm * s.esp / s.mp},
                                            {Flow::tensor, etm},
                                            {Flow::dropped, etm / s.mp}};
      return {Op::alltoall, exchange, elements.at(flow)};
    }
    case TaskKind::allgather:
      return {Op::allgather, gathers, flow == Flow::dropped ? etm : n * s.esp};
    case TaskKind::reducescatter:
      return {Op::reducescatter, GroupKind::esp, flow == Flow::dropped ? etm : n * s.esp};
    case TaskKind::allreduce:
      return {Op::allreduce, GroupKind::esp, flow == Flow::replicated ? etm * s.esp : etm};
    case TaskKind::gather:
      return {Op::allgather, GroupKind::mp, etm};
    case TaskKind::copy:
    case TaskKind::home_copy:
      return {Op::copy, GroupKind::none, etm};
    case TaskKind::sum:
      return {Op::copy, GroupKind::none, n * s.esp};
    case TaskKind::expert:
      return {Op::expert, GroupKind::none, 0, passes * s.g * n * s.h * (flow == Flow::replicated ? s.mp : 1)};
    case TaskKind::expert_dx:
    case TaskKind::expert_dw:
      return {Op::expert, GroupKind::none, 0, s.g * n * s.h};
    default:
      return {};
  }
}

TEST(Volumes, OfEveryTaskOfEverySchedule) {
  int compared = 0;
  uint64_t seed = 0;
  for (const LayerCase& shape : cases())
    for (const Schedule& schedule : schedules()) {
      if (!any_decision::fits(schedule, shape)) continue;
      Decision d = any_decision::any_decision(schedule, shape, ++seed, 9);
      if (schedule.packs_experts && shape.parallel.ep % 2 == 0) d.packing = 2;  // other groups, the same rows
      SCOPED_TRACE(text_of(schedule, shape, d));
      const Plan plan = build_plan(schedule, shape, d);
      const Symbols s(shape);
      double gradients = 0, expert_gradients = 0;
      for (const Task& task : plan.tasks()) {
        const Work& work = plan.works[task.id];
        if (task.kind == TaskKind::expert_gradient) {
          ASSERT_EQ(work.op, Op::allreduce);
          ASSERT_EQ(work.group, GroupKind::edp);
          expert_gradients += work.bytes;
          continue;
        }
        if (task.kind == TaskKind::gradient) {
          ASSERT_EQ(work.op, Op::allreduce);
          ASSERT_EQ(work.group, GroupKind::dp);
          ASSERT_GT(work.bytes, 0);
          gradients += work.bytes;
          continue;
        }
        const Expected expected =
            is_chunked(task.kind) ? moe(s, schedule.flow, task) : dense(s, shape, schedule.flow, task);
        ASSERT_EQ(work.op, expected.op) << task.name();
        ASSERT_EQ(work.group, expected.group) << task.name();
        ASSERT_NEAR(work.bytes, 4 * expected.elements, 1e-9 * work.bytes) << task.name();
        ASSERT_NEAR(work.flops, 2 * expected.macs, 1e-9 * work.flops) << task.name();
        ++compared;
      }
      const double kv = static_cast<double>(shape.layer.kv_heads) / static_cast<double>(shape.layer.heads);
      const double shared = s.g * s.m * static_cast<double>(shape.layer.shared_hidden);
      const double dense_bytes = 4 * ((2 + 2 * kv) * s.m * s.m + shared) / s.mp;
      ASSERT_EQ(gradients, shape.parallel.dp > 1 ? dense_bytes : 0) << "gradient bytes, each once";
      const Symbols decided(plan.shape);  // E / N_EP experts a rank, g matrices of M H / N_ESP each
      const double replicated = 4 * decided.g * decided.m * decided.h * 12 / plan.shape.parallel.ep / decided.esp;
      ASSERT_EQ(expert_gradients, schedule.packs_experts && plan.shape.parallel.edp > 1 ? replicated : 0);
    }
  fmt::print("{} tasks have the volumes of the papers\n", compared);
  EXPECT_GT(compared, 50000);
}

// Figures by hand: 4 nodes x 2, N_MP = N_ESP = 2, N_EP = 4, B 2, L 20, M 16, E 12, k f = 2.4. T_rank = 4, T = 8.
TEST(Volumes, ByHand) {
  LayerShape layer{.batch = 2, .seq = 20, .model_dim = 16, .hidden = 32, .heads = 8, .experts = 12};
  const LayerCase shape =
      complete(layer, {.nodes = 4, .ranks_per_node = 2, .mp = 2, .ep = 4, .esp = 2}, Rounding::ragged);
  const auto bytes = [&](std::string_view schedule, TaskKind kind) {
    double all = 0;
    const Plan plan = build_plan(find_schedule(schedule), shape, {});
    for (const Task& task : plan.tasks())
      if (task.kind == kind && task.phase == Phase::forward) all += plan.works[task.id].bytes;
    return all;
  };
  EXPECT_EQ(bytes("ds-moe", TaskKind::dispatch), 12 * 4 * 16 * 4);
  EXPECT_EQ(bytes("ds-moe", TaskKind::allgather), 12 * 4 * 16 * 4 * 2);
  EXPECT_EQ(bytes("ds-moe-replicated", TaskKind::dispatch), 12 * 8 * 16 * 4 * 2);   // E T M N_ESP
  EXPECT_EQ(bytes("ds-moe-replicated", TaskKind::allreduce), 12 * 8 * 16 * 4 * 2);  // E T M N_ESP
  EXPECT_EQ(bytes("ds-moe-replicated", TaskKind::tokens_allgather), 2 * 20 * 16 * 4 * 2);
  EXPECT_EQ(bytes("parm-s1", TaskKind::dispatch), 12 * 8 * 16 * 4 * 2 / 2);  // E T M N_ESP / N_MP
  EXPECT_EQ(bytes("parm-s1", TaskKind::mp_allgather), 2 * 20 * 16 * 4);      // B L M
  EXPECT_EQ(bytes("parm-s2", TaskKind::exchange), 12 * 8 * 16 * 4 * 2 / 2);
  EXPECT_EQ(bytes("parm-s2", TaskKind::gather), 12 * 8 * 16 * 4);           // E T M
  EXPECT_EQ(bytes("monta-baseline", TaskKind::dispatch), 12 * 8 * 16 * 4);  // I
  EXPECT_EQ(bytes("monta-o1", TaskKind::dispatch), 12 * 8 * 16 * 4 / 2);    // I / t
  EXPECT_EQ(bytes("monta-o1", TaskKind::allgather), 12 * 8 * 16 * 4);       // I
}

// Key-value heads are dealt one after another to the MP ranks, or shared by ranks where there are fewer; each brings
// the query heads that read it. A tensor's gradient is as large as the largest rank's.
TEST(Volumes, GradientTensorsAreTheLargestRanksShards) {
  int uneven = 0;
  for (const int heads : {4, 6, 8, 12, 25, 30})
    for (int kv = 1; kv <= heads; ++kv)
      for (const int mp : {1, 2, 4, 8}) {
        if (heads % kv != 0 || heads < mp) continue;
        LayerShape layer;
        layer.model_dim = 64 * heads;
        layer.hidden = 64;
        layer.heads = heads;
        layer.kv_heads = kv;
        layer.seq = 64;
        const LayerCase c = complete(layer, {.nodes = 2, .ranks_per_node = mp, .mp = mp, .esp = 1}, Rounding::ragged);
        std::vector<int64_t> keys(mp), queries(keys.size());
        for (int head = 0; head < std::max(kv, mp); ++head) ++keys[head % mp];
        for (int head = 0; head < heads && kv < mp; ++head) ++queries[head % mp];
        for (size_t rank = 0; rank < keys.size() && kv >= mp; ++rank) queries[rank] = keys[rank] * (heads / kv);
        const int64_t head_bytes = int64_t{64} * heads * 64 * 4;
        const int64_t query = *std::ranges::max_element(queries) * head_bytes;
        const int64_t key = *std::ranges::max_element(keys) * head_bytes;
        const std::vector<int64_t> tensors = gradient_tensors(c);
        EXPECT_EQ(tensors, (std::vector{query, key, key, query})) << heads << " heads, " << kv << " kv, MP " << mp;
        EXPECT_EQ(std::accumulate(tensors.begin(), tensors.end(), int64_t{0}), gradient_bytes(c));
        uneven += kv % mp != 0;
      }
  EXPECT_GT(uneven, 20);
}

}  // namespace
}  // namespace moe
