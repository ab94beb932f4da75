#include "moe/train/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/numbers.h"
#include "moe/base/registry.h"
#include "moe/tensor/cpu/math.h"
#include "moe/tensor/cpu/row_kernels.h"

namespace moe {
namespace {

constexpr std::array<Named<OptimizerKind>, 2> kOptimizers{
    {{"sgd", OptimizerKind::sgd}, {"adamw", OptimizerKind::adamw}}};
static_assert(in_enum_order(kOptimizers, &Named<OptimizerKind>::value));

void check(const OptimizerSettings& s) {
  const auto within = [](const char* key, double found, double least, double below) {
    require<BadInput>(found >= least && found < below, "{}: found {}, expected {} or more, below {}", key, found, least,
                      below);
  };
  constexpr double kAny = std::numeric_limits<double>::infinity();
  within("learning_rate", s.learning_rate, 0, kAny);
  within("momentum", s.momentum, 0, 1);
  within("beta1", s.beta1, 0, 1);
  within("beta2", s.beta2, 0, 1);
  within("epsilon", s.epsilon, 0, kAny);
  within("weight_decay", s.weight_decay, 0, kAny);
  within("clip_norm", s.clip_norm, 0, kAny);
  require<BadInput>(s.least_share >= 0 && s.least_share <= 1, "least_share: found {}, expected 0 to 1", s.least_share);
  require<BadInput>(s.warm_up_steps >= 0, "warm_up_steps: found {}, expected 0 or more", s.warm_up_steps);
  require<BadInput>(s.steps == 0 || s.steps > s.warm_up_steps, "steps: found {}, expected 0 or more than {} to warm up",
                    s.steps, s.warm_up_steps);
}

void check(const TrainedTensor& t) {
  require<BadInput>(t.value.device() == DeviceKind::cpu && t.gradient.device() == DeviceKind::cpu,
                    "{}: found {} and {}, expected value and gradient on the host", t.name, name_of(t.value.device()),
                    name_of(t.gradient.device()));
  bool alike = t.value.rank() == t.gradient.rank();
  for (int i = 0; alike && i < t.value.rank(); ++i) alike = t.value.size(i) == t.gradient.size(i);
  require<BadInput>(alike, "{}: found a gradient of {} elements, expected the shape of its {}", t.name,
                    t.gradient.elements(), t.value.elements());
}

int64_t count_of(const OwnElements& own, TensorView value) {
  return own.count > 0 ? value.elements() / own.every * own.count : 0;
}

// Calls body(i, the place in the tensor) for those of the own elements that are [begin, end).
template <class Body>
void for_each_own(const OwnElements& own, int64_t begin, int64_t end, Body body) {
  while (begin < end) {
    const int64_t run = begin / own.count, last = std::min(end, (run + 1) * own.count);
    const int64_t ahead = run * (own.every - own.count) + own.first;
    for (; begin < last; ++begin) body(begin, begin + ahead);
  }
}

bool has_momentum(const OptimizerSettings& s) { return s.kind == OptimizerKind::adamw || s.momentum != 0; }

/// What a step does to every element alike.
struct Step {
  double rate = 0, scale = 1, decay = 0;
  double correction1 = 1, correction2 = 1;  // 1 - beta^t
};

/// Returns an element's number after the step from the one before; computes in float64, so that each state is rounded
/// once.
template <class S>
double sgd_step(const OptimizerSettings& s, const Step& at, double weight, double gradient, S* velocity) {
  double change = gradient * at.scale + at.decay * weight;
  if (velocity) {
    change += s.momentum * static_cast<double>(*velocity);
    *velocity = static_cast<S>(change);
  }
  return weight - at.rate * change;
}

template <class S>
double adamw_step(const OptimizerSettings& s, const Step& at, double weight, double gradient, std::pair<S*, S*> means) {
  const double g = gradient * at.scale;
  const double m = s.beta1 * static_cast<double>(*means.first) + (1 - s.beta1) * g;
  const double v = s.beta2 * static_cast<double>(*means.second) + (1 - s.beta2) * g * g;
  *means.first = static_cast<S>(m);
  *means.second = static_cast<S>(v);
  const double kept = weight - at.rate * at.decay * weight;
  return kept - at.rate * (m / at.correction1) / (std::sqrt(v / at.correction2) + s.epsilon);
}

}  // namespace

std::string_view name_of(OptimizerKind kind) { return kOptimizers[static_cast<size_t>(kind)].name; }

OptimizerKind optimizer_from(std::string_view name, std::string_view where) {
  return find_named(kOptimizers, name, where).value;
}

double learning_rate_at(const OptimizerSettings& s, int64_t step) {
  if (step < s.warm_up_steps)
    return s.learning_rate * (static_cast<double>(step + 1) / static_cast<double>(s.warm_up_steps));
  if (s.steps == 0) return s.learning_rate;
  if (step >= s.steps - 1) return s.learning_rate * s.least_share;
  const double way = static_cast<double>(step - s.warm_up_steps) / static_cast<double>(s.steps - 1 - s.warm_up_steps);
  const double fallen = (1 - std::cos(std::numbers::pi * way)) / 2;
  return s.learning_rate * (1 - (1 - s.least_share) * fallen);
}

Optimizer::Optimizer(const OptimizerSettings& settings, std::vector<TrainedTensor> tensors) : settings_(settings) {
  check(settings);
  for (TrainedTensor& t : tensors) {
    check(t);
    const DType sums = sums_type(t.value.dtype());
    if (t.own.every == 0) t.own = {0, t.value.elements(), t.value.elements()};
    const OwnElements own = t.own;
    const int64_t elements = count_of(own, t.value);
    Trained trained{.tensor = std::move(t)};
    if (elements == 0) {
      trained_.push_back(std::move(trained));
      continue;
    }
    if (has_momentum(settings)) trained.first = Tensor({elements}, sums);
    if (settings.kind == OptimizerKind::adamw) trained.second = Tensor({elements}, sums);
    const TensorView value = trained.tensor.value;
    if (value.dtype() != sums) {
      trained.master = Tensor({elements}, sums);
      with_number(value.dtype(), [&]<class T>(T) {
        auto* master = trained.master.template as<float>();
        for_each_own(own, 0, elements,
                     [&](int64_t i, int64_t place) { master[i] = static_cast<float>(widened(value.as<T>()[place])); });
      });
    }
    trained_.push_back(std::move(trained));
  }
}

void Optimizer::step(int64_t step, double gradient_scale) {
  const auto t = static_cast<double>(step + 1);
  for (const Trained& trained : trained_) {
    const TensorView value = trained.tensor.value, gradient = trained.tensor.gradient;
    const OwnElements own = trained.tensor.own;
    const Step at{.rate = learning_rate_at(settings_, step),
                  .scale = gradient_scale,
                  .decay = trained.tensor.decays ? settings_.weight_decay : 0,
                  .correction1 = 1 - std::pow(settings_.beta1, t),
                  .correction2 = 1 - std::pow(settings_.beta2, t)};
    const auto each = [&]<class W, class G>(W, G) {
      using S = Sums<W>;
      S* first = trained.first.as<S>();
      S* second = trained.second.as<S>();
      const G* gradients = gradient.as<G>();
      const auto step_of = [&](int64_t i, int64_t place) {
        S& stepped = std::is_same_v<W, S> ? value.as<S>()[place] : trained.master.as<S>()[i];
        const auto weight = static_cast<double>(stepped), g = static_cast<double>(widened(gradients[place]));
        const double moved = settings_.kind == OptimizerKind::sgd
                                 ? sgd_step(settings_, at, weight, g, first ? first + i : nullptr)
                                 : adamw_step(settings_, at, weight, g, std::pair(first + i, second + i));
        stepped = static_cast<S>(moved);
        if constexpr (!std::is_same_v<W, S>) round_to(stepped, value.as<W>()[place]);
      };
      parallel_for(count_of(own, value), 4 * int64_t{sizeof(S)},
                   [&](int64_t begin, int64_t end) { for_each_own(own, begin, end, step_of); });
    };
    with_number(value.dtype(), [&](auto w) { with_number(gradient.dtype(), [&](auto g) { each(w, g); }); });
  }
}

std::vector<OptimizerState> Optimizer::states() const {
  std::vector<OptimizerState> states;
  const bool adamw = settings_.kind == OptimizerKind::adamw;
  for (size_t i = 0; i < trained_.size(); ++i) {
    const Trained& trained = trained_[i];
    const auto add = [&](const char* name, TensorView state) {
      if (state.data() == nullptr) return;
      const TensorView& value = trained.tensor.value;  // whose shape the states of all of it have
      const bool all = state.elements() == value.elements();
      states.push_back({fmt::format("{}.{}", trained.tensor.name, name), i,
                        all ? value.moved_to(state.data(), DeviceKind::cpu, state.dtype()) : state});
    };
    add(adamw ? "moment1" : "momentum", trained.first);
    add("moment2", trained.second);
    add("master", trained.master);
  }
  return states;
}

double sum_of_squares(TensorView tensor) {
  require<BadInput>(tensor.device() == DeviceKind::cpu, "sum of squares: found a tensor on {}, expected the host's",
                    name_of(tensor.device()));
  constexpr int64_t kBlock = 1 << 16;  // the same on any number of threads
  const int64_t elements = tensor.elements();
  std::vector<double> sums(static_cast<size_t>((elements + kBlock - 1) / kBlock));
  with_number(tensor.dtype(), [&]<class T>(T) {
    parallel_for(static_cast<int64_t>(sums.size()), kBlock * int64_t{sizeof(T)}, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const T* values = tensor.as<T>() + block * kBlock;
        sums[static_cast<size_t>(block)] = sum_of<double>(std::min(kBlock, elements - block * kBlock), [&](int64_t i) {
          const auto value = static_cast<double>(widened(values[i]));
          return value * value;
        });
      }
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double clip_scale(double norm, double most) {
  require<WrongResult>(std::isfinite(norm), "norm of the gradients: found {}, expected a finite number", norm);
  return most > 0 && norm > most ? most / norm : 1;
}

}  // namespace moe
