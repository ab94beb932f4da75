#include "moe/layer/gates/top_k.h"

#include <algorithm>
#include <utility>

namespace moe {
namespace {

// Finds the k best. Not-a-numbers are never moved up, so that every slot holds some expert, each once.
template <class T>
void choose(const T* logits, int64_t experts, int32_t* best, int64_t k) {
  for (int64_t e = 0; e < experts; ++e) {
    if (e >= k && !(logits[e] > logits[best[k - 1]])) continue;
    int64_t at = std::min(e, k - 1);
    best[at] = static_cast<int32_t>(e);
    for (; at > 0 && logits[best[at]] > logits[best[at - 1]]; --at) std::swap(best[at], best[at - 1]);
  }
}

}  // namespace

template <class T>
void choose_top_k(const T* logits, int64_t stride, Routing& r) {
  if (!r.preset)
    for (int64_t t = 0; t < r.tokens; ++t)
      choose(logits + t * stride, r.experts, r.expert.data() + t * r.choices, r.choices);
  assign_rows(r);
}

template void choose_top_k(const float*, int64_t, Routing&);
template void choose_top_k(const double*, int64_t, Routing&);

}  // namespace moe
