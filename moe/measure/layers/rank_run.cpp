#include "moe/measure/layers/rank_run.h"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <fstream>
#include <memory>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/device/cpu/cores.h"
#include "moe/device/device.h"
#include "moe/device/stream.h"
#include "moe/stack/stack_binding.h"
#include "moe/train/token_source.h"

namespace moe::measure {

bool is_one_layer(const Plan& plan) {
  return plan.layers == 1 && plan.micro_batches == 1 && plan.shape.parallel.pp == 1 && plan.vocabulary == 0;
}

void require_runs(const Plan& plan) { is_one_layer(plan) ? require_runnable(plan) : require_stack_runs(plan); }

RankRun::RankRun(const Plan& plan, Communicator& world, const Setup& setup)
    : device_(make_device(setup.kind, setup.place, setup.threads)),
      layer_device_(setup.kind == DeviceKind::cuda ? make_cuda_layer_device({.attention = setup.attention}) : nullptr),
      text_(setup.text),
      seed_(setup.seed) {
  const int own_cores = cpu::usable_core_count();
  // Weights are generated here.
  const cpu::ThreadCountScope threads(setup.kind == DeviceKind::cuda ? own_cores : setup.threads);
  LayerDevice& on = layer_device_ ? *layer_device_ : cpu_layer_device();
  LayerSeed seed;
  seed.seed = setup.seed;
  CommsCache own;
  if (is_one_layer(plan))
    layer_ =
        std::make_unique<MoeLayer>(rank_shape(plan.shape, world.rank(), plan.structure->flow), seed,
                                   (setup.comms ? *setup.comms : own).find_or_split(world, plan.shape.parallel), on);
  else
    stack_ = std::make_unique<LayerStack>(stack_shape(plan), world.rank(), seed, world, on);
  if (plan.vocabulary > 0) {
    const int64_t most = plan.vocabulary - (plan.shape.layer.causal ? 0 : 1);  // the last token is the mask
    require<BadInput>(text_ != nullptr && text_->vocabulary() <= most,
                      "a model of {} tokens: found a text of {}, expected one of {} at most", plan.vocabulary,
                      text_ == nullptr ? 0 : text_->vocabulary(), most);
    model_ = std::make_unique<RankModel>(*stack_, world, plan.vocabulary, plan.step, seed);
    if (setup.step_outside_pass) {
      model_->step_outside_pass();
      steps_ = device_->make_stream("steps");
    }
  }
  for (const auto& layer : cells().layers)
    for (MoeLayer* cell : layer) cell->preset(setup.workload);
  if (stack_)
    binding_ = std::make_unique<StackBinding>(*stack_, plan, *device_, model_.get());
  else
    binding_ = std::make_unique<LayerBinding>(*layer_, plan);
  if (setup.injected.slows(world.rank())) slowed_ = std::make_unique<SlowedBinding>(*binding_, setup.injected);
  executor_ = std::make_unique<Executor>(*device_, plan.structure, stack_ ? stack_->stage() : 0);
}

SampleTokens RankRun::text_of(Split split, int64_t step) const {
  const bool causal = stack_->shape().shape.layer.causal;
  return [=, this](int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) {
    std::vector<int32_t> text(tokens.size() + 1);
    text_->fill(split, step, sample, text);
    std::copy(text.begin(), text.end() - 1, tokens.begin());
    if (causal) return void(std::copy(text.begin() + 1, text.end(), targets.begin()));
    mask_tokens({seed_, split == Split::held_out, step}, sample, model_->ends().vocabulary(), tokens, targets);
  };
}

void RankRun::begin_step(Split split, int64_t step) {
  model_->ends().load(text_of(split, step));
  for (const auto& layer : cells().layers)
    for (MoeLayer* cell : layer) cell->begin_step(static_cast<uint64_t>(step), split == Split::train);
}

const RunTimes& RankRun::pass(const std::vector<double>& at_least_s, const ContentionContext& contended,
                              const std::function<void()>& issued) {
  if (model_) begin_step(Split::train, model_->steps());
  Binding& tasks = slowed_ ? *slowed_ : *binding_;
  const RunTimes& times = executor_->run(tasks, at_least_s, std::nullopt, contended, issued);
  end_step();
  return times;
}

void RankRun::record() {
  require<Unsupported>(layer_ && !slowed_, "recorded passes: found a stack of layers, expected one layer");
  executor_->record(*binding_);
}

const RunTimes& RankRun::lockstep_pass(Communicator& world_comm) {
  if (model_) begin_step(Split::train, model_->steps());
  LockstepBinding lockstep(*binding_, world_comm);
  const RunTimes& times = executor_->run(lockstep);
  end_step();
  return times;
}

void RankRun::end_step() {
  if (!model_) return;
  if (steps_) {
    model_->step(*steps_);
    steps_->synchronize();
  }
  model_->end_pass();
}

double RankRun::held_out_loss(int64_t step) {
  begin_step(Split::held_out, step);
  stack_->set_reads_host(true);
  executor_->run(*binding_, {}, Phase::forward);
  stack_->set_reads_host(false);
  return model_->ends().heads() ? model_->ends().loss(std::max(0, text_->context() - 1)) : 0;
}

void RankRun::finish_gradients(Stream& stream) {
  if (layer_) layer_->finish_gradients(stream);
}

std::vector<RankMachine> machines_of(World& world, DeviceKind device, int threads) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");  // identifies the booted kernel; its containers share a clock
  std::string boot;
  std::getline(file, boot);
  const std::vector<int> cores = cpu::usable_cores();
  const size_t here = world.local_ranks().size();
  const auto names = gather(world, std::vector(here, fmt::format("{} {}", boot, fmt::join(cores, ","))));
  const int on_cpu = std::max(1, static_cast<int>(cores.size()) / threads);
  const double own = device == DeviceKind::cpu ? on_cpu : world.ranks();
  const auto at_once = gather(world, std::vector(here, std::vector{own}));
  std::vector<RankMachine> machines;
  for (size_t rank = 0; rank < names.size(); ++rank)
    machines.push_back({names[rank], static_cast<int>(at_once[rank].front())});
  return machines;
}

void sum_over_ranks(std::span<double> numbers, Device& device, Communicator& world_comm, CommCall call) {
  if (world_comm.size() == 1) return;
  const auto bytes = static_cast<int64_t>(numbers.size_bytes());
  const Memory there = device.make_memory(bytes);
  call.stream.copy({there.data(), numbers.data(), bytes});
  world_comm.allreduce(there.data(), std::ssize(numbers), DType::float64, call);
  call.stream.copy({numbers.data(), there.data(), bytes});
  call.stream.synchronize();
}

std::vector<RankMachine> one_machine_per_rank(size_t ranks) {
  std::vector<RankMachine> machines;
  for (size_t rank = 0; rank < ranks; ++rank) machines.push_back({fmt::format("of rank {}", rank), 1});
  return machines;
}

namespace {

constexpr double kMaxFactor = 1000;

TaskKind kind_from(const std::string& name, const std::string& what) {
  std::string known;
  for (int k = 0; k < kTaskKinds; ++k) {
    const auto kind = static_cast<TaskKind>(k);
    if (name_of(kind) == name) return kind;
    known += fmt::format("{}{}", k > 0 ? ", " : "", name_of(kind));
  }
  bad_input("{}: unknown task {}, expected one of: {}", what, quoted_text(name), known);
}

template <class Number>
Number number_from(const std::string& text, const std::string& what, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require<BadInput>(error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
                    "{}: found {}, expected KIND:FACTOR or KIND:FACTOR:RANK, a number from {} to {}", what,
                    quoted_text(text), least, most);
  return value;
}

}  // namespace

InjectedSlowdown injected_slowdown_from(const std::string& text, const std::string& what) {
  if (text.empty()) return {};
  const size_t colon = text.find(':'), second = text.find(':', std::min(colon, text.size() - 1) + 1);
  require<BadInput>(colon != std::string::npos, "{}: found {}, expected KIND:FACTOR or KIND:FACTOR:RANK", what,
                    quoted_text(text));
  InjectedSlowdown injected{kind_from(text.substr(0, colon), what)};
  injected.factor = number_from<double>(text.substr(colon + 1, second - colon - 1), what, 1, kMaxFactor);
  if (second != std::string::npos)
    injected.rank = number_from<int>(text.substr(second + 1), what, 0, std::numeric_limits<int>::max());
  return injected;
}

void SlowedBinding::issue(const Task& task, Stream& stream, Pace pace) {
  if (task.kind != injected_.kind && whole_of(task.kind) != injected_.kind) return tasks_.issue(task, stream, pace);
  auto began = std::make_shared<double>(0);
  stream.launch([began](void*) { *began = now_s(); });
  tasks_.issue(task, stream, pace);
  stream.launch([began, factor = injected_.factor](void*) {
    const double end = *began + factor * (now_s() - *began);
    while (now_s() < end) {
    }
  });
}

Plan serial_plan(const Plan& plan) {
  auto structure = std::make_shared<Structure>(*plan.structure);
  for (Task& task : structure->tasks)
    if (task.id > 0 && std::ranges::find(task.after, task.id - 1) == task.after.end())
      task.after.push_back(task.id - 1);
  Plan serial = plan;
  serial.structure = std::move(structure);
  return serial;
}

void LockstepBinding::finish_task(const Task& task, Stream& stream) {
  tasks_.finish_task(task, stream);
  world_comm_.barrier({stream, {}, "end of a task"});
  stream.synchronize();
}

}  // namespace moe::measure
