#include "tests/layer/layer_space.h"

#include <algorithm>
#include <set>

#include "moe/base/check.h"
#include "moe/base/random.h"
#include "moe/layer/dispatchers/dispatcher.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"
#include "tests/schedule/any_decision.h"

namespace moe::layer_space {
namespace {

struct Spread {
  int nodes, ranks_per_node, mp, ep, esp;
  bool ep_inside;
};

struct Capacity {
  std::optional<double> factor;
  Rounding rounding;
};

// Shapes of 1 to 8 ranks whose groups divide them, with either placement where it makes a difference.
const std::vector<Spread>& spreads() {
  static const std::vector<Spread> kAll = [] {
    std::vector<Spread> list;
    for (const auto& [nodes, a_node] :
         {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {4, 1}, {1, 4}, {2, 4}, {4, 2}, {3, 1}, {3, 2}})
      for (const int mp : {1, 2, 3, 4, 8})
        for (const auto& [ep, esp] : {std::pair{1, 1},
                                      {2, 1},
                                      {1, 2},
                                      {2, 2},
                                      {4, 1},
                                      {1, 4},
                                      {4, 2},
                                      {2, 4},
                                      {8, 1},
                                      {1, 8},
                                      {3, 1},
                                      {1, 3},
                                      {3, 2},
                                      {2, 3}})
          for (const bool ep_inside : {false, true}) {
            const int ranks = nodes * a_node;
            if (ranks % mp != 0 || ranks % (ep * esp) != 0 || (ep_inside && (ep == 1 || esp == 1))) continue;
            list.push_back({nodes, a_node, mp, ep, esp, ep_inside});
          }
    return list;
  }();
  return kAll;
}

const std::vector<Capacity> kCapacities{
    {0.7, Rounding::ragged},         {1.3, Rounding::ragged},    {2.4, Rounding::megatron},
    {1.2, Rounding::tutel},          {1.1, Rounding::deepspeed}, {std::nullopt, Rounding::ragged},
    {std::nullopt, Rounding::tutel}, {1.3, Rounding::lcm},       {std::nullopt, Rounding::lcm}};
constexpr std::pair<double, double> kLosses[]{{0, 0}, {0.3, 0}, {0.2, 0.1}};
constexpr int64_t kTopK[]{1, 2, 5};
constexpr int64_t kShared[]{0, 24, 72};
constexpr std::array<int, 3> kHeads[]{{8, 8, 0}, {8, 4, 0}, {10, 5, 0},
                                      {8, 4, 6}, {8, 8, 0}, {10, 10, 0}};  // those of keys, a width
constexpr int kLatent = 4;                                                 // from here on heads are latent

template <class Row>
std::vector<std::string> names_of(const Row& rows) {
  return {rows.begin(), rows.end()};
}

std::vector<Axis> make_axes() {
  std::vector<Axis> all{{"gate", names_of(gate_names())},
                        {"order", names_of(order_names())},
                        {"dispatcher", names_of(dispatcher_names())},
                        {"ffn", {"gpt", "mixtral", "gpt-tanh", "mixtral-fp8"}}};
  all.push_back({"schedule", {}});
  for (const Schedule& s : schedules())
    if (s.variants.empty()) all.back().values.emplace_back(s.name);
  all.push_back({"spread", {}});
  for (const Spread& s : spreads())
    all.back().values.push_back(fmt::format("{}x{} mp {} ep {} esp {}{}", s.nodes, s.ranks_per_node, s.mp, s.ep, s.esp,
                                            s.ep_inside ? " ep inside" : ""));
  all.push_back({"capacity", {}});
  for (const Capacity& c : kCapacities)
    all.back().values.push_back(
        fmt::format("{} {}", c.factor ? fmt::format("{}", *c.factor) : "none", name_of(c.rounding)));
  all.push_back({"norm", {"none", "layernorm", "rmsnorm", "none, no residual", "post-layernorm"}});
  all.push_back({"losses", {"none", "auxiliary", "auxiliary and z"}});
  all.push_back({"degrees", {"1 1", "2 3", "3 2", "5 4", "9 9"}});
  all.push_back({"heads", {"8", "8 of 4", "10 of 5", "8 of 4, 6 wide", "8, latent", "10, latent keys and values"}});
  all.push_back({"routing", {"even", "skewed"}});
  all.push_back({"top-k", {"1", "2", "5"}});
  all.push_back({"shared expert", {"none", "narrow", "wide"}});
  all.push_back({"positions", {"none", "rotary", "none, all tokens seen", "rotary, window 5"}});
  all.push_back({"biases", {"none", "all"}});
  all.push_back({"context parallel", {"1", "2", "4", "2 in a ring", "4 in a ring"}});
  return all;
}

Decision decision_of(const Schedule& schedule, const LayerCase& shape, int degrees, uint64_t seed) {
  static constexpr std::pair<int, int> kDegrees[]{{1, 1}, {2, 3}, {3, 2}, {5, 4}, {9, 9}};
  auto [forward, backward] = kDegrees[degrees];
  if (schedule.degrees == DegreePolicy::one) forward = backward = 1;
  if (schedule.degrees != DegreePolicy::apart) backward = forward;
  Decision d = any_decision::any_decision(schedule, shape, seed, 5);
  if (d.order_forward.empty()) d.degree_forward = forward, d.degree_backward = backward;
  if (schedule.packs_experts && shape.parallel.ep % 2 == 0) d.packing = 1 + static_cast<int>(seed % 2);
  const size_t dense = d.gaps.size();  // and the replicas' pieces anywhere behind their experts
  for (size_t i = expert_gradient_pieces(schedule, decided_case(shape, d), d.micro_op_bytes).size(); i-- > 0;)
    d.gaps.push_back(static_cast<int>(random_bits(seed, 6, i) % 20));
  std::sort(d.gaps.begin() + static_cast<std::ptrdiff_t>(dense), d.gaps.end());
  return d;
}

using Pair = std::array<int, 4>;  // axis, value, axis, value

template <class Body>
void for_each_pair(const Point& point, Body body) {
  for (size_t a = 0; a < point.size(); ++a)
    for (size_t b = a + 1; b < point.size(); ++b)
      body(Pair{static_cast<int>(a), point[a], static_cast<int>(b), point[b]});
}

}  // namespace

const std::vector<Axis>& axes() {
  static const std::vector<Axis> kAll = make_axes();
  return kAll;
}

std::string text_of(const Point& point) {
  std::string text;
  for (size_t a = 0; a < point.size(); ++a)
    text += fmt::format("{}{} {}", a > 0 ? ", " : "", axes()[a].name, axes()[a].values[point[a]]);
  return text;
}

LayerCase shape_of(const Point& point) {
  const auto name = [&](size_t axis) { return axes()[axis].values[point[axis]]; };
  const Spread& s = spreads()[point[5]];
  const auto [heads, kv, width] = kHeads[point[10]];
  LayerShape layer{
      .batch = 2, .seq = 24, .model_dim = int64_t{2} * heads, .hidden = 24, .heads = heads, .kv_heads = kv};
  layer.head_dim = width;
  layer.experts = s.ep == 3 ? 6 : 8;
  layer.top_k = kTopK[point[12]];
  layer.shared_hidden = kShared[point[13]];
  layer.rope_theta = point[14] % 2 == 1 ? 10 : 0;
  layer.window = point[14] == 3 ? 5 : 0;
  layer.causal = point[14] != 2;
  layer.bias = point[15] == 1 && point[10] < kLatent;  // latent attention has none
  layer.dtype = DType::float64;
  layer.gate = name(0);
  layer.order = name(1);
  layer.dispatcher = name(2);
  layer.ffn = ffn_from(name(3), "ffn");
  if (const int64_t block = block_of(layer.ffn); block > 1) {  // a rank has whole ones
    if (heads == 10) layer.heads = 8, layer.kv_heads = 4;      // which fewest columns have
    layer.model_dim = block;
    layer.hidden = block * s.esp;
    layer.shared_hidden = layer.shared_hidden / 24 * block * s.mp;
  }
  if (point[10] >= kLatent) {
    layer.kv_heads = layer.heads;
    layer.q_lora_rank = point[10] == kLatent ? 9 : 0;
    layer.kv_lora_rank = 7;
    layer.qk_nope_head_dim = 3;
    layer.qk_rope_head_dim = 2;
    layer.v_head_dim = 4;
  }
  const Capacity& capacity = kCapacities[point[6]];
  layer.capacity_factor = capacity.factor;
  layer.residual = point[7] != 3;
  layer.norm = point[7] == 3 ? Norm::none : norm_from(name(7), "norm");
  std::tie(layer.aux_loss, layer.z_loss) = kLosses[point[8]];
  ParallelShape parallel{.nodes = s.nodes, .ranks_per_node = s.ranks_per_node, .mp = s.mp, .ep = s.ep, .esp = s.esp};
  parallel.ep_inside = s.ep_inside;
  parallel.cp = point[16] < 3 ? 1 << point[16] : 1 << (point[16] - 2);
  if (point[16] >= 3 && point[10] < kLatent && layer.window == 0) parallel.cp_exchange = CpExchange::ring;
  LayerCase shape = complete(layer, parallel, capacity.rounding);
  check_shape(find_schedule(name(4)), shape);
  make_routing(rank_shape(shape, 0));
  return shape;
}

DrawnLayer make_case(const Point& point, uint64_t seed) { return make_case(point, shape_of(point), seed); }

DrawnLayer make_case(const Point& point, const LayerCase& asked, uint64_t seed) {
  const Schedule& schedule = find_schedule(axes()[4].values[point[4]]);
  DrawnLayer c;
  c.plan = build_plan(schedule, asked, decision_of(schedule, asked, point[9], seed));
  c.shape = c.plan.shape;
  c.seed = {.seed = seed, .layer = seed % 3, .skew = point[11] == 0 ? 0.0 : 3.0};
  return c;
}

Point any_point(uint64_t seed, uint64_t& draws) {
  Point point;
  for (const Axis& axis : axes())
    point.push_back(static_cast<int>(random_bits(seed, 1, draws++) % static_cast<uint64_t>(axis.values.size())));
  return point;
}

std::vector<Point> covering(size_t least, uint64_t seed, const std::function<bool(const Point&)>& possible) {
  constexpr int kCandidates = 24, kVainDraws = 400;
  std::set<Pair> open;
  const size_t count = axes().size();
  const auto values = [](size_t axis) { return static_cast<int>(axes()[axis].values.size()); };
  for (size_t a = 0; a < count; ++a)
    for (size_t b = a + 1; b < count; ++b)
      for (int v = 0; v < values(a); ++v)
        for (int w = 0; w < values(b); ++w) open.insert({static_cast<int>(a), v, static_cast<int>(b), w});
  uint64_t draws = 0;
  const auto draw = [&](const Pair* wanted) {
    Point point = any_point(seed, draws);
    if (wanted != nullptr) {
      point[(*wanted)[0]] = (*wanted)[1];
      point[(*wanted)[2]] = (*wanted)[3];
    }
    return point;
  };
  std::vector<Point> points;
  while (!open.empty() || points.size() < least) {
    const Pair wanted = open.empty() ? Pair{} : *open.begin();
    Point best;
    int64_t most = -1, tried = 0;
    for (int vain = 0; tried < kCandidates && vain < kVainDraws; ++vain) {
      const Point point = draw(open.empty() ? nullptr : &wanted);
      if (!possible(point)) continue;
      ++tried;
      int64_t covers = 0;
      for_each_pair(point, [&](const Pair& pair) { covers += static_cast<int64_t>(open.count(pair)); });
      if (covers > most) most = covers, best = point;
      if (open.empty()) break;
    }
    if (tried == 0) {
      require<WrongResult>(!open.empty(), "layer space: no possible point");
      open.erase(wanted);  // nothing has both
      continue;
    }
    for_each_pair(best, [&](const Pair& pair) { open.erase(pair); });
    points.push_back(std::move(best));
  }
  return points;
}

}  // namespace moe::layer_space
