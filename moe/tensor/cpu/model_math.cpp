// Computations of a model outside its layers, on the CPU: embedding, cross-entropy, steps of weights.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "moe/base/numbers.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"
#include "moe/tensor/element.h"

namespace moe {
namespace {

// The largest logit of a token, and the sum of exp(logit - largest), over the whole vocabulary.
struct Softmax {
  double largest = 0, sum = 0;
};

const double* sums_of(TensorView sums, int64_t part, int64_t token) {
  return sums.as<double>() + (part * sums.size(1) + token) * kSoftmaxSums;
}

Softmax softmax_over_parts(TensorView sums, int64_t token) {
  Softmax all{.largest = sums_of(sums, 0, token)[0]};
  for (int64_t part = 1; part < sums.size(0); ++part)
    all.largest = std::max(all.largest, sums_of(sums, part, token)[0]);
  for (int64_t part = 0; part < sums.size(0); ++part) {
    const double* own = sums_of(sums, part, token);
    all.sum += own[1] * std::exp(own[0] - all.largest);
  }
  return all;
}

// Replaces logits by probabilities within this part of the vocabulary. The sum of exp(logit - largest) is the inverse
// of the largest probability, which avoids a second pass of exponentials.
template <class T>
void softmax_sums_of(TensorView logits, const Targets& targets, double* sums) {
  T* rows = logits.as<T>();
  const int64_t tokens = logits.size(0), words = logits.size(1);
  std::vector<int64_t> most(tokens);
  parallel_for(tokens, words * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = rows + i * words;
      const T* top = std::max_element(row, row + words);
      most[i] = top - row;
      const int64_t target = targets.target[i] - targets.first;
      double* own = sums + i * kSoftmaxSums;
      own[0] = static_cast<double>(*top);
      own[2] = target >= 0 && target < words ? static_cast<double>(row[target]) : 0;
    }
  });
  softmax_rows(logits);
  for (int64_t i = 0; i < tokens; ++i) sums[i * kSoftmaxSums + 1] = 1 / static_cast<double>(rows[i * words + most[i]]);
}

// Replaces probabilities within this part by the gradient of the logits: (p - [target]) / counted, where p is the
// probability within the whole vocabulary.
template <class T>
void cross_entropy_backward_of(TensorView probabilities, const Targets& targets, TensorView sums, int part,
                               double counted) {
  const int64_t words = probabilities.size(1);
  parallel_for(probabilities.size(0), words * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = probabilities.as<T>() + i * words;
      if (targets.target[i] < 0) {
        std::fill_n(row, words, T(0));
        continue;
      }
      const Softmax all = softmax_over_parts(sums, i);
      const double* own = sums_of(sums, part, i);
      const auto share = static_cast<T>(own[1] * std::exp(own[0] - all.largest) / all.sum / counted);
      for (int64_t j = 0; j < words; ++j) row[j] *= share;
      const int64_t target = targets.target[i] - targets.first;
      if (target >= 0 && target < words) row[target] -= static_cast<T>(1 / counted);
    }
  });
}

// Calls body(i, index in the tensor) for each i in [begin, end), where i counts the selected elements.
template <class Body>
void for_each_own(const ElementSelection& own, int64_t begin, int64_t end, Body body) {
  while (begin < end) {
    const int64_t run = begin / own.count, last = std::min(end, (run + 1) * own.count);
    const int64_t ahead = run * (own.every - own.count) + own.first;
    for (; begin < last; ++begin) body(begin, begin + ahead);
  }
}

// These return the value of a weight after the step. They compute in float64, so that each state is rounded only once.
template <class S>
double sgd_step(const WeightStep& at, double weight, double gradient, S* velocity) {
  double change = gradient + at.decay * weight;
  if (velocity) {
    change += at.momentum * static_cast<double>(*velocity);
    *velocity = static_cast<S>(change);
  }
  return weight - at.rate * change;
}

template <class S>
double adamw_step(const WeightStep& at, double weight, double g, std::pair<S*, S*> means) {
  const double m = at.beta1 * static_cast<double>(*means.first) + (1 - at.beta1) * g;
  const double v = at.beta2 * static_cast<double>(*means.second) + (1 - at.beta2) * g * g;
  *means.first = static_cast<S>(m);
  *means.second = static_cast<S>(v);
  const double kept = weight - at.rate * at.decay * weight;
  return kept - at.rate * (m / at.correction1) / (std::sqrt(v / at.correction2) + at.epsilon);
}

template <class W, class G>
void step_elements(const WeightStep& at, double scale) {
  using S = Accumulator<W>;
  S* first = at.first.as<S>();
  S* second = at.second.as<S>();
  const G* gradients = at.gradient.as<G>();
  const auto step_of = [&](int64_t i, int64_t place) {
    S& stepped = std::is_same_v<W, S> ? at.value.as<S>()[place] : at.master.as<S>()[i];
    const auto weight = static_cast<double>(stepped), g = static_cast<double>(widened(gradients[place])) * scale;
    const double moved = at.kind == OptimizerKind::sgd ? sgd_step(at, weight, g, first ? first + i : nullptr)
                                                       : adamw_step(at, weight, g, std::pair(first + i, second + i));
    stepped = static_cast<S>(moved);
    if constexpr (!std::is_same_v<W, S>) round_to(stepped, at.value.as<W>()[place]);
  };
  const ElementSelection own = explicit_selection(at.own, at.value);
  parallel_for(count_of(own, at.value), 4 * int64_t{sizeof(S)},
               [&](int64_t begin, int64_t end) { for_each_own(own, begin, end, step_of); });
}

}  // namespace

void look_up(TensorView table, const TokenRows& rows, TensorView out, Into into) {
  const int64_t width = table.size(1);
  with_element(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(rows.tokens, width * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = rows.row[i] < 0 ? nullptr : table.as<T>() + rows.row[i] * width;
        T* to = out.as<T>() + i * width;
        if (into == Into::overwrite && row)
          std::copy_n(row, width, to);
        else if (into == Into::overwrite)
          std::fill_n(to, width, T(0));
        else if (row)
          add_scaled(row, T(1), to, width);
      }
    });
  });
}

void add_to_rows(TensorView d, const TokenRows& rows, TensorView table) {
  const int64_t width = table.size(1);
  with_element(d.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(rows.used, rows.tokens * width * int64_t{sizeof(T)} / std::max<int64_t>(rows.used, 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     for (int32_t t = rows.begin[i]; t < rows.begin[i + 1]; ++t)
                       add_scaled(d.as<T>() + rows.by_row[t] * width, T(1), table.as<T>() + rows.table_row[i] * width,
                                  width);
                 });
  });
}

void softmax_sums(TensorView logits, const Targets& targets, TensorView sums) {
  with_element(logits.dtype(), [&](auto zero) { softmax_sums_of<decltype(zero)>(logits, targets, sums.as<double>()); });
}

void cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int part, double counted) {
  with_element(logits.dtype(),
               [&](auto zero) { cross_entropy_backward_of<decltype(zero)>(logits, targets, sums, part, counted); });
}

void step_weight(const WeightStep& step) {
  double scale = step.scale;
  if (step.squares != nullptr)
    if (const double norm = std::sqrt(*step.squares); norm > step.max_norm) scale *= step.max_norm / norm;
  with_number_type(step.value.dtype(), [&](auto w) {
    with_number_type(step.gradient.dtype(), [&](auto g) { step_elements<decltype(w), decltype(g)>(step, scale); });
  });
}

double sum_of_squares(TensorView tensor) {
  constexpr int64_t kBlock = 1 << 16;  // independent of the number of threads, so the sum is too
  const int64_t elements = tensor.elements();
  std::vector<double> sums((elements + kBlock - 1) / kBlock);
  with_number_type(tensor.dtype(), [&]<class T>(T) {
    parallel_for(static_cast<int64_t>(sums.size()), kBlock * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const T* values = tensor.as<T>() + block * kBlock;
        sums[block] = sum_of<double>(std::min(kBlock, elements - block * kBlock), [&](int64_t i) {
          const auto value = static_cast<double>(widened(values[i]));
          return value * value;
        });
      }
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace moe
