#pragma once
// The fields of a layer, each declared once, in one row of a table. Flags and their help, the keys in files, records
// and plans, and the layer's part of a plan's hash are derived from these rows.
#include <algorithm>
#include <array>
#include <bitset>
#include <concepts>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "moe/base/config.h"
#include "moe/base/registry.h"
#include "moe/shape/shape.h"

namespace moe {

/// A field of a layer. `Value` is int64_t, double, bool, std::string (the name of a part), an enum, or
/// std::optional<double>, whose empty value is "none" in files and flags.
template <class Value>
struct LayerField {
  std::string_view key;  // in files, records and plans; its flag is --KEY with hyphens, or --no-KEY if on by default
  Value LayerShape::*member;
  std::string_view help;  // help of the flag; the default is appended unless the text states one
  std::string_view type = "N";
  Limits limits = {};                                                      // limits of a number
  Value (*from)(std::string_view name, std::string_view where) = nullptr;  // reads a value from its name
  bool optional = false;       // records, plans and the hash omit the field if it has its default
  std::string_view mark = {};  // text that is hashed before the value of an optional field
  bool stated = false;         // model files include the field even if it has its default
  bool planned_only = false;   // commands that run layers do not have this flag

  std::string flag() const {
    std::string words(key);
    std::ranges::replace(words, '_', '-');
    if constexpr (std::same_as<Value, bool>)
      if (LayerShape{}.*member) words.insert(0, "no-");
    return "--" + words;
  }

  static constexpr bool is_name = std::is_enum_v<Value> || std::same_as<Value, std::string>;
};

inline constexpr double kMaxWidth = 1 << 30;  // limit of each width; check_volumes limits their products
inline constexpr Limits kWidthLimits{.min = 1, .max = kMaxWidth};
inline constexpr Limits kOptionalWidthLimits{.min = 0, .max = kMaxWidth};
inline constexpr double kMaxParts = 64;
inline constexpr Limits kFactorLimits{.max = 1e6, .above = 0};
inline constexpr Limits kLossLimits{.min = 0, .max = 1e3};

/// Returns `name` if a part in `parts()` has it. Throws BadInput listing the known names otherwise.
template <auto parts>
std::string part_from(std::string_view name, std::string_view where) {
  return std::string(find_named(parts(), name, where).name);
}

/// The order is that of --help and of the hash. A new field is `optional`, so that plans without it keep their hash.
inline constexpr std::tuple kLayerFields{
    LayerField<int64_t>{
        .key = "batch", .member = &LayerShape::batch, .help = "samples of one MP group (B)", .limits = kWidthLimits},
    LayerField<int64_t>{
        .key = "seq", .member = &LayerShape::seq, .help = "tokens a sample (L)", .limits = kWidthLimits},
    LayerField<int64_t>{
        .key = "model_dim", .member = &LayerShape::model_dim, .help = "embedding size (M)", .limits = kWidthLimits},
    LayerField<int64_t>{
        .key = "hidden", .member = &LayerShape::hidden, .help = "expert hidden size (H)", .limits = kWidthLimits},
    LayerField<int64_t>{.key = "shared_hidden",
                        .member = &LayerShape::shared_hidden,
                        .help = "hidden size of an expert that every token passes; default: 0, none",
                        .limits = kOptionalWidthLimits,
                        .optional = true},
    LayerField<int64_t>{
        .key = "heads", .member = &LayerShape::heads, .help = "attention heads", .limits = kWidthLimits},
    LayerField<int64_t>{.key = "kv_heads",
                        .member = &LayerShape::kv_heads,
                        .help = "key-value heads; default: heads",
                        .limits = kWidthLimits},
    LayerField<int64_t>{.key = "head_dim",
                        .member = &LayerShape::head_dim,
                        .help = "width of a head; default: 0, model-dim / heads",
                        .limits = kOptionalWidthLimits,
                        .optional = true,
                        .mark = "head_dim"},
    LayerField<int64_t>{
        .key = "window",
        .member = &LayerShape::window,
        .help = "size of a sliding window: tokens that a token sees, itself included; default: 0, all before it",
        .limits = kOptionalWidthLimits,
        .optional = true,
        .mark = "window"},
    LayerField<int64_t>{.key = "parts",
                        .member = &LayerShape::parts,
                        .help = "parts that each sample is cut into, which follow each other as micro-batches do; "
                                "default: 1",
                        .limits = {.min = 1, .max = kMaxParts},
                        .optional = true,
                        .mark = "parts"},
    LayerField<int64_t>{.key = "first_stage_layers",
                        .member = &LayerShape::first_stage_layers,
                        .help = "layers of the first pipeline stage; default: 0, as many as the other stages",
                        .limits = kOptionalWidthLimits,
                        .optional = true,
                        .mark = "first_stage_layers"},
    LayerField<int64_t>{.key = "last_stage_layers",
                        .member = &LayerShape::last_stage_layers,
                        .help = "layers of the last pipeline stage; default: 0, as many as the other stages",
                        .limits = kOptionalWidthLimits,
                        .optional = true,
                        .mark = "last_stage_layers"},
    LayerField<int64_t>{.key = "q_lora_rank",
                        .member = &LayerShape::q_lora_rank,
                        .help = "rank to which latent attention compresses queries; default: 0, not compressed",
                        .limits = kOptionalWidthLimits,
                        .optional = true,
                        .mark = "q_lora_rank"},
    LayerField<int64_t>{.key = "kv_lora_rank",
                        .member = &LayerShape::kv_lora_rank,
                        .help = "rank of latent attention's keys and values (MLA); default: 0, attention is not latent",
                        .limits = kOptionalWidthLimits,
                        .optional = true,
                        .mark = "kv_lora_rank"},
    LayerField<int64_t>{.key = "qk_nope_head_dim",
                        .member = &LayerShape::qk_nope_head_dim,
                        .help = "of latent attention: width of a head of queries and keys without positions",
                        .limits = kOptionalWidthLimits,
                        .optional = true,
                        .mark = "qk_nope_head_dim"},
    LayerField<int64_t>{
        .key = "qk_rope_head_dim",
        .member = &LayerShape::qk_rope_head_dim,
        .help = "of latent attention: width of a head's part with rotary positions, whose key all heads share",
        .limits = kOptionalWidthLimits,
        .optional = true,
        .mark = "qk_rope_head_dim"},
    LayerField<int64_t>{.key = "v_head_dim",
                        .member = &LayerShape::v_head_dim,
                        .help = "of latent attention: width of a head of values",
                        .limits = kOptionalWidthLimits,
                        .optional = true,
                        .mark = "v_head_dim"},
    LayerField<double>{.key = "rope_theta",
                       .member = &LayerShape::rope_theta,
                       .help = "base of rotary positions; default: 0, none",
                       .limits = {.min = 0, .max = 1e12},
                       .optional = true},
    LayerField<int64_t>{.key = "experts",
                        .member = &LayerShape::experts,
                        .help = "number of experts (E); default: one a node, on one node one a rank",
                        .limits = kWidthLimits},
    LayerField<int64_t>{
        .key = "top_k", .member = &LayerShape::top_k, .help = "experts a token (k)", .limits = kWidthLimits},
    LayerField<std::optional<double>>{.key = "capacity_factor",
                                      .member = &LayerShape::capacity_factor,
                                      .help = "capacity factor (f); none: dropless",
                                      .type = "F|none",
                                      .limits = kFactorLimits,
                                      .stated = true},
    LayerField<double>{.key = "aux_loss",
                       .member = &LayerShape::aux_loss,
                       .help = "coefficient of the gate's load-balancing loss; default: 0",
                       .limits = kLossLimits},
    LayerField<double>{.key = "z_loss",
                       .member = &LayerShape::z_loss,
                       .help = "coefficient of the gate's z loss; default: 0",
                       .limits = kLossLimits},
    LayerField<Ffn>{.key = "ffn",
                    .member = &LayerShape::ffn,
                    .help = "kind of expert",
                    .type = "FFN",
                    .from = ffn_from,
                    .stated = true},
    LayerField<Norm>{.key = "norm",
                     .member = &LayerShape::norm,
                     .help = "norms before attention and the MoE part; default: rmsnorm with mixtral, else layernorm; "
                             "post-layernorm: norms after the residual sums (BERT)",
                     .type = "layernorm|rmsnorm|post-layernorm|none",
                     .from = norm_from},
    LayerField<DType>{.key = "dtype",
                      .member = &LayerShape::dtype,
                      .help = "type of activations and weights",
                      .type = "float32|float16|bfloat16|float64",
                      .from = dtype_from,
                      .stated = true},
    LayerField<std::string>{.key = "gate",
                            .member = &LayerShape::gate,
                            .help = "which experts a token goes to",
                            .type = "GATE",
                            .from = part_from<gate_parts>},
    LayerField<std::string>{.key = "order",
                            .member = &LayerShape::order,
                            .help = "how rows are permuted to the experts' order",
                            .type = "ORDER",
                            .from = part_from<order_parts>},
    LayerField<std::string>{.key = "dispatcher",
                            .member = &LayerShape::dispatcher,
                            .help = "how rows are exchanged",
                            .type = "DISPATCHER",
                            .from = part_from<dispatcher_parts>},
    LayerField<std::string>{.key = "hook",
                            .member = &LayerShape::hook,
                            .help = "function that is applied to rows before and after they are sent",
                            .type = "HOOK",
                            .from = part_from<hook_parts>},
    LayerField<bool>{.key = "residual",
                     .member = &LayerShape::residual,
                     .help = "removes the residual connections around attention and the MoE part"},
    LayerField<bool>{
        .key = "causal",
        .member = &LayerShape::causal,
        .help = "removes the causal mask: a token sees its whole sample, and models learn masked tokens (BERT)",
        .optional = true,
        .mark = "not causal"},
    LayerField<bool>{.key = "bias",
                     .member = &LayerShape::bias,
                     .help = "attention, experts and LayerNorms have biases (GPT-2)",
                     .optional = true,
                     .mark = "bias"},
    LayerField<int64_t>{.key = "node_limit",
                        .member = &LayerShape::node_limit,
                        .help = "largest number of nodes, or router groups, with a token's experts; default: no limit",
                        .limits = kWidthLimits,
                        .optional = true,
                        .mark = "node_limit",
                        .planned_only = true},
    LayerField<int64_t>{.key = "router_groups",
                        .member = &LayerShape::router_groups,
                        .help = "groups of experts of the router, for node-limit; default: one per node",
                        .limits = kWidthLimits,
                        .optional = true,
                        .mark = "router_groups",
                        .planned_only = true}};

/// Calls visit(field) for each row, in order.
template <class Visit>
constexpr void for_each_layer_field(Visit visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, kLayerFields);
}

inline constexpr size_t kLayerFieldCount = std::tuple_size_v<decltype(kLayerFields)>;

/// The keys of all fields.
inline constexpr auto kLayerKeys =
    std::apply([](const auto&... fields) { return std::array{fields.key...}; }, kLayerFields);

/// The fields of a layer that flags set, with their values; all other fields are absent.
class PartialLayerFields {
 public:
  template <class Value>
  void set(Value LayerShape::*member, std::type_identity_t<Value> value) {
    values_.*member = std::move(value);
    given_.set(index_of(member));
  }
  template <class Value>
  std::optional<Value> get(Value LayerShape::*member) const {
    if (!given_[index_of(member)]) return std::nullopt;
    return std::optional<Value>(std::in_place, values_.*member);
  }
  /// Sets these fields in `layer`.
  void apply_to(LayerShape& layer) const {
    for_each_layer_field([&](const auto& field) {
      if (const auto value = get(field.member)) layer.*field.member = *value;
    });
  }
  /// Sets the fields that `others` has. A field that is set here already changes only if `over_given`.
  void take(const PartialLayerFields& others, bool over_given) {
    for_each_layer_field([&](const auto& field) {
      const auto value = others.get(field.member);
      if (value && (over_given || !get(field.member))) set(field.member, *value);
    });
  }
  bool operator==(const PartialLayerFields&) const = default;

 private:
  template <class Value>
  static size_t index_of(Value LayerShape::*member) {
    size_t index = 0, found = kLayerFieldCount;
    for_each_layer_field([&](const auto& field) {
      if constexpr (std::same_as<std::remove_cv_t<decltype(field.member)>, Value LayerShape::*>)
        if (field.member == member) found = index;
      ++index;
    });
    return found;
  }

  LayerShape values_;
  std::bitset<kLayerFieldCount> given_;
};

}  // namespace moe
