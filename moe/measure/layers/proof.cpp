#include "moe/measure/layers/proof.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "moe/base/check.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/model/rank_model.h"
#include "moe/stack/stack_errors.h"

namespace moe::measure {
namespace {

// Returns the choices of the gates on all ranks, of all processes.
StackChoices all_choices(World& world, const std::vector<RankCells>& ranks, const Plan& plan) {
  std::vector<std::string> mine;
  for (const RankCells& rank : ranks) {
    const std::vector<int32_t> own = own_choices(rank);
    mine.emplace_back(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(int32_t));
  }
  std::vector<std::vector<int32_t>> all;
  for (const std::string& text : gather(world, std::move(mine))) {
    auto& of_rank = all.emplace_back(text.size() / sizeof(int32_t));
    std::memcpy(of_rank.data(), text.data(), text.size());
  }
  return join_choices(all, stack_shape(plan));
}

// Returns the load of the first MoE layer in its first micro-batch.
RoutingLoad load_of_ranks(World& world, const std::vector<RankCells>& ranks, const Plan& plan) {
  int first = 0;
  while (plan.dense.has(first)) ++first;
  std::vector<std::vector<double>> mine;
  for (const RankCells& rank : ranks)
    mine.push_back(rank.has(first) ? load_on(rank.at(first, 0)) : std::vector<double>());
  std::vector<std::vector<double>> all = gather(world, mine);
  std::erase_if(all, [](const std::vector<double>& load) { return load.empty(); });
  return load_of(rank_shape(ranks.front().cases.moe(), 0, plan.structure->flow), all);
}

const ModelReference& reference_of(const RunVerification& proof, const std::vector<RankRun*>& ranks, const Plan& plan,
                                   const StackChoices& choices) {
  RankRun& rank = *ranks.front();
  const RankCells cells = rank.cells();
  References::Key key{cells.cases.moe(), plan.dense, plan.whole,          plan.vocabulary,
                      plan.step.tied,    choices,    tolerance_of(cells), cells.expert_cell().routing().preset};
  return proof.references.find_or_compute(std::move(key), [&] {
    ModelReference reference;
    if (plan.vocabulary > 0)
      reference = reference_model(cells, choices, rank.model()->ends(), rank.first_step());
    else
      reference.layers = reference_stack(cells, choices);
    return reference;
  });
}

// Gives every process the same verdict: the error text of the first wrong rank or, if none is wrong, the largest error.
void share_verdict(World& world, MeasuredRun& run) {
  const std::vector<int> here = world.local_ranks();
  if (static_cast<int>(here.size()) == world.ranks()) return;
  const std::string wrong = run.wrong ? fmt::format("rank {}: {}", here.front(), *run.wrong) : "";
  const auto tensors = gather(world, std::vector{run.worst_tensor});
  const auto errors = gather(world, std::vector<std::vector<double>>{{run.worst_error}});
  run.wrong.reset();
  for (const std::string& each : gather(world, std::vector{wrong}))
    if (!run.wrong && !each.empty()) run.wrong = each;
  for (size_t rank = 0; rank < errors.size(); ++rank)
    if (errors[rank].front() > run.worst_error) {
      run.worst_error = errors[rank].front();
      run.worst_tensor = tensors[rank];
    }
}

}  // namespace

void verify_run(const RunVerification& proof, const std::vector<RankRun*>& ranks, const Plan& plan, MeasuredRun& run) {
  World& world = proof.world;
  std::vector<RankCells> cells;
  for (RankRun* rank : ranks) cells.push_back(rank->cells());
  MoeLayer& any = cells.front().front();
  run.proven_tokens = static_cast<double>(any.shape().tokens.total * plan.micro_batches);
  run.load = load_of_ranks(world, cells, plan);
  if (proof.inspect) proof.inspect(world, ranks, plan);
  const StackChoices choices = all_choices(world, cells, plan);
  try {
    const ModelReference& reference = reference_of(proof, ranks, plan, choices);
    const std::vector<TensorError> errors =
        plan.vocabulary > 0 ? verify_model(ranks, reference) : verify_stack(cells, reference.layers);
    for (const TensorError& e : errors)
      if (e.error > run.worst_error) run.worst_error = e.error, run.worst_tensor = e.tensor;
  } catch (const WrongResult& error) {
    run.wrong = error.what();
  }
  share_verdict(world, run);
}

namespace {

constexpr double kMaxSilentS = 0.5;
constexpr int64_t kNotYet = -1;

// Calls visit(member) for all members of a layer's reference.
template <class Visit>
void for_each_member(auto& layer, const Visit& visit) requires requires {
  layer.input_gradient;
}
{
  visit(layer.output);
  visit(layer.input_gradient);
  visit(layer.gradients);
  visit(layer.choices);
  visit(layer.auxiliary);
  visit(layer.sizes);
}
template <class Visit>
void for_each_member(auto& model, const Visit& visit) requires requires {
  model.layers;
}
{
  visit(model.layers);
  visit(model.loss);
  visit(model.gradients);
  visit(model.sizes);
}

template <class T>
concept Number = std::is_arithmetic_v<T>;

struct Packer {
  std::string bytes;

  void put(const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); }
  template <Number T>
  void add(const T& number) {
    put(&number, sizeof number);
  }
  void add(const std::string& text) {
    add(text.size());
    put(text.data(), text.size());
  }
  template <class T>
  void add(const std::vector<T>& all) {
    add(all.size());
    if constexpr (Number<T>)
      put(all.data(), all.size() * sizeof(T));
    else
      for (const T& value : all) add(value);
  }
  template <class T>
  void add(const std::map<std::string, T>& all) {
    add(all.size());
    for (const auto& [name, value] : all) {
      add(name);
      add(value);
    }
  }
  template <class T>
  void add(const T& reference) {
    for_each_member(reference, [this](const auto& member) { add(member); });
  }
};

struct Unpacker {
  const std::string& bytes;
  size_t at = 0;

  void get(void* data, size_t size) {
    require<WrongResult>(size <= bytes.size() - at, "a reference of another process: found {} bytes, expected more",
                         bytes.size());
    if (size > 0) std::memcpy(data, bytes.data() + at, size);
    at += size;
  }
  size_t size() {
    size_t size = 0;
    get(&size, sizeof size);
    return size;
  }
  template <Number T>
  void take(T& number) {
    get(&number, sizeof number);
  }
  void take(std::string& text) {
    text.resize(size());
    get(text.data(), text.size());
  }
  template <class T>
  void take(std::vector<T>& all) {
    all.resize(size());
    if constexpr (Number<T>)
      get(all.data(), all.size() * sizeof(T));
    else
      for (T& value : all) take(value);
  }
  template <class T>
  void take(std::map<std::string, T>& all) {
    for (size_t left = size(); left > 0; --left) {
      std::string name;
      take(name);
      take(all[name]);
    }
  }
  template <class T>
  void take(T& reference) {
    for_each_member(reference, [this](auto& member) { take(member); });
  }
};

// Returns the first rank of the machine that `rank` is on.
int first_on_machine(const std::vector<RankMachine>& machines, int rank) {
  const std::string& name = machines[rank].name;
  return static_cast<int>(std::ranges::find(machines, name, &RankMachine::name) - machines.begin());
}

}  // namespace

std::string pack(const ModelReference& reference) {
  Packer packer;
  packer.add(reference);
  return std::move(packer.bytes);
}

ModelReference unpack(const std::string& bytes) {
  ModelReference reference;
  Unpacker{bytes}.take(reference);
  return reference;
}

const ModelReference& References::find_or_compute(Key key, const std::function<ModelReference()>& compute) {
  if (key_ && *key_ == key) return reference_;
  key_.reset();
  reference_ = {};
  const std::vector<int> here = world_.local_ranks();
  if (static_cast<int>(here.size()) == world_.ranks()) {
    reference_ = compute();
    ++computed_;
  } else {
    const int machine = machine_ ? -1 : first_on_machine(machines_of(world_, device_, 1), here.front());
    world_.run([&](int rank) { share(rank, machine, compute); });
  }
  key_ = std::make_unique<Key>(std::move(key));
  return reference_;
}

int64_t References::computed() const {
  if (!machine_) return computed_;
  int64_t all = 0;
  for (const auto& process : gather(world_, std::vector<std::vector<double>>{{static_cast<double>(computed_)}}))
    all += static_cast<int64_t>(process.front());
  return all;
}

// While the reference is being computed, the waiting processes get messages repeatedly, so that they do not time out.
void References::share(int rank, int machine, const std::function<ModelReference()>& compute) {
  if (!machine_) machine_ = world_.communicator(rank)->split(machine, rank);
  const auto device = make_cpu_device();
  const auto stream = device->make_stream("reference");
  const auto broadcast = [&](void* data, int64_t bytes) {
    machine_->broadcast(data, bytes, 0, {*stream, {}, "sharing a reference"});
    stream->synchronize();
  };
  int64_t size = kNotYet;
  std::string bytes;
  if (machine_->rank() == 0) {
    std::future<ModelReference> found = std::async(std::launch::async, compute);
    const std::chrono::duration<double> silence(std::min(kMaxSilentS, timeout_s_ / 4));
    while (machine_->size() > 1 && found.wait_for(silence) != std::future_status::ready) broadcast(&size, sizeof size);
    reference_ = found.get();
    ++computed_;
    if (machine_->size() == 1) return;
    bytes = pack(reference_);
    size = static_cast<int64_t>(bytes.size());
    broadcast(&size, sizeof size);
    return broadcast(bytes.data(), size);
  }
  while (size == kNotYet) broadcast(&size, sizeof size);
  bytes.resize(size);
  broadcast(bytes.data(), size);
  reference_ = unpack(bytes);
}

}  // namespace moe::measure
