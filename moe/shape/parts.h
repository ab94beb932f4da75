#pragma once
// The implementations to choose from for each part of a layer: gate, order, dispatcher, experts, hook. A part's row
// here has the properties that planning needs: its name, which is the flag's value, and its effect on the plan. Its
// implementation has a row of the same name in moe/layer, next to the class that it creates; the compiler checks that
// both tables have the same names (same_names). A program adds its own parts with register_gate() and similar
// functions, which are declared next to those classes.
#include <array>
#include <cstdint>
#include <string_view>

#include "moe/base/registry.h"

namespace moe {

struct Part {
  std::string_view name, summary;
};

/// The number of a token's choices (pairs of expert and weight): top_k; one per expert; or one per row of every expert.
enum class Choices : uint8_t { top_k, experts, rows };

/// The formula of logits: x W_g; the same with noise; or cosines divided by a temperature.
enum class LogitsBy : uint8_t { product, noisy_product, cosine };

struct GatePart {
  std::string_view name, summary;
  Choices choices = Choices::top_k;
  LogitsBy logits = LogitsBy::product;

  /// Returns whether the gate fills all rows of every expert, whatever the tokens' logits are.
  constexpr bool fills_evenly() const { return choices != Choices::top_k; }
};

inline constexpr std::array<GatePart, 7> kGateParts{
    {{.name = "gshard",
      .summary = "noisy top-k: softmax over the k kept logits (GShard)",
      .logits = LogitsBy::noisy_product},
     {"switch", "top-k of a softmax over all logits (Switch Transformer)"},
     {"topk", "top-k: softmax over the k kept logits, without noise (Mixtral)"},
     {"sigmoid", "top-k, each weighed by its logit's sigmoid (BASE, StableMoE)"},
     {.name = "xmoe",
      .summary = "top-k of cosines in a low rank, with a learned temperature (X-MoE)",
      .logits = LogitsBy::cosine},
     {"softmoe", "every row of every expert a convex mix of all tokens (SoftMoE)", Choices::rows},
     {"expert-choice", "each expert takes its best tokens (Expert Choice)", Choices::experts}}};

inline constexpr std::array<Part, 2> kOrderParts{{{"gshard", "einsum with one-hot masks, dense GEMMs (GShard)"},
                                                  {"tutel", "sparse scatter and gather of the kept rows (Tutel)"}}};

inline constexpr std::array<Part, 3> kDispatcherParts{
    {{"alltoall", "one AlltoAll over the EP group"},
     {"1dh", "gather in the node, AlltoAll of the nodes' leaders, scatter (Hetu)"},
     {"2dh", "AlltoAll in the node, then between nodes (Tutel, DeepSpeed-MoE)"}}};

/// The kinds of expert networks; kinds that a program registers have larger numbers.
enum class Ffn { gpt, mixtral, gpt_tanh, mixtral_fp8 };

struct FfnPart {
  std::string_view name, summary;
  Ffn ffn;
  int gemms;            // GEMMs of one expert's forward: 2, or 3 with SwiGLU's W3
  bool in_fp8 = false;  // the GEMMs' inputs are FP8 numbers
};

inline constexpr std::array<FfnPart, 4> kFfnParts{
    {{"gpt", "two GEMMs with GELU", Ffn::gpt, 2},
     {"mixtral", "three GEMMs, SwiGLU", Ffn::mixtral, 3},
     {"gpt-tanh", "two GEMMs with tanh's GELU (GPT-2's own)", Ffn::gpt_tanh, 2},
     {"mixtral-fp8", "mixtral's; rows times weights in FP8 (e4m3, scales of 128 numbers)", Ffn::mixtral_fp8, 3, true}}};

inline constexpr std::array<Part, 2> kHookParts{{{"none", "dispatch and combine send rows as they are"},
                                                 {"bf16", "rows are rounded to bfloat16 around dispatch and combine"}}};

/// All known parts: those above, followed by those that the program has registered.
Registry<GatePart>& gate_parts();
Registry<Part>& order_parts();
Registry<Part>& dispatcher_parts();
Registry<FfnPart>& ffn_parts();
Registry<Part>& hook_parts();

}  // namespace moe
