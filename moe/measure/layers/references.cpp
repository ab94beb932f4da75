#include "moe/measure/layers/references.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "moe/base/check.h"
#include "moe/measure/layers/rank_machines.h"

namespace moe::measure {
namespace {

constexpr double kMostSilentS = 0.5;
constexpr int64_t kNotYet = -1;

// Calls visit(member) for all that a reference is made of.
template <class Visit>
void each_member(auto& layer, const Visit& visit) requires requires {
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
void each_member(auto& model, const Visit& visit) requires requires {
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
    each_member(reference, [this](const auto& member) { add(member); });
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
    each_member(reference, [this](auto& member) { take(member); });
  }
};

// Returns the first rank of the machine that `rank` is on.
int first_on_machine(const std::vector<RankMachine>& machines, int rank) {
  const std::string& name = machines[static_cast<size_t>(rank)].name;
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

const ModelReference& References::of(Key key, const std::function<ModelReference()>& compute) {
  if (key_ && *key_ == key) return reference_;
  key_.reset();
  reference_ = {};
  const std::vector<int> here = world_.here();
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

// The others hear that the reference is not there yet as long as it is not, so that no time-out ends them.
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
    const std::chrono::duration<double> silence(std::min(kMostSilentS, timeout_s_ / 4));
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
  bytes.resize(static_cast<size_t>(size));
  broadcast(bytes.data(), size);
  reference_ = unpack(bytes);
}

}  // namespace moe::measure
