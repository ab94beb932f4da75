#include "moe/shape/volumes.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "moe/base/check.h"

namespace moe {
namespace {

double bytes_per_element(const LayerCase& c) { return bytes_of(c.layer.dtype); }

// Checks that a product of factors, each at least 1, is at most kMaxBytes.
void check_product(std::string_view what, std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  bool counted = true;
  for (const int64_t factor : factors)
    counted = counted && !__builtin_mul_overflow(product, factor, &product) && product <= kMaxBytes;
  if (counted) return;
  std::string found;
  for (const int64_t factor : factors) found += fmt::format("{}{}", found.empty() ? "" : " x ", factor);
  bad_input("{}: found {}, expected a product of at most {}", what, found, kMaxBytes);
}

// Returns the number of columns in the largest of `parts` shards of M columns.
int64_t columns(const LayerCase& c, int parts) { return (c.layer.model_dim + parts - 1) / parts; }

}  // namespace

void check_volumes(const LayerCase& c) {
  const LayerShape& l = c.layer;
  const int64_t bytes = bytes_of(l.dtype);
  check_product("batch x seq x model-dim x bytes of an element", {l.batch, l.seq, l.model_dim, bytes});
  check_product("experts x model-dim x bytes of an element", {l.experts, l.model_dim, bytes});
  check_product("heads x batch x seq x seq", {l.heads, l.batch, l.seq, l.seq});
  check_product("top-k x batch x seq", {l.top_k, l.batch, l.seq});
  check_product("mp x experts", {c.parallel.mp, l.experts});
  const Heads most = max_heads(c);
  check_product("weights of attention (2 x model-dim x a head's x a rank's heads of q and kv) x bytes of an element",
                {2, l.model_dim, head_width(l), most.query + most.key_value, bytes});
  check_product("batch x seq x heads x head-dim x bytes of an element",
                {l.batch, l.seq, l.heads, head_width(l), bytes});
  if (is_latent(l)) {
    check_product("model-dim x v-head-dim x heads x bytes of an element", {l.model_dim, l.v_head_dim, l.heads, bytes});
    check_product(
        "weights of latent attention ((q-lora-rank + kv-lora-rank + qk-rope-head-dim) x (model-dim + heads x "
        "all widths of a head)) x bytes of an element",
        {l.q_lora_rank + l.kv_lora_rank + l.qk_rope_head_dim, l.model_dim + l.heads * (head_width(l) + l.v_head_dim),
         bytes});
    check_product("batch x seq x heads x v-head-dim x bytes of an element",
                  {l.batch, l.seq, l.heads, l.v_head_dim, bytes});
    check_product("batch x seq x (q-lora-rank + kv-lora-rank) x bytes of an element",
                  {l.batch, l.seq, l.q_lora_rank + l.kv_lora_rank, bytes});
  }
  check_product("weights of a rank's experts (experts x GEMMs x model-dim x hidden) x bytes of an element",
                {l.experts / c.parallel.ep, gemms_of(l.ffn), l.model_dim, l.hidden / c.parallel.esp, bytes});
  if (l.shared_hidden > 0)
    check_product("weights of the shared expert (GEMMs x model-dim x shared-hidden) x bytes of an element",
                  {gemms_of(l.ffn), l.model_dim, l.shared_hidden / c.parallel.mp, bytes});
  const double rows = capacity_exact(c);
  require<BadInput>(rows * static_cast<double>(l.experts * l.model_dim * bytes) <= static_cast<double>(kMaxBytes),
                    "capacity-factor: found {} x top-k {} x batch {} x seq {}, {:.3g} rows an expert of model-dim {}, "
                    "expected at most {} bytes in all",
                    l.capacity_factor.value_or(1), l.top_k, l.batch, l.seq, rows, l.model_dim, kMaxBytes);
}

Rows chunk_rows(int64_t total, int chunks, int chunk) {
  const int64_t base = total / chunks, longer = total % chunks;
  const int64_t begin = chunk * base + std::min<int64_t>(chunk, longer);
  return {begin, begin + base + (chunk < longer ? 1 : 0)};
}

double capacity_exact(const LayerCase& c) {
  const LayerShape& l = c.layer;
  if (l.experts == 0) return 0;
  const double pairs =
      static_cast<double>(l.top_k) * l.capacity_factor.value_or(1.0) * static_cast<double>(mp_tokens(c));
  return pairs / static_cast<double>(c.parallel.mp * l.experts);
}

int64_t capacity_rows(const LayerCase& c) {
  // The factor 1 - 1e-12 keeps 2.4 * 5 from becoming 13 by a rounding error of the product.
  constexpr double kBelow = 1 - 1e-12;
  const LayerShape& l = c.layer;
  if (l.experts == 0) return 0;
  const auto up = static_cast<int64_t>(std::ceil(capacity_exact(c) * kBelow));
  if (c.rounding == Rounding::deepspeed) return std::max<int64_t>(4, up);
  if (c.rounding != Rounding::tutel || !l.capacity_factor) return std::max<int64_t>(1, up);
  const int64_t tokens = mp_tokens(c) / c.parallel.mp, an_expert = (tokens + l.experts - 1) / l.experts;
  const double one = std::floor(*l.capacity_factor * static_cast<double>(an_expert) / kBelow);
  return std::max<int64_t>(1, l.top_k * static_cast<int64_t>(one));
}

int64_t padded_rows(const LayerCase& c, int64_t rows) {
  return (rows + c.row_multiple - 1) / c.row_multiple * c.row_multiple;
}

int64_t padded_rows(const LayerCase& c) { return padded_rows(c, capacity_rows(c)); }

double planned_rows(const LayerCase& c) {
  return c.rounding == Rounding::exact ? capacity_exact(c) : static_cast<double>(padded_rows(c));
}

bool pads_to_largest_load(const LayerCase& c) {
  return !c.layer.capacity_factor &&
         (c.rounding == Rounding::tutel || c.rounding == Rounding::deepspeed || c.rounding == Rounding::lcm);
}

double places_reached(int64_t experts, int64_t places, int64_t allowed, int64_t top_k) {
  const int64_t of_a_place = experts / places;
  double missed = 1;  // C(experts of the other places, k) / C(experts of all places, k)
  for (int64_t i = 0; i < top_k; ++i)
    missed *= std::max(
        0.0, static_cast<double>(of_a_place * (allowed - 1) - i) / static_cast<double>(of_a_place * allowed - i));
  return static_cast<double>(allowed) * (1 - missed);
}

int64_t places_allowed(const LayerShape& l, int64_t places) {
  if (l.node_limit == 0) return places;
  const int64_t groups = l.router_groups;
  int64_t places_of_a_group = 1;
  if (groups > 0 && groups % places != 0)  // the group may begin inside a place and extend into others
    places_of_a_group = (places + groups - 1) / groups + (places % groups == 0 ? 0 : 1);
  return std::min(places, l.node_limit * places_of_a_group);
}

double nodes_reached(const LayerCase& c) {
  const int64_t nodes = expert_nodes(c.parallel);
  return places_reached(c.layer.experts, nodes, places_allowed(c.layer, nodes), c.layer.top_k);
}

MoeVolumes moe_volumes(const LayerCase& c, double rows) {
  const double elements = rows * static_cast<double>(c.layer.experts * c.layer.model_dim);
  MoeVolumes v;
  v.alltoall_bytes = elements * bytes_per_element(c);
  v.gathered_bytes = v.alltoall_bytes * c.parallel.esp;
  v.expert_flops = kFlopsPerMac * gemms_of(c.layer.ffn) * elements * static_cast<double>(c.layer.hidden);
  return v;
}

Heads max_heads(const LayerCase& c) {
  const auto share = [&](int64_t heads) { return (heads + c.parallel.mp - 1) / c.parallel.mp; };
  const LayerShape& l = c.layer;
  const int64_t kv = share(l.kv_heads);
  return {l.kv_heads < c.parallel.mp ? share(l.heads) : kv * (l.heads / l.kv_heads), kv};
}

HeadColumns head_columns(const LayerShape& l, const Heads& heads) {
  return {heads.query * head_width(l), heads.key_value * head_width(l), heads.key_value * value_width(l),
          heads.query * value_width(l)};
}

HeadColumns max_columns(const LayerCase& c) { return head_columns(c.layer, max_heads(c)); }

std::array<Projection, 5> projections(const LayerShape& l, const Heads& heads) {
  const HeadColumns columns = head_columns(l, heads);
  const int64_t dim = l.model_dim;
  if (!is_latent(l))
    return {{{dim, columns.query}, {dim, columns.key, true}, {dim, columns.value, true}, {columns.mixed, dim}, {}}};
  const bool compressed = l.q_lora_rank > 0;
  const Projection to_query_latent{compressed ? dim : 0, l.q_lora_rank, false, true};
  return {{to_query_latent,
           {dim, l.kv_lora_rank + l.qk_rope_head_dim, true, true},
           {compressed ? l.q_lora_rank : dim, columns.query},
           {l.kv_lora_rank, heads.key_value * l.qk_nope_head_dim + columns.value, true},
           {columns.mixed, dim}}};
}

// Returns the number of weights of the projections for which `chosen` is true.
template <class Chosen>
static int64_t weights_of(const LayerShape& l, const Heads& heads, Chosen chosen) {
  int64_t weights = 0;
  for (const Projection& p : projections(l, heads))
    if (chosen(p)) weights += p.elements();
  return weights;
}

double attention_flops(const LayerCase& c) {
  const int64_t weights = weights_of(c.layer, max_heads(c), [](const Projection&) { return true; });
  return kFlopsPerMac * static_cast<double>(mp_tokens(c)) * static_cast<double>(weights) + scores_flops(c);
}

// Returns twice the mean number of tokens that a token of a causal pass sees, which is L for whole samples without a
// window. Token i sees i tokens, but at most the W tokens of the window.
static double seen_tokens(const LayerCase& c) {
  const LayerShape& l = c.layer;
  const double tokens = static_cast<double>(l.seq / l.parts), first = c.part * tokens;
  const auto window = static_cast<double>(l.window);
  const auto seen_before = [&](double n) {
    return l.window == 0 ? n * n : n < window ? n * (n + 1) : (2 * n - window + 1) * window;
  };
  return std::min((2 * c.part + 1) * tokens, (seen_before(first + tokens) - seen_before(first)) / tokens);
}

double scores_flops(const LayerCase& c) {
  const double pairs = static_cast<double>(mp_tokens(c)) * seen_tokens(c);
  const HeadColumns columns = max_columns(c);
  return kFlopsPerMac * pairs * static_cast<double>(columns.query + columns.mixed);
}

double keys_values_flops(const LayerCase& c) {
  const int64_t weights = weights_of(c.layer, max_heads(c), [](const Projection& p) { return p.of_keys; });
  return kFlopsPerMac * static_cast<double>(mp_tokens(c)) * static_cast<double>(weights);
}

double out_flops(const LayerCase& c) {
  return kFlopsPerMac * static_cast<double>(mp_tokens(c)) *
         static_cast<double>(max_columns(c).mixed * c.layer.model_dim);
}

double cp_bytes(const LayerCase& c) {
  const HeadColumns columns = max_columns(c);
  return static_cast<double>(c.layer.batch * c.layer.seq) * static_cast<double>(columns.key + columns.value) *
         bytes_per_element(c);
}

double mp_bytes(const LayerCase& c) {
  return static_cast<double>(mp_tokens(c) * c.layer.model_dim) * bytes_per_element(c);
}

int64_t attention_parameters(const LayerCase& c) {
  return weights_of(c.layer, max_heads(c), [](const Projection& p) { return !p.is_replicated; });
}

int64_t latent_parameters(const LayerShape& l) {
  return weights_of(l, {}, [](const Projection& p) { return p.is_replicated; }) + l.q_lora_rank + l.kv_lora_rank;
}

int64_t shared_parameters(const LayerCase& c) {
  return gemms_of(c.layer.ffn) * c.layer.model_dim * (c.layer.shared_hidden / c.parallel.mp);
}

double shared_flops(const LayerCase& c) {
  return kFlopsPerMac * static_cast<double>(mp_tokens(c)) * static_cast<double>(shared_parameters(c));
}

int64_t attention_biases(const LayerCase& c) {
  if (!c.layer.bias) return 0;
  const Heads most = max_heads(c);
  return (most.query + 2 * most.key_value) * head_width(c.layer) + columns(c, c.parallel.mp);
}

int64_t dense_biases(const LayerCase& c) {
  const LayerShape& l = c.layer;
  if (!l.bias || l.shared_hidden == 0) return attention_biases(c);
  return attention_biases(c) + (gemms_of(l.ffn) - 1) * (l.shared_hidden / c.parallel.mp) + columns(c, c.parallel.mp);
}

int64_t expert_biases(const LayerCase& c) {
  const LayerShape& l = c.layer;
  if (!l.bias) return 0;
  return l.experts / c.parallel.ep * ((gemms_of(l.ffn) - 1) * (l.hidden / c.parallel.esp) + columns(c, c.parallel.esp));
}

int64_t norm_parameters(const LayerShape& l) {
  if (l.norm == Norm::none) return 0;
  return l.bias && l.norm != Norm::rmsnorm ? 2 * l.model_dim : l.model_dim;
}

int64_t cosine_rank(const LayerShape& l) { return std::min(l.model_dim, std::max<int64_t>(16, l.experts / 2)); }

int64_t gate_parameters(const LayerCase& c) {
  const LayerShape& l = c.layer;
  if (l.experts == 0) return 0;
  const GatePart& gate = gate_of(l);
  if (gate.logits == LogitsBy::cosine) return cosine_rank(l) * (l.model_dim + l.experts) + 1;
  const int64_t logits = gate.choices == Choices::rows ? l.experts * capacity_rows(c) : l.experts;
  return (gate.logits == LogitsBy::noisy_product ? 2 : 1) * logits * l.model_dim;
}

int64_t choices_of(const LayerCase& c) {
  const LayerShape& l = c.layer;
  switch (gate_of(l).choices) {
    case Choices::top_k:
      return l.top_k;
    case Choices::experts:
      return l.experts;
    case Choices::rows:
      return l.experts * capacity_rows(c);
  }
  return 0;
}

int64_t gradient_bytes(const LayerCase& c) {
  return (attention_parameters(c) + shared_parameters(c) + dense_biases(c)) * bytes_of(c.layer.dtype);
}

int64_t expert_gradient_bytes(const LayerCase& c) {
  const LayerShape& l = c.layer;
  const int64_t weights = l.experts / c.parallel.ep * gemms_of(l.ffn) * l.model_dim * (l.hidden / c.parallel.esp);
  return (weights + expert_biases(c)) * bytes_of(l.dtype);
}

double step_flops(const LayerCase& shape, const ModelDepth& depth) {
  const LayerShape& l = shape.layer;
  const auto width = static_cast<double>(l.model_dim);
  const int whole = l.window > 0 ? depth.whole.count(0, depth.layers) : depth.layers;
  const auto seen =  // the mean over layers
      static_cast<double>(whole * l.seq + (depth.layers - whole) * std::min(l.window, l.seq)) / depth.layers;
  const auto weights = weights_of(l, {l.heads, l.kv_heads}, [](const Projection&) { return true; });
  const double attention =
      static_cast<double>(weights) + seen * static_cast<double>(attention_width(l) + attention_output_width(l));
  const double gate = width * static_cast<double>(l.experts);
  const double experts = gemms_of(l.ffn) * width * static_cast<double>(l.top_k * l.hidden + l.shared_hidden);
  const int dense = depth.dense.count(0, depth.layers);
  double macs = (depth.layers - dense) * (attention + gate + experts) + width * static_cast<double>(depth.vocabulary);
  if (dense > 0) macs += dense * (attention + gemms_of(l.ffn) * width * static_cast<double>(depth.dense.hidden));
  const double tokens = static_cast<double>(mp_tokens(shape) * shape.parallel.replicas()) * depth.micro_batches;
  return 3 * kFlopsPerMac * macs * tokens;
}

}  // namespace moe
