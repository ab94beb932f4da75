#include "moe/shape/shape.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/base/registry.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

static_assert(is_in_enum_order(kFfnParts, &FfnPart::ffn));

constexpr EnumArray<Norm, Named<Norm>, 5> kNorms{{{{"by-ffn", Norm::by_ffn},
                                                   {"none", Norm::none},
                                                   {"layernorm", Norm::layernorm},
                                                   {"rmsnorm", Norm::rmsnorm},
                                                   {"post-layernorm", Norm::post_layernorm}}}};
static_assert(is_in_enum_order(kNorms, &Named<Norm>::value));

constexpr std::array<Named<bool>, 2> kPlacements{{{"esp-inside", false}, {"ep-inside", true}}};

constexpr EnumArray<Rounding, Named<Rounding>, 6> kRoundings{{{{"ragged", Rounding::ragged},
                                                               {"exact", Rounding::exact},
                                                               {"tutel", Rounding::tutel},
                                                               {"deepspeed", Rounding::deepspeed},
                                                               {"megatron", Rounding::megatron},
                                                               {"lcm", Rounding::lcm}}}};
static_assert(is_in_enum_order(kRoundings, &Named<Rounding>::value));

constexpr EnumArray<Recompute, Named<Recompute>, 3> kRecomputes{
    {{{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}}}};
static_assert(is_in_enum_order(kRecomputes, &Named<Recompute>::value));

constexpr EnumArray<CpExchange, Named<CpExchange>, 2> kCpExchanges{
    {{{"allgather", CpExchange::allgather}, {"ring", CpExchange::ring}}}};
static_assert(is_in_enum_order(kCpExchanges, &Named<CpExchange>::value));

constexpr EnumArray<Offload, Named<Offload>, 2> kOffloads{{{{"none", Offload::none}, {"experts", Offload::experts}}}};
static_assert(is_in_enum_order(kOffloads, &Named<Offload>::value));

constexpr int kMaxRanks = 1 << 24;

void require_divides(int64_t part, int64_t whole, std::string_view part_name, std::string_view whole_name) {
  require<BadInput>(part >= 1 && whole % part == 0, "{} = {} does not divide {} = {}", part_name, part, whole_name,
                    whole);
}

void require_positive(int64_t value, std::string_view name) {
  require<BadInput>(value >= 1, "{}: found {}, expected a whole number >= 1", name, value);
}

// Checks that each rank's shards of the experts consist of whole blocks of block_of() weights.
void check_blocks(const LayerShape& layer, const ParallelShape& p) {
  const int64_t block = block_of(layer.ffn);
  require<BadInput>(layer.model_dim % block == 0, "model-dim: found {}, expected a multiple of {} for ffn {}",
                    layer.model_dim, block, name_of(layer.ffn));
  require_blocks(layer.ffn, layer.hidden, p.esp, "hidden", "esp");
  require_blocks(layer.ffn, layer.shared_hidden, p.mp, "shared-hidden", "mp");
}

// Checks the widths of latent attention; without it, they must be 0.
void check_latent(const LayerShape& l) {
  require<BadInput>(l.q_lora_rank >= 0 && l.kv_lora_rank >= 0,
                    "q-lora-rank {}, kv-lora-rank {}: expected whole numbers >= 0", l.q_lora_rank, l.kv_lora_rank);
  for (const auto& [name, width] : {std::pair<std::string_view, int64_t>{"qk-nope-head-dim", l.qk_nope_head_dim},
                                    {"qk-rope-head-dim", l.qk_rope_head_dim},
                                    {"v-head-dim", l.v_head_dim}}) {
    if (is_latent(l))
      require<BadInput>(width >= 1, "{}: found {}, expected a whole number >= 1 with kv-lora-rank {}", name, width,
                        l.kv_lora_rank);
    else
      require<BadInput>(width == 0, "{}: found {} without kv-lora-rank, which makes attention latent", name, width);
  }
  if (!is_latent(l)) {
    require<BadInput>(l.q_lora_rank == 0, "q-lora-rank: found {} without kv-lora-rank, which makes attention latent",
                      l.q_lora_rank);
    return;
  }
  require<BadInput>(l.head_dim == 0,
                    "head-dim: found {} with kv-lora-rank, expected none: heads are as wide as qk-nope-head-dim and "
                    "qk-rope-head-dim together",
                    l.head_dim);
  require<BadInput>(l.kv_heads == l.heads,
                    "kv-heads: found {} with kv-lora-rank, expected as many as heads, {}: each has keys and values",
                    l.kv_heads, l.heads);
  require<BadInput>(!l.bias, "bias: found with kv-lora-rank, expected latent attention without biases");
}

// Returns the largest number up to `most` for which `fits` is true, or 1.
template <class Fits>
int largest(int64_t most, Fits fits) {
  while (most > 1 && !fits(most)) --most;
  return static_cast<int>(most);
}

// In a ring, every rank computes equally many scores with every block of keys, which a window would prevent.
void check_ring(const LayerShape& l) {
  require<BadInput>(l.window == 0, "cp-exchange: found ring with window = {}, expected allgather or no window",
                    l.window);
}

void complete_parallel(ParallelShape& p, const LayerShape& layer) {
  require<BadInput>(int64_t{p.nodes} * p.ranks_per_node <= kMaxRanks,
                    "nodes x ranks per node: found {} x {}, expected at most {}", p.nodes, p.ranks_per_node, kMaxRanks);
  const int ranks = p.ranks();
  require_positive(p.pp, "pp");
  require_divides(p.pp, ranks, "pp", "ranks");
  const int stage = ranks / p.pp;
  const int sharded = p.nodes > 1 ? std::min(p.ranks_per_node, stage) : 1;
  const auto in_node = [&](int64_t n) { return stage % n == 0 && p.ranks_per_node % n == 0; };
  require_divides(p.cp, stage, "cp", "ranks of a stage");
  if (p.cp > 1) require_divides(2 * int64_t{p.cp}, layer.seq, "2 cp", "seq");
  if (p.cp == 1) p.cp_exchange = CpExchange::allgather;
  if (p.ring_blocks() > 0) check_ring(layer);
  const int split = stage / p.cp;  // DP x MP
  if (p.mp == 0 && p.dp > 0 && split % p.dp == 0) p.mp = split / p.dp;
  if (p.mp == 0)
    p.mp = largest(sharded, [&](int64_t n) {
      return in_node(n) && split % n == 0 && n <= layer.heads && layer.shared_hidden % (n * block_of(layer.ffn)) == 0 &&
             layer.batch % n * (layer.seq / p.cp / layer.parts % n) % n == 0;
    });
  if (p.esp == 0)
    p.esp = largest(sharded, [&](int64_t n) {
      return in_node(n) && stage % (std::max(p.ep, 1) * n) == 0 && layer.hidden % (n * block_of(layer.ffn)) == 0;
    });
  // The experts of a pipeline stage are on the stage's own nodes.
  const int apart = p.nodes > 1 ? std::max(1, p.nodes / p.pp) : stage / p.esp;
  if (p.ep == 0)
    p.ep = largest(std::min<int64_t>(apart, layer.experts),
                   [&](int64_t n) { return layer.experts % n == 0 && stage % (n * p.esp) == 0; });
  require_divides(p.mp, split, "mp", p.cp > 1 ? "ranks of a stage / cp" : "ranks of a stage");
  require_divides(int64_t{p.ep} * p.esp, stage, "ep x esp", "ranks of a stage");
  if (p.dp == 0) p.dp = split / p.mp;
  if (p.edp == 0) p.edp = stage / (p.ep * p.esp);
  require<BadInput>(int64_t{p.dp} * p.mp == split, "dp x mp = {} x {}, expected {} ranks of a stage{}", p.dp, p.mp,
                    split, p.cp > 1 ? " / cp" : "");
  require<BadInput>(int64_t{p.ep} * p.esp * p.edp == stage,
                    "ep x esp x edp = {} x {} x {}, expected {} ranks of a stage", p.ep, p.esp, p.edp, stage);
}

}  // namespace

Registry<GatePart>& gate_parts() {
  static Registry<GatePart> parts(kGateParts);
  return parts;
}

Registry<Part>& order_parts() {
  static Registry<Part> parts(kOrderParts);
  return parts;
}

Registry<Part>& dispatcher_parts() {
  static Registry<Part> parts(kDispatcherParts);
  return parts;
}

Registry<FfnPart>& ffn_parts() {
  static Registry<FfnPart> parts(kFfnParts);
  return parts;
}

Registry<Part>& hook_parts() {
  static Registry<Part> parts(kHookParts);
  return parts;
}

Ffn ffn_from(std::string_view name, std::string_view where) { return find_named(ffn_parts(), name, where).ffn; }

void require_blocks(Ffn ffn, int64_t width, int shards, std::string_view name, std::string_view group) {
  const int64_t block = block_of(ffn);
  require<BadInput>(width % (block * shards) == 0,
                    "{}: found {} over {} = {}, expected a multiple of {} each for ffn {}", name, width, group, shards,
                    block, name_of(ffn));
}
std::string_view name_of(Norm norm) { return kNorms[norm].name; }
Norm norm_from(std::string_view name, std::string_view where) { return find_named(kNorms, name, where).value; }
std::string_view name_of(Rounding rounding) { return kRoundings[rounding].name; }
Rounding rounding_from(std::string_view name, std::string_view where) {
  return find_named(kRoundings, name, where).value;
}

std::string_view name_of(Recompute recompute) { return kRecomputes[recompute].name; }
Recompute recompute_from(std::string_view name, std::string_view where) {
  return find_named(kRecomputes, name, where).value;
}

std::string_view name_of(CpExchange exchange) { return kCpExchanges[exchange].name; }
CpExchange cp_exchange_from(std::string_view name, std::string_view where) {
  return find_named(kCpExchanges, name, where).value;
}

std::string_view name_of(Offload offload) { return kOffloads[offload].name; }
Offload offload_from(std::string_view name, std::string_view where) { return find_named(kOffloads, name, where).value; }

std::string_view placement_name(const ParallelShape& p) { return kPlacements[p.ep_inside ? 1 : 0].name; }
bool ep_inside_from(std::string_view name, std::string_view where) {
  return find_named(kPlacements, name, where).value;
}

DType wire_type(const LayerShape& layer) {
  return layer.hook == "bf16" && bytes_of(layer.dtype) > bytes_of(DType::bfloat16) ? DType::bfloat16 : layer.dtype;
}

const GatePart& gate_of(const LayerShape& layer) { return find_named(gate_parts(), layer.gate, "gate"); }

LayerCase part_case(LayerCase shape, int part) {
  shape.part = part;
  return shape;
}

// Parts of samples need a causal mask, because a part sees only itself and earlier parts, and a gate that chooses for
// each token separately: one that chooses among all tokens of the batch would need later parts.
static void check_parts(const LayerShape& layer, const ParallelShape& parallel) {
  require_positive(layer.parts, "parts");
  if (layer.parts == 1) return;
  require_divides(layer.parts, layer.seq, "parts", "seq");
  require<BadInput>(layer.causal, "parts: found {} without a causal mask, expected a causal layer or 1", layer.parts);
  require<BadInput>(parallel.cp == 1, "parts: found {} with cp = {}, expected one of them 1", layer.parts, parallel.cp);
  require<BadInput>(gate_of(layer).choices == Choices::top_k,
                    "parts: found {} with gate {}, which chooses among all tokens of a batch, expected 1", layer.parts,
                    layer.gate);
}

// Completes the widths of attention, and checks the widths, the window and the rotary positions.
static void complete_attention(LayerShape& layer) {
  if (layer.kv_heads == 0) layer.kv_heads = layer.heads;
  check_latent(layer);
  require<BadInput>(layer.head_dim >= 0, "head-dim: found {}, expected a whole number >= 1, or 0 for model-dim / heads",
                    layer.head_dim);
  require<BadInput>(is_latent(layer) || layer.head_dim > 0 || layer.model_dim % layer.heads == 0,
                    "heads = {} does not divide model-dim = {}: give the width of a head (head-dim)", layer.heads,
                    layer.model_dim);
  if (!is_latent(layer) && layer.head_dim == layer.model_dim / layer.heads && layer.model_dim % layer.heads == 0)
    layer.head_dim = 0;
  require_divides(layer.kv_heads, layer.heads, "kv-heads", "heads");
  require<BadInput>(layer.window >= 0, "window: found {}, expected a whole number >= 1, or 0 for none", layer.window);
  require<BadInput>(layer.window == 0 || layer.causal,
                    "window: found {} without a causal mask, expected a causal layer or 0, no window", layer.window);
  if (layer.window >= layer.seq) layer.window = 0;
  require<BadInput>(layer.rope_theta == 0 || layer.rope_theta > 1,
                    "rope-theta: found {}, expected a number > 1 or 0, none", layer.rope_theta);
  require<BadInput>(layer.rope_theta == 0 || !is_latent(layer) || layer.qk_rope_head_dim % 2 == 0,
                    "rope-theta: found a rotary part of heads {} wide, expected an even width: qk-rope-head-dim",
                    layer.qk_rope_head_dim);
  require<BadInput>(layer.rope_theta == 0 || is_latent(layer) || head_width(layer) % 2 == 0,
                    "rope-theta: found heads {} wide, expected an even width: head-dim, or model-dim / heads",
                    head_width(layer));
}

static void check_routing(const LayerShape& layer, const ParallelShape& parallel) {
  const int nodes = expert_nodes(parallel);
  require<BadInput>(layer.node_limit >= 0, "node-limit: found {}, expected a whole number >= 0", layer.node_limit);
  const int64_t groups = layer.router_groups > 0 ? layer.router_groups : nodes;
  require<BadInput>(layer.router_groups == 0 || layer.node_limit > 0,
                    "router-groups: found {} without node-limit, expected both", layer.router_groups);
  if (layer.router_groups > 0) require_divides(groups, layer.experts, "router-groups", "experts");
  require<BadInput>(layer.node_limit == 0 || layer.node_limit * (layer.experts / groups) >= layer.top_k,
                    "node-limit: found {} of {} {} with {} experts each, expected as many as hold top-k = {}",
                    layer.node_limit, groups, layer.router_groups > 0 ? "groups" : "nodes", layer.experts / groups,
                    layer.top_k);
}

LayerCase complete(LayerShape layer, ParallelShape parallel, Rounding rounding) {
  require_positive(layer.batch, "batch");
  require_positive(layer.seq, "seq");
  require_positive(layer.model_dim, "model-dim");
  require_positive(layer.hidden, "hidden");
  require<BadInput>(layer.shared_hidden >= 0, "shared-hidden: found {}, expected a whole number >= 0",
                    layer.shared_hidden);
  require_positive(layer.heads, "heads");
  gate_of(layer);
  find_named(order_parts(), layer.order, "order");
  find_named(dispatcher_parts(), layer.dispatcher, "dispatcher");
  find_named(hook_parts(), layer.hook, "hook");
  require_positive(parallel.nodes, "nodes");
  require_positive(parallel.ranks_per_node, "ranks per node");
  if (layer.experts == 0) layer.experts = parallel.nodes > 1 ? parallel.nodes : parallel.ranks_per_node;
  if (layer.norm == Norm::by_ffn) layer.norm = is_gated(layer.ffn) ? Norm::rmsnorm : Norm::layernorm;
  require<BadInput>(layer.aux_loss >= 0 && layer.z_loss >= 0, "aux-loss {}, z-loss {}: expected numbers >= 0",
                    layer.aux_loss, layer.z_loss);
  require_positive(layer.experts, "experts");
  complete_attention(layer);
  require<BadInput>(layer.top_k >= 1 && layer.top_k <= layer.experts, "top-k: found {}, expected 1 to experts = {}",
                    layer.top_k, layer.experts);
  require<BadInput>(!layer.capacity_factor || *layer.capacity_factor > 0,
                    "capacity-factor: found {}, expected a number > 0 or none", layer.capacity_factor.value_or(0));
  check_parts(layer, parallel);
  complete_parallel(parallel, layer);
  require_divides(parallel.ep, layer.experts, "ep", "experts");
  require_divides(parallel.esp, layer.hidden, "esp", "hidden");
  if (layer.shared_hidden > 0) require_divides(parallel.mp, layer.shared_hidden, "mp", "shared-hidden");
  check_blocks(layer, parallel);
  check_routing(layer, parallel);
  require<BadInput>(layer.heads >= parallel.mp, "heads = {} over mp = {}: every rank needs a head", layer.heads,
                    parallel.mp);
  LayerCase shape{std::move(layer), parallel, rounding};
  check_volumes(shape);
  require_divides(parallel.mp, mp_tokens(shape), "mp",
                  parallel.cp > 1         ? "batch x seq / cp"
                  : shape.layer.parts > 1 ? "batch x seq / parts"
                                          : "batch x seq");
  return shape;
}

int expert_nodes(const ParallelShape& p) {
  const int ranks_between = p.ep_inside ? 1 : p.esp;
  return std::clamp(p.ep * ranks_between / p.ranks_per_node, 1, p.ep);
}

std::string describe_groups(const ParallelShape& p) {
  const std::string cp = p.cp > 1 ? fmt::format(" CP {}{}", p.cp, p.ring_blocks() > 0 ? " (ring)" : "") : "";
  return fmt::format("DP {}{} MP {} EP {} ESP {} PP {}", p.dp, cp, p.mp, p.ep, p.esp, p.pp);
}

std::optional<std::string> offload_refusal(const LayerCase& c) {
  if (c.parallel.offload == Offload::none) return std::nullopt;
  if (c.layer.experts == 0) return "offload: found experts of a layer that has none, expected an MoE layer";
  if (in_fp8(c.layer.ffn))
    return fmt::format("offload: found experts of ffn {}, of which the device keeps FP8 copies, expected another",
                       name_of(c.layer.ffn));
  if (c.parallel.zero > 0 && c.parallel.edp > 1)
    return fmt::format(
        "offload: found ZeRO {}, by which {} ranks share the states of an expert, expected ZeRO 0 or edp 1",
        c.parallel.zero, c.parallel.edp);
  return std::nullopt;
}

void check_offload(const LayerCase& c) {
  if (const std::optional<std::string> refusal = offload_refusal(c)) throw Unsupported(*refusal);
}

std::string describe_states(const ParallelShape& p) {
  std::vector<std::string> states;
  if (p.zero > 0) states.push_back(fmt::format("ZeRO {}", p.zero));
  if (p.recompute != Recompute::none)
    states.emplace_back(p.recompute == Recompute::full ? "layers recomputed" : "scores recomputed");
  if (p.offload == Offload::experts) states.emplace_back("experts offloaded");
  return fmt::format("{}", fmt::join(states, ", "));
}

std::string describe(const LayerShape& l) {
  const std::string factor = l.capacity_factor ? fmt::format("{}", *l.capacity_factor) : "none";
  const std::string type = l.dtype == DType::float32 ? "" : fmt::format(" {}", name_of(l.dtype));
  const std::string shared = l.shared_hidden > 0 ? fmt::format(" S{}", l.shared_hidden) : "";
  const std::string parts = l.parts > 1 ? fmt::format("/{}", l.parts) : "";
  return fmt::format("B{} L{}{} M{} H{}{} E{} k{} f{} {}{}", l.batch, l.seq, parts, l.model_dim, l.hidden, shared,
                     l.experts, l.top_k, factor, name_of(l.ffn), type);
}

}  // namespace moe
