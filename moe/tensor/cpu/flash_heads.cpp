// FlashAttention (Dao et al. 2022) by LibTorch: computes the scores in blocks that stay in cache.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <cmath>
#include <vector>

#include "moe/tensor/attention_heads.h"
#include "moe/tensor/cpu/aten.h"

namespace moe {
namespace {

// Calls the kernel once per query head of a key-value head, because it requires equally many query and key-value heads.
class FlashHeads final : public AttentionHeads {
 public:
  explicit FlashHeads(const HeadsShape& shape)
      : shape_(shape),
        queries_(shape.heads / shape.kv_heads),
        scale_(1 / std::sqrt(static_cast<double>(shape.dim))),
        log_sums_(static_cast<size_t>(queries_)) {}

  void forward(const HeadInputs& in, TensorView out) override {
    const cpu::AtenCalls calls;
    for (int64_t query = 0; query < queries_; ++query) {
      auto [mixed, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
          aten_view(in.q, query), aten_view(in.k), aten_view(in.v), 0, shape_.causal, std::nullopt, scale_);
      aten_view(out, query).copy_(mixed);
      log_sums_[query] = log_sums;
    }
  }

  void backward(const HeadInputs& in, TensorView out, TensorView d_out, const HeadInputs& d) override {
    const cpu::AtenCalls calls;
    for (int64_t query = 0; query < queries_; ++query) {
      const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          aten_view(d_out, query), aten_view(in.q, query), aten_view(in.k), aten_view(in.v), aten_view(out, query),
          log_sums_[query], 0, shape_.causal, std::nullopt, scale_);
      aten_view(d.q, query).copy_(dq);
      if (query == 0) {
        aten_view(d.k).copy_(dk);
        aten_view(d.v).copy_(dv);
      } else {
        aten_view(d.k).add_(dk);
        aten_view(d.v).add_(dv);
      }
    }
  }

 private:
  // Returns a view (B, key-value heads, L, d); of query heads, it has the `query`-th of each key-value head.
  at::Tensor aten_view(TensorView t, int64_t query = 0) const {
    const int64_t width = t.size(1), step = width / shape_.kv_heads;
    return cpu::wrap(t.part(query * shape_.dim, {}),
                     {shape_.tokens / shape_.seq, shape_.kv_heads, shape_.seq, shape_.dim},
                     {shape_.seq * width, step, width, 1});
  }

  HeadsShape shape_;
  int64_t queries_;  // query heads that share one key-value head
  double scale_;
  std::vector<at::Tensor> log_sums_;  // by query, (B, key-value heads, L)
};

}  // namespace

std::unique_ptr<AttentionHeads> make_flash_heads(const HeadsShape& shape) {
  return std::make_unique<FlashHeads>(shape);
}

}  // namespace moe
