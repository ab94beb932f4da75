#include "moe/train/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/numbers.h"
#include "moe/tensor/host_copy.h"

namespace moe {
namespace {

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

void check(const TrainedTensor& t, DeviceKind kind) {
  require<BadInput>(t.value.device() == kind && t.gradient.device() == kind,
                    "{}: found {} and {}, expected value and gradient on {}", t.name, name_of(t.value.device()),
                    name_of(t.gradient.device()), name_of(kind));
  bool alike = t.value.rank() == t.gradient.rank();
  for (int i = 0; alike && i < t.value.rank(); ++i) alike = t.value.size(i) == t.gradient.size(i);
  require<BadInput>(alike, "{}: found a gradient of {} elements, expected the shape of its {}", t.name,
                    t.gradient.elements(), t.value.elements());
}

bool has_momentum(const OptimizerSettings& s) { return s.kind == OptimizerKind::adamw || s.momentum != 0; }

// Sets a master to the present value of its weight.
void copy_to_master(TensorView value, const ElementSelection& own, TensorView master, MemorySpace& memory) {
  const HostCopy from(value, memory), to(master, memory);
  for (int64_t i = 0; i < master.elements(); ++i)
    to.view().as<float>()[i] = from.view().as<float>()[i / own.count * own.every + own.first + i % own.count];
  to.send();
}

}  // namespace

double learning_rate_at(const OptimizerSettings& s, int64_t step) {
  if (step < s.warm_up_steps)
    return s.learning_rate * (static_cast<double>(step + 1) / static_cast<double>(s.warm_up_steps));
  if (s.steps == 0) return s.learning_rate;
  if (step >= s.steps - 1) return s.learning_rate * s.least_share;
  const double way = static_cast<double>(step - s.warm_up_steps) / static_cast<double>(s.steps - 1 - s.warm_up_steps);
  const double fallen = (1 - std::cos(std::numbers::pi * way)) / 2;
  return s.learning_rate * (1 - (1 - s.least_share) * fallen);
}

Optimizer::Optimizer(const OptimizerSettings& settings, std::vector<TrainedTensor> tensors, Math& math)
    : settings_(settings), math_(&math) {
  check(settings);
  MemorySpace& memory = math.memory();
  for (TrainedTensor& t : tensors) {
    check(t, memory.kind());
    const TensorView value = t.value;
    const DType sums = accumulation_type(value.dtype());
    t.own = explicit_selection(t.own, value);
    const int64_t elements = count_of(t.own, value);
    Trained& trained = trained_.emplace_back();
    trained.tensor = std::move(t);
    if (elements == 0) continue;
    if (has_momentum(settings)) trained.first = Tensor({elements}, sums, memory);
    if (settings.kind == OptimizerKind::adamw) trained.second = Tensor({elements}, sums, memory);
    if (value.dtype() == sums) continue;
    trained.master = Tensor({elements}, sums, memory);
    copy_to_master(value, trained.tensor.own, trained.master, memory);
  }
}

void Optimizer::step(int64_t step, double gradient_scale, const double* squares) {
  const auto t = static_cast<double>(step + 1);
  for (const Trained& trained : trained_) {
    math_->step({.value = trained.tensor.value,
                 .gradient = trained.tensor.gradient,
                 .own = trained.tensor.own,
                 .master = trained.master,
                 .first = trained.first,
                 .second = trained.second,
                 .kind = settings_.kind,
                 .rate = learning_rate_at(settings_, step),
                 .decay = trained.tensor.decays ? settings_.weight_decay : 0,
                 .momentum = settings_.momentum,
                 .beta1 = settings_.beta1,
                 .beta2 = settings_.beta2,
                 .epsilon = settings_.epsilon,
                 .correction1 = 1 - std::pow(settings_.beta1, t),
                 .correction2 = 1 - std::pow(settings_.beta2, t),
                 .scale = gradient_scale,
                 .squares = settings_.clip_norm > 0 ? squares : nullptr,
                 .max_norm = settings_.clip_norm});
  }
}

std::vector<OptimizerState> Optimizer::states() const {
  std::vector<OptimizerState> states;
  const bool adamw = settings_.kind == OptimizerKind::adamw;
  for (size_t i = 0; i < trained_.size(); ++i) {
    const Trained& trained = trained_[i];
    const auto add = [&](const char* name, TensorView state) {
      if (state.data() == nullptr) return;
      const TensorView& value = trained.tensor.value;  // states of the whole weight get the weight's shape
      const bool all = state.elements() == value.elements();
      states.push_back({fmt::format("{}.{}", trained.tensor.name, name), i,
                        all ? value.moved_to(state.data(), state.device(), state.dtype()) : state});
    };
    add(adamw ? "moment1" : "momentum", trained.first);
    add("moment2", trained.second);
    add("master", trained.master);
  }
  return states;
}

}  // namespace moe
